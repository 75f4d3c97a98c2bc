// Notifications of the browser when a session begins to wait for the user.

import { effect } from "./lib.js";
import { visible } from "./format.js";
import { sessions } from "./overview-store.js";
import { wantsNotifications } from "./preferences.js";
import { route, routeHash } from "./router.js";
import { toast } from "./ui.js";

/** @typedef {import("./types.js").SessionSummary} SessionSummary */

/** Returns the sessions that wait now and did not before. @param {SessionSummary[]|null} before @param {SessionSummary[]} after */
export function newlyWaiting(before, after) {
  if (before === null) return [];
  const waited = new Set(before.filter(({ state }) => state === "waiting").map(({ id }) => id));
  return after.filter(({ id, state }) => state === "waiting" && !waited.has(id));
}

/** Asks the browser for permission, or turns notifications off. */
export async function toggleNotifications() {
  if (wantsNotifications.value) {
    wantsNotifications.value = false;
    toast("Notifications are off");
    return;
  }
  if (typeof Notification === "undefined") {
    toast("This browser has no notifications here: they need HTTPS or a local address", { isError: true });
    return;
  }
  const permission = await Notification.requestPermission();
  wantsNotifications.value = permission === "granted";
  void serviceWorker();
  toast(permission === "granted" ? "You are notified when a session waits" : "The browser does not allow notifications of this page", { isError: permission !== "granted" });
}

/** Watches the sessions from here on. */
export function startNotifications() {
  if (wantsNotifications.peek()) void serviceWorker();
  navigator.serviceWorker?.addEventListener("message", ({ data }) => showSession(data?.hash));
  /** @type {SessionSummary[]|null} */
  let before = null;
  effect(() => {
    const after = sessions.value;
    if (!after) return;
    const waiting = after.filter(({ state }) => state === "waiting").length;
    document.title = waiting > 0 ? `(${waiting}) Bowline` : "Bowline";
    // Without notifications, the title still says that sessions wait.
    for (const session of newlyWaiting(before, after)) notify(session).catch(() => undefined);
    before = after;
  });
}

/**
 * Returns the service worker, once it can show notifications; `null` where there is none.
 * @returns {Promise<ServiceWorkerRegistration|null>}
 */
async function serviceWorker() {
  try {
    await navigator.serviceWorker.register("/sw.js");
    return await navigator.serviceWorker.ready;
  } catch {
    return null;
  }
}

/** @param {SessionSummary} session */
async function notify(session) {
  const hash = routeHash({ view: "session", id: session.id });
  const isInSight = !document.hidden && document.hasFocus() && route.peek().id === session.id;
  if (!wantsNotifications.peek() || isInSight || typeof Notification === "undefined" || Notification.permission !== "granted") return;
  const options = { body: visible(`${session.title ?? "A session"}${session.waitingFor ? `: ${session.waitingFor}` : ""}`), tag: session.id, icon: "/favicon.svg", data: hash };
  const worker = await serviceWorker();
  if (worker) return worker.showNotification("Waiting for you", options);
  const notification = new Notification("Waiting for you", options);
  notification.addEventListener("click", () => {
    window.focus();
    showSession(hash);
    notification.close();
  });
}

/** Shows the session that a notification is about. @param {unknown} hash */
function showSession(hash) {
  if (typeof hash === "string" && hash.startsWith("#/")) location.hash = hash;
}
