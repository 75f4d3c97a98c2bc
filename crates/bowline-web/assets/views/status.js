// The state of the server, for admins.

import { html, useEffect, useState } from "../lib.js";
import { get } from "../api.js";
import { duration } from "../format.js";
import { Problem } from "../ui.js";

/** The pause between two requests, in milliseconds. */
const PAUSE = 3000;

/** @type {Record<string, string>} */
const NAMES = { uptime: "Uptime", connections: "Connections", sessions: "Sessions", openSessions: "Open sessions", agents: "Agent processes", events: "Events", storeOk: "Store", version: "Version" };

export function Status() {
  const [status, setStatus] = useState(/** @type {Record<string, any>|null} */ (null));
  const [error, setError] = useState("");
  useEffect(() => {
    let isCurrent = true;
    const load = () => get("/api/status").then(
      (answer) => { if (isCurrent) { setStatus(answer); setError(""); } },
      (failure) => { if (isCurrent) setError(failure.message); },
    );
    void load();
    const timer = setInterval(load, PAUSE);
    return () => {
      isCurrent = false;
      clearInterval(timer);
    };
  }, []);
  return html`<main class="page" id="main" tabindex="0">
    <header class="page-head"><div><h1>Server status</h1><p class="muted">Updated every few seconds.</p></div></header>
    <${Problem} text=${error} />
    ${!status && !error && html`<p class="muted loading">Loading…</p>`}
    ${status && html`<dl class="facts">${Object.entries(status).filter(([, value]) => typeof value !== "object").map(([name, value]) => html`<div key=${name}><dt>${NAMES[name] ?? toWords(name)}</dt><dd class=${name === "storeOk" && !value ? "problem" : ""}>${show(name, value)}</dd></div>`)}</dl>`}
  </main>`;
}

/** @param {string} name @param {any} value */
function show(name, value) {
  if (name === "uptime" && typeof value === "number") return duration(value);
  if (name === "storeOk") return value ? "in order" : "failing";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" ? value.toLocaleString("en") : String(value);
}

/** @param {string} name */
function toWords(name) {
  const words = name.replace(/([A-Z])/g, " $1").replace(/_/g, " ").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}
