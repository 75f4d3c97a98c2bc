// The part of the page that the address names: `#/s/ID/changes`.

import { signal } from "./lib.js";

/** @typedef {{view: "overview"|"session"|"changes"|"wire"|"audit"|"status", id: string}} Route */

/** @param {string} hash @returns {Route} */
export function parseRoute(hash) {
  const parts = hash.replace(/^#?\/?/, "").split("/").map(decode);
  if (parts[0] === "s" && parts[1]) {
    const view = parts[2] === "changes" || parts[2] === "wire" ? parts[2] : "session";
    return { view, id: parts[1] };
  }
  if (parts[0] === "audit" || parts[0] === "status") return { view: parts[0], id: "" };
  return { view: "overview", id: "" };
}

/** @param {Partial<Route>} route */
export function routeHash({ view = "overview", id = "" }) {
  if (view === "overview") return "#/";
  if (view === "audit" || view === "status") return `#/${view}`;
  const base = `#/s/${encodeURIComponent(id)}`;
  return view === "session" ? base : `${base}/${view}`;
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The current route. */
export const route = signal(/** @type {Route} */ ({ view: "overview", id: "" }));

/** @param {Partial<Route>} target */
export function go(target) {
  location.hash = routeHash(target);
  // The event comes later, and the next key may not wait for it.
  update();
}

function update() {
  const next = parseRoute(location.hash);
  if (next.view !== route.peek().view || next.id !== route.peek().id) route.value = next;
}

/** Follows the address from here on. */
export function startRouter() {
  addEventListener("hashchange", update);
  update();
}
