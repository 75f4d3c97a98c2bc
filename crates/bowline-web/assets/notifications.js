// Notifications of the browser when a session begins to wait for the user.

import { effect } from "./lib.js";
import { sessions } from "./overview-store.js";
import { wantsNotifications } from "./preferences.js";
import { go, route } from "./router.js";
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
  toast(permission === "granted" ? "You are notified when a session waits" : "The browser does not allow notifications of this page", { isError: permission !== "granted" });
}

/** Watches the sessions from here on. */
export function startNotifications() {
  /** @type {SessionSummary[]|null} */
  let before = null;
  effect(() => {
    const after = sessions.value;
    if (!after) return;
    const waiting = after.filter(({ state }) => state === "waiting").length;
    document.title = waiting > 0 ? `(${waiting}) Bowline` : "Bowline";
    for (const session of newlyWaiting(before, after)) notify(session);
    before = after;
  });
}

/** @param {SessionSummary} session */
function notify(session) {
  const isInSight = !document.hidden && document.hasFocus() && route.peek().id === session.id;
  if (!wantsNotifications.peek() || isInSight || typeof Notification === "undefined" || Notification.permission !== "granted") return;
  const notification = new Notification("Waiting for you", { body: `${session.title ?? "A session"}${session.waitingFor ? `: ${session.waitingFor}` : ""}`, tag: session.id, icon: "/favicon.svg" });
  notification.addEventListener("click", () => {
    window.focus();
    go({ view: "session", id: session.id });
    notification.close();
  });
}
