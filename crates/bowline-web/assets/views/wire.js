// The wire: a session's messages in order, and the page's own traffic, with the raw JSON of each.
//
// The server keeps what it sends to a session's clients and what they send to the agent, numbered and with times. It leaves
// out what clients answer about their files and terminals, and what may be secret.

import { html, useEffect, useRef, useState } from "../lib.js";
import { get, sessionPath } from "../api.js";
import { openSession, traffic, trafficCount } from "../client.js";
import { dateTime, visible } from "../format.js";
import { Icon } from "../icons.js";
import { Empty, Problem } from "../ui.js";
import { VirtualList } from "../virtual-list.js";
import { SessionTabs } from "./conversation.js";

/** @typedef {{key: string, version: number, number: number, at: number|null, direction: "in"|"out", name: string, detail: string, text: string, client?: string, missing?: string}} Entry */
/** @typedef {{seq: number, at: number|null, kind: string, client?: string, message: any}} StoredEvent */

/** The longest message that is shown whole, in characters. */
const MAX_SHOWN = 50_000;

/** The most events of the server that are kept; the oldest are dropped. */
const MAX_EVENTS = 20_000;

/** The least time between two requests for later events, in milliseconds. */
const MIN_INTERVAL = 500;

/** Returns what a message is called: its method, or what it answers. @param {any} message @param {string} [method] of the request that it answers */
export function messageName(message, method = "") {
  if (typeof message !== "object" || message === null) return { name: "no message", detail: "" };
  const update = message.params?.update?.sessionUpdate;
  if (message.method) return { name: String(message.method), detail: update ? String(update) : message.id !== undefined ? `request ${message.id}` : message.method === "$/cancel_request" ? `request ${message.params?.requestId}` : "" };
  const request = `${method ? `${method}, ` : ""}request ${message.id}`;
  if (message.error) return { name: "error", detail: `${request}: ${message.error.message ?? ""}` };
  return { name: "result", detail: message.result?.stopReason ? `${request}: ${message.result.stopReason}` : request };
}

/**
 * Returns a row for an event of the server. `methods` has those of the requests so far, which say what is answered.
 * @param {StoredEvent} event @param {Map<string, string>} methods @returns {Entry}
 */
export function eventEntry({ seq, at, kind, client, message }, methods) {
  const isSent = kind === "message" || kind === "answer";
  // Clients number their requests themselves; a question has an id of its own.
  const request = `${kind === "question" || kind === "answer" ? "" : client} ${message?.id}`;
  if (message?.method && message.id !== undefined) methods.set(request, message.method);
  const named = kind === "request" ? { name: "request to one client", detail: "not kept" } : messageName(message, methods.get(request));
  const missing = kind === "request" ? "Requests for one client's files and terminals are not kept."
    : kind === "message" && !message.params ? "Its parameters are not kept: they are long, or may be secret."
    : kind === "answer" && message.result?.action ? "What was filled in is not kept."
    : "";
  return { key: `e${seq}`, version: 0, number: seq, at, direction: isSent ? "out" : "in", ...named, text: kind === "request" ? "" : JSON.stringify(message), client, missing };
}

/** Returns rows for the page's own messages. @param {import("../acp.js").Traffic[]} traffic @returns {Entry[]} */
export function trafficEntries(traffic) {
  // Both sides number their requests from the same number on.
  const methods = { in: new Map(), out: new Map() };
  return traffic.map(({ number, at, direction, text }) => {
    let named = { name: "not JSON", detail: "" };
    try {
      const message = JSON.parse(text);
      if (message?.method && message.id !== undefined) methods[direction].set(message.id, message.method);
      named = messageName(message, methods[direction === "in" ? "out" : "in"].get(message?.id));
    } catch {
      // It is shown as it came.
    }
    return { key: `p${number}`, version: 0, number, at, direction, ...named, text };
  });
}

/**
 * Reads a session's events, and later ones when it is told that there are some: at once, or as soon as the last request
 * is long enough ago.
 */
class EventReader {
  /** @param {string} id @param {(entries: Entry[]) => void} onEntries @param {(error: string) => void} onError */
  constructor(id, onEntries, onError) {
    this.id = id;
    this.onEntries = onEntries;
    this.onError = onError;
    /** @type {Entry[]} */
    this.entries = [];
    /** @type {Map<string, string>} */
    this.methods = new Map();
    this.after = 0;
    this.isReading = false;
    this.isStopped = false;
    /** @type {ReturnType<typeof setTimeout>|undefined} */
    this.timer = undefined;
    this.last = -Infinity;
  }

  wake() {
    if (this.timer !== undefined || this.isStopped) return;
    const pause = this.isReading ? MIN_INTERVAL : Math.max(0, this.last + MIN_INTERVAL - performance.now());
    this.timer = setTimeout(() => {
      this.timer = undefined;
      if (this.isReading) this.wake();
      else void this.read();
    }, pause);
  }

  stop() {
    this.isStopped = true;
    clearTimeout(this.timer);
  }

  async read() {
    this.isReading = true;
    this.last = performance.now();
    try {
      for (;;) {
        const { events, last } = await get(sessionPath(this.id, "events"), { after: this.after });
        if (this.isStopped || last <= this.after) break;
        this.after = last;
        this.entries = [...this.entries, ...events.map((/** @type {StoredEvent} */ event) => eventEntry(event, this.methods))].slice(-MAX_EVENTS);
        this.onEntries(this.entries);
      }
      this.onError("");
    } catch (failure) {
      if (!this.isStopped) this.onError(failure instanceof Error ? failure.message : String(failure));
    }
    this.isReading = false;
  }
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

  const reader = useRef(/** @type {EventReader|null} */ (null));
  useEffect(() => {
    const started = new EventReader(id, setEvents, setError);
    reader.current = started;
    return () => started.stop();
  }, [id]);
  // The answer to a prompt comes after the last update.
  useEffect(() => reader.current?.wake(), [id, revision, session.isBusy.value]);

  const all = source === "page" ? trafficEntries(traffic()) : events;
  const wanted = query.trim().toLowerCase();
  const shown = wanted ? all.filter((entry) => entry.text.toLowerCase().includes(wanted)) : all;

  const row = (/** @type {Entry} */ entry) => html`<div class=${`wire-row ${entry.direction}`}>
    <button type="button" class="wire-line" aria-expanded=${open === entry.key} onClick=${() => setOpen(open === entry.key ? "" : entry.key)}>
      <span class="wire-number muted">${entry.number}</span><span class="wire-at muted">${entry.at === null ? "" : dateTime(entry.at).split(" ")[1]}</span><span class="wire-direction">${entry.direction === "in" ? "←" : "→"}<span class="hidden">${entry.direction === "in" ? "received" : "sent"}</span></span>
      <span class="wire-name">${visible(entry.name)}</span><span class="muted wire-detail"><bdi>${visible(entry.detail)}</bdi></span><span class="muted wire-size">${entry.text.length.toLocaleString("en")}</span></button>
    ${open === entry.key && html`<p class="muted wire-facts">${[entry.at !== null && dateTime(entry.at), entry.client && `${entry.direction === "out" ? "from" : "to"} client ${entry.client}`, entry.missing].filter(Boolean).join(" · ")}</p>
      ${entry.text && html`<pre class="output" tabindex="0" role="group" aria-label="Raw message">${pretty(entry.text)}</pre>`}`}
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
function pretty(text) {
  let result = text;
  try {
    result = JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    // It is shown as it came.
  }
  return visible(result.length > MAX_SHOWN ? `${result.slice(0, MAX_SHOWN)}\n… ${result.length - MAX_SHOWN} characters more` : result);
}
