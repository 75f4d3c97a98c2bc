// The sessions of the server, kept up to date by its events.

import { batch, signal } from "./lib.js";
import { get } from "./api.js";

/** @typedef {import("./types.js").SessionSummary} SessionSummary */

/** The least time between two requests, in milliseconds. */
const MIN_INTERVAL = 500;

/** The pause before the event stream is opened again. */
const RETRY_PAUSE = 3000;

/** The sessions that were used last, whatever is searched for; `null` before the first answer. */
export const sessions = signal(/** @type {SessionSummary[]|null} */ (null));

/** The sessions that the filter finds; `null` before the first answer. */
export const listed = signal(/** @type {SessionSummary[]|null} */ (null));

/** The sessions that are prepared by the form of a new session, and not yet started. */
export const prepared = signal(/** @type {string[]} */ ([]));

/** Where the next page begins, if there is one. */
export const nextPage = signal(/** @type {string|null} */ (null));

/** What is asked for. */
export const filter = signal({ query: "", archived: false });

/** Why the last request failed. */
export const overviewError = signal("");

/** How many pages are shown of all sessions, and of those that the filter finds. */
let pages = 1;
let filteredPages = 1;
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
    const all = await find({}, pages);
    const shown = isFiltered(asked) ? await find(asked, filteredPages) : all;
    batch(() => {
      sessions.value = all.found;
      if (asked === filter.value) {
        listed.value = shown.found;
        nextPage.value = shown.next;
      }
      overviewError.value = "";
    });
  } catch (error) {
    overviewError.value = error instanceof Error ? error.message : String(error);
  } finally {
    isRunning = false;
    if (asked !== filter.value) refreshOverview();
  }
}

/** @param {{query: string, archived: boolean}} asked */
function isFiltered({ query, archived }) {
  return query.trim() !== "" || archived;
}

/** @param {Partial<{query: string, archived: boolean}>} asked @param {number} count of pages */
async function find(asked, count) {
  /** @type {SessionSummary[]} */
  const found = [];
  /** @type {string|null} */
  let next = null;
  for (let page = 0; page < count; page += 1) {
    const answer = await get("/api/overview", { ...asked, cursor: next });
    found.push(...answer.sessions);
    next = answer.next ?? null;
    if (next === null) break;
  }
  return { found: found.filter(({ id }) => !prepared.value.includes(id)), next };
}

/** Shows one page more. */
export function loadMore() {
  if (isFiltered(filter.value)) filteredPages += 1;
  else pages += 1;
  refreshOverview();
}

/** @param {Partial<{query: string, archived: boolean}>} change */
export function setFilter(change) {
  filter.value = { ...filter.value, ...change };
  filteredPages = 1;
  refreshOverview();
}

/** Returns a session, from the list or from the server. @param {string} id @returns {Promise<SessionSummary|null>} */
export async function findSession(id) {
  return sessions.value?.find((session) => session.id === id) ?? fetchSession(id);
}

/** Returns a session from the server. @param {string} id @returns {Promise<SessionSummary|null>} */
export async function fetchSession(id) {
  const answer = await get("/api/overview", { session: id });
  return answer.sessions.find((/** @type {SessionSummary} */ session) => session.id === id) ?? null;
}

/** Changes a session in the lists until the server's next answer. @param {string} id @param {Partial<SessionSummary>} change */
export function patchSession(id, change) {
  for (const list of [sessions, listed]) {
    list.value = list.value?.map((session) => (session.id === id ? { ...session, ...change } : session)) ?? null;
  }
}

/** Who is told of each change of a session. @type {Set<(id: string|null) => void>} */
const listeners = new Set();

/** Calls a listener when a session changes, with its id; `null` if any can have changed. Returns what ends it. @param {(id: string|null) => void} listener */
export function onSessionChange(listener) {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** @param {string|null} id */
function noteChange(id) {
  refreshOverview();
  for (const listener of listeners) listener(id);
}

/**
 * Follows the server's events from here on. Of all tabs one listens and tells the others: a browser opens few
 * connections to a server, and each stream takes one for good.
 * @param {() => void} onUnauthorized
 */
export function startOverview(onUnauthorized) {
  refreshOverview();
  const channel = new BroadcastChannel("bowline.overview");
  channel.addEventListener("message", ({ data }) => noteChange(data));
  const listen = () => {
    followEvents((id) => {
      channel.postMessage(id);
      noteChange(id);
    }, onUnauthorized);
    return new Promise(() => undefined);
  };
  // Pages that are not secure have no locks.
  if (navigator.locks) void navigator.locks.request("bowline.overview", listen);
  else void listen();
}

/** @param {(id: string|null) => void} onChange @param {() => void} onUnauthorized */
function followEvents(onChange, onUnauthorized) {
  const events = new EventSource("/api/overview/events");
  events.addEventListener("message", ({ data }) => onChange(JSON.parse(data).id));
  // What happened between two streams is not repeated.
  events.addEventListener("open", () => onChange(null));
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
