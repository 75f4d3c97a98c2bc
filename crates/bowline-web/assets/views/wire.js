// The wire: a session's messages in order, and the page's own traffic, with the raw JSON of each.

import { html, useEffect, useState } from "../lib.js";
import { get, sessionPath } from "../api.js";
import { openSession, traffic, trafficCount } from "../client.js";
import { clockTime, visible } from "../format.js";
import { Icon } from "../icons.js";
import { Empty, Problem } from "../ui.js";
import { VirtualList } from "../virtual-list.js";
import { SessionTabs } from "./conversation.js";

/** @typedef {{key: string, version: number, at: number|null, direction: "in"|"out", name: string, detail: string, text: string}} Entry */

/** The longest message that is shown whole, in characters. */
const MAX_SHOWN = 50_000;

/** The most events of the server that are kept; the oldest are dropped. */
const MAX_EVENTS = 20_000;

/** Returns what a message is called: its method, or what it answers. @param {any} message */
export function messageName(message) {
  const update = message?.params?.update?.sessionUpdate;
  if (message?.method) return { name: String(message.method), detail: update ? String(update) : message.id !== undefined ? `request ${message.id}` : message.method === "$/cancel_request" ? `request ${message.params?.requestId}` : "" };
  if (message?.error) return { name: "error", detail: `${message.error.message ?? ""}` };
  return { name: "result", detail: `of request ${message?.id}` };
}

/** @param {{id: string}} props */
export function Wire({ id }) {
  const session = openSession(id);
  const [source, setSource] = useState(/** @type {"session"|"page"} */ ("session"));
  const [events, setEvents] = useState(/** @type {Entry[]} */ ([]));
  const [error, setError] = useState("");
  const [query, setQuery] = useState("");
  const [open, setOpen] = useState("");
  const revision = session.revision.value;
  const count = source === "page" ? trafficCount.value : 0;

  useEffect(() => {
    let isCurrent = true;
    const load = async () => {
      let after = Number(events[events.length - 1]?.key.slice(1) ?? 0);
      /** @type {Entry[]} */
      const list = [...events];
      try {
        for (;;) {
          const answer = await get(sessionPath(id, "events"), { after });
          for (const event of answer.events) list.push({ key: `e${event.seq}`, version: 0, at: event.at ?? null, direction: "in", ...messageName(event.message), text: JSON.stringify(event.message) });
          const last = answer.events[answer.events.length - 1]?.seq;
          if (last === undefined || last >= answer.last || !isCurrent) break;
          after = last;
        }
        if (isCurrent) setEvents(list.slice(-MAX_EVENTS));
        if (isCurrent) setError("");
      } catch (failure) {
        if (isCurrent) setError(failure instanceof Error ? failure.message : String(failure));
      }
    };
    const timer = setTimeout(load, events.length === 0 ? 0 : 500);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [id, revision]);

  const own = source === "page" ? traffic().map((entry, index) => ({ key: `p${index}`, version: 0, at: entry.at, direction: entry.direction, ...nameOf(entry.text), text: entry.text })) : [];
  const all = source === "page" ? own : events;
  const wanted = query.trim().toLowerCase();
  const shown = wanted ? all.filter((entry) => entry.text.toLowerCase().includes(wanted)) : all;

  const row = (/** @type {Entry} */ entry) => html`<div class=${`wire-row ${entry.direction}`}>
    <button type="button" class="wire-line" aria-expanded=${open === entry.key} onClick=${() => setOpen(open === entry.key ? "" : entry.key)}>
      <span class="wire-at">${entry.at === null ? entry.key.slice(1) : clockTime(entry.at)}</span><span class="wire-direction">${entry.direction === "in" ? "←" : "→"}<span class="hidden">${entry.direction === "in" ? "received" : "sent"}</span></span>
      <span class="wire-name">${visible(entry.name)}</span><span class="muted wire-detail"><bdi>${visible(entry.detail)}</bdi></span><span class="muted wire-size">${entry.text.length.toLocaleString("en")}</span></button>
    ${open === entry.key && html`<pre class="output" tabindex="0" aria-label="Raw message">${pretty(entry.text)}</pre>`}
  </div>`;

  return html`<main class="page wire" id="main" tabindex="-1">
    <header class="view-head"><a class="quiet icon-button back" href="#/" aria-label="All sessions"><${Icon} name="back" /></a>
      <div class="view-title"><h1>Wire</h1><p class="muted">${shown.length.toLocaleString("en")} messages</p></div><${SessionTabs} id=${id} current="wire" /></header>
    <div class="toolbar pad" role="search">
      <label class="search"><${Icon} name="search" /><span class="hidden">Search messages</span><input type="search" id="search" placeholder="Search messages" value=${query} onInput=${(/** @type {any} */ event) => setQuery(event.target.value)} /></label>
      <div class="segmented" role="group" aria-label="Which messages"><button type="button" aria-pressed=${source === "session"} onClick=${() => setSource("session")}>Session</button><button type="button" aria-pressed=${source === "page"} onClick=${() => setSource("page")}>This page</button></div>
    </div>
    <${Problem} text=${error} isPadded />
    ${shown.length === 0 && !error && html`<${Empty} title="No messages" />`}
    <${VirtualList} id=${`${id}-${source}`} items=${shown} revision=${revision + count} busy=${false} label="Messages" row=${row} />
  </main>`;
}

/** @param {string} text */
function nameOf(text) {
  try {
    return messageName(JSON.parse(text));
  } catch {
    return { name: "not JSON", detail: "" };
  }
}

/** @param {string} text */
function pretty(text) {
  let result = text;
  try {
    result = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // It is shown as it came.
  }
  return visible(result.length > MAX_SHOWN ? `${result.slice(0, MAX_SHOWN)}\n… ${result.length - MAX_SHOWN} characters more` : result);
}
