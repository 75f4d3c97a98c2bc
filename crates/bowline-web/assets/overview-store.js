// The sessions of the server, kept up to date by its events.

import { signal } from "./lib.js";
import { get } from "./api.js";

/** @typedef {import("./types.js").SessionSummary} SessionSummary */

/** The least time between two requests, in milliseconds. */
const MIN_INTERVAL = 500;

/** The pause before the event stream is opened again. */
const RETRY_PAUSE = 3000;

/** The sessions that are shown; `null` before the first answer. */
export const sessions = signal(/** @type {SessionSummary[]|null} */ (null));

/** The sessions that are prepared by the form of a new session, and not yet started. */
export const prepared = signal(/** @type {string[]} */ ([]));

/** Where the next page begins, if there is one. */
export const nextPage = signal(/** @type {string|null} */ (null));

/** What is asked for. */
export const filter = signal({ query: "", archived: false });

/** Why the last request failed. */
export const overviewError = signal("");

let pages = 1;
let last = -Infinity;
let isRunning = false;
/** @type {ReturnType<typeof setTimeout>|undefined} */
let timer;

/** Asks for the sessions, now or as soon as the last request is long enough ago. */
export function refreshOverview() {
  if (timer !== undefined) return;
  const pause = isRunning ? MIN_INTERVAL : Math.max(0, last + MIN_INTERVAL - performance.now());
  timer = setTimeout(() => {
    timer = undefined;
    void load();
  }, pause);
}

async function load() {
  if (isRunning) return refreshOverview();
  isRunning = true;
  last = performance.now();
  const asked = filter.value;
  try {
    /** @type {SessionSummary[]} */
    const found = [];
    /** @type {string|null} */
    let cursor = null;
    for (let page = 0; page < pages; page += 1) {
      const answer = await get("/api/overview", { ...asked, cursor });
      found.push(...answer.sessions);
      cursor = answer.next ?? null;
      if (cursor === null) break;
    }
    if (asked === filter.value) {
      sessions.value = found.filter(({ id }) => !prepared.value.includes(id));
      nextPage.value = cursor;
    }
    overviewError.value = "";
  } catch (error) {
    overviewError.value = error instanceof Error ? error.message : String(error);
  } finally {
    isRunning = false;
    if (asked !== filter.value) refreshOverview();
  }
}

/** Shows one page more. */
export function loadMore() {
  pages += 1;
  refreshOverview();
}

/** @param {Partial<{query: string, archived: boolean}>} change */
export function setFilter(change) {
  filter.value = { ...filter.value, ...change };
  pages = 1;
  refreshOverview();
}

/** Returns a session, from the list or from the server. @param {string} id @returns {Promise<SessionSummary|null>} */
export async function findSession(id) {
  const known = sessions.value?.find((session) => session.id === id);
  if (known) return known;
  const answer = await get("/api/overview", { session: id });
  return answer.sessions.find((/** @type {SessionSummary} */ session) => session.id === id) ?? null;
}

/** Changes a session in the list until the server's next answer. @param {string} id @param {Partial<SessionSummary>} change */
export function patchSession(id, change) {
  sessions.value = sessions.value?.map((session) => (session.id === id ? { ...session, ...change } : session)) ?? null;
}

/**
 * Follows the server's events from here on. Of all tabs one listens and tells the others: a browser opens few
 * connections to a server, and each stream takes one for good.
 * @param {() => void} onUnauthorized
 */
export function startOverview(onUnauthorized) {
  refreshOverview();
  const channel = new BroadcastChannel("bowline.overview");
  channel.addEventListener("message", refreshOverview);
  const listen = () => {
    followEvents(() => {
      channel.postMessage(null);
      refreshOverview();
    }, onUnauthorized);
    return new Promise(() => undefined);
  };
  // Pages that are not secure have no locks.
  if (navigator.locks) void navigator.locks.request("bowline.overview", listen);
  else void listen();
}

/** @param {() => void} onChange @param {() => void} onUnauthorized */
function followEvents(onChange, onUnauthorized) {
  const events = new EventSource("/api/overview/events");
  events.addEventListener("message", onChange);
  // What happened between two streams is not repeated.
  events.addEventListener("open", onChange);
  events.addEventListener("error", () => {
    if (events.readyState !== EventSource.CLOSED) return;
    setTimeout(() => {
      get("/api/me").then(() => followEvents(onChange, onUnauthorized), (error) => {
        if (error.status === 401) onUnauthorized();
        else followEvents(onChange, onUnauthorized);
      });
    }, RETRY_PAUSE);
  });
}
