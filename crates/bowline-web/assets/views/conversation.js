// The conversation of a session, its open questions, and the prompt.

import { Component, html, useLayoutEffect, useMemo, useState } from "../lib.js";
import { connectionState, me, openSession } from "../client.js";
import { compact, costText, firstLine, plural, visible } from "../format.js";
import { Icon } from "../icons.js";
import { addKeys } from "../keyboard.js";
import { Markdown } from "../markdown.js";
import { routeHash } from "../router.js";
import { messageText } from "../store.js";
import { Boundary, Empty, Meter, Problem, StateBadge } from "../ui.js";
import { VirtualList } from "../virtual-list.js";
import { Approval } from "./approval.js";
import { Composer } from "./composer.js";
import { Elicitation } from "./elicitation.js";
import { Find } from "./find.js";
import { Picture, ToolCallView } from "./tool-call.js";

/** @typedef {import("../types.js").Item} Item */
/** @typedef {import("../types.js").MessageItem} MessageItem */

/** Which items the user opened or closed, by session and item. @type {Map<string, boolean>} */
const opened = new Map();

/** @param {{id: string}} props */
export function Conversation({ id }) {
  const session = useMemo(() => openSession(id), [id]);
  const revision = session.revision.value;
  const [, redraw] = useState(0);
  const [isFinding, setFinding] = useState(false);
  const [target, setTarget] = useState(/** @type {{key: string}|null} */ (null));
  const { state } = session;
  const canWrite = me.value?.role !== "observer";
  const questions = session.allQuestions.value;
  const [question] = questions;
  const isBusy = session.isBusy.value;
  const root = session.cwd.value;

  useLayoutEffect(() => {
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      if ((event.ctrlKey || event.metaKey) && event.key === "f" && !document.getElementById("find") && !document.querySelector("dialog[open]")) {
        // The same keys again open the browser's own.
        event.preventDefault();
        setFinding(true);
      }
      if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
      // While a question is open, Escape only leaves the prompt, so that the keys of the answers work.
      if (session.allQuestions.value.length > 0) /** @type {HTMLElement|null} */ (document.activeElement)?.blur();
      else if (session.isBusy.value) session.cancel();
    };
    document.addEventListener("keydown", onKey);
    const endKeys = addKeys((key) => {
      if (key !== "f") return false;
      setFinding(true);
      document.getElementById("find")?.focus();
      return true;
    });
    return () => {
      document.removeEventListener("keydown", onKey);
      endKeys();
    };
  }, [session]);

  const show = (/** @type {string} */ key) => {
    // What a thought says is folded away.
    if (state.items.find((item) => item.key === key)?.kind === "thought") opened.set(`${id}/${key}`, true);
    setTarget({ key });
  };

  const row = (/** @type {Item} */ item, /** @type {number} */ index) => {
    const name = `${id}/${item.key}`;
    const isOpen = opened.get(name) ?? false;
    const toggle = () => {
      opened.set(name, !isOpen);
      redraw((count) => count + 1);
    };
    return html`<${Row} item=${item} version=${item.version} isOpen=${isOpen} onToggle=${toggle} root=${root}
      position=${index + 1} size=${state.items.length} isLast=${index === state.items.length - 1 && isBusy} />`;
  };

  // Where the question takes the place of the prompt, it has the prompt's button.
  const cancel = canWrite && isBusy && html`<button type="button" class="stop question-stop" aria-label="Cancel the turn" title="Cancel the turn" onClick=${() => session.cancel()}><${Icon} name="stop" /></button>`;

  return html`<main class="conversation" id="main" tabindex="-1">
    <${Head} session=${session} onFind=${() => setFinding(true)} />
    ${isFinding && html`<${Find} items=${state.items} revision=${revision} onShow=${show} onClose=${() => setFinding(false)} />`}
    ${session.status.value === "failed" && html`<${Empty} title="This session cannot be opened"><${Problem} text=${session.error.value} /><p class="choices"><button type="button" onClick=${() => void session.load()}>Try again</button><a href="#/">All sessions</a></p><//>`}
    ${session.status.value === "loading" && state.items.length === 0 && html`<p class="muted loading pad">Loading…</p>`}
    ${session.status.value === "ready" && state.items.length === 0 && html`<${Empty} title="What should the agent do?"><p class="muted">It works in <span class="path">${root}</span>. Every change can be undone.</p><//>`}
    <${VirtualList} id=${id} items=${state.items} revision=${revision} busy=${isBusy} label="Conversation" isFeed follows=${session.ownTurn.value} target=${target} row=${row}
      header=${state.dropped > 0 && html`<p class="muted center">${plural(state.dropped, "earlier entry", "earlier entries")} left out</p>`}
      footer=${html`<${Progress} isWorking=${isBusy && questions.length === 0} />`} />
    <div class="bottom">
      ${state.plan.length > 0 && html`<${Plan} entries=${state.plan} />`}
      ${question && html`<${Boundary} of=${question.id}>${question.method === "session/request_permission"
        ? html`<${Approval} key=${question.id} question=${question} count=${questions.length} root=${root} canAnswer=${canWrite} call=${state.tools.get(question.params.toolCall?.toolCallId)?.call ?? null} cancel=${cancel} />`
        : html`<${Elicitation} key=${question.id} question=${question} canAnswer=${canWrite} cancel=${cancel} />`}<//>`}
      ${session.status.value !== "failed" && html`<${Composer} key=${id} session=${session} revision=${revision} canWrite=${canWrite} />`}
    </div>
  </main>`;
}

/** @param {{session: import("../client.js").LiveSession, onFind: () => void}} props */
function Head({ session, onFind }) {
  const summary = session.summary.value;
  const { usage } = session.state;
  const view = location.hash.split("/")[3] ?? "session";
  const state = session.allQuestions.value.length > 0 ? "waiting" : session.isBusy.value ? "working" : summary?.state ?? "idle";
  return html`<header class="view-head">
    <a class="quiet icon-button back" href="#/" aria-label="All sessions"><${Icon} name="back" /></a>
    <div class="view-title"><h1><bdi>${visible(session.state.title || summary?.title || firstPrompt(session.state) || "Untitled session")}</bdi></h1>
      <p class="muted">${session.status.value !== "failed" && html`<${StateBadge} state=${state} />`}<span class="path" title=${session.cwd.value}>${session.cwd.value}</span>${session.state.agent && html`<span class="agent-name">${visible(session.state.agent.info?.title ?? session.state.agent.name)}</span>`}</p></div>
    ${usage && html`<span class="usage" title=${`${usage.used.toLocaleString("en")} of ${usage.size.toLocaleString("en")} tokens`}><${Meter} ...${usage} /><span>${compact(usage.used)} / ${compact(usage.size)}</span>${usage.cost && html`<span>${costText(usage.cost)}</span>`}</span>`}
    <button type="button" class="quiet icon-button find-open" aria-label="Find in the conversation" title="Find in the conversation (f)" onClick=${onFind}><${Icon} name="search" /></button>
    <${SessionTabs} id=${session.id} current=${view} />
  </header>`;
}

/** Returns what a session is called before the server has a title for it. @param {import("../store.js").SessionState} state */
function firstPrompt(state) {
  const item = state.items.find(({ kind }) => kind === "user");
  return item ? firstLine(messageText(item), 80) : "";
}

/** @param {{id: string, current: string}} props */
export function SessionTabs({ id, current }) {
  const tabs = /** @type {const} */ ([["session", "Chat"], ["changes", "Changes"], ["wire", "Wire"]]);
  return html`<nav class="tabs" aria-label="Session views">${tabs.map(([view, name]) => html`<a href=${routeHash({ view, id })} aria-current=${view === current ? "page" : undefined}>${name}</a>`)}</nav>`;
}

/** @param {{isWorking: boolean}} props */
function Progress({ isWorking }) {
  return html`<p class="progress" role="status">${isWorking && connectionState.value === "open" && html`<span class="pulse" aria-hidden="true"></span>Working`}</p>`;
}

/** @param {{entries: import("../types.js").PlanEntry[]}} props */
function Plan({ entries }) {
  const [isOpen, setOpen] = useState(false);
  const done = entries.filter(({ status }) => status === "completed").length;
  const current = entries.find(({ status }) => status === "in_progress") ?? entries.find(({ status }) => status === "pending");
  return html`<section class="plan" aria-label="Plan">
    <button type="button" class="plan-line" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}><span class="tool-chevron"><${Icon} name="chevron" /></span>
      <strong>Plan</strong><span class="muted">${done} of ${entries.length}</span>${!isOpen && current && html`<span class="plan-current"><bdi>${visible(current.content)}</bdi></span>`}</button>
    ${isOpen && html`<ol>${entries.map((entry) => html`<li class=${`plan-${entry.status}`}><span class="plan-mark" aria-hidden="true">${entry.status === "completed" && html`<${Icon} name="check" />`}</span>
      <span><bdi>${visible(entry.content)}</bdi><span class="hidden">, ${entry.status.replace("_", " ")}</span></span></li>`)}</ol>`}
  </section>`;
}

/**
 * An item, which is rendered again only if it changed.
 * @typedef {{item: Item, version: number, isOpen: boolean, onToggle: () => void, root: string, position: number, size: number, isLast: boolean}} RowProps
 * @extends {Component<RowProps>}
 */
class Row extends Component {
  /** @param {RowProps} next */
  shouldComponentUpdate(next) {
    const { item, version, isOpen, position, isLast, root } = this.props;
    return next.item !== item || next.version !== version || next.isOpen !== isOpen || next.position !== position || next.isLast !== isLast || next.root !== root;
  }

  render() {
    const { item, isOpen, onToggle, root, position, size, isLast } = this.props;
    return html`<article class=${`item item-${item.kind}`} aria-posinset=${position} aria-setsize=${size} aria-label=${LABELS[item.kind]} tabindex="-1">
      <${Boundary} of=${`${item.version} ${isOpen}`}>${item.kind === "tool" ? html`<${ToolCallView} item=${item} version=${item.version} root=${root} isOpen=${isOpen} onToggle=${() => this.props.onToggle()} />`
        : item.kind === "note" ? html`<${Note} item=${item} />`
        : item.kind === "thought" ? html`<${Thought} item=${item} version=${item.version} isOpen=${isOpen} onToggle=${onToggle} isLast=${isLast} />`
        : html`<${Message} item=${item} version=${item.version} />`}<//>
    </article>`;
  }
}

const LABELS = { user: "You", agent: "Agent", thought: "Thought", tool: "Tool call", note: "Note" };

/** @param {{item: MessageItem, version: number}} props */
function Message({ item }) {
  const isUser = item.kind === "user";
  return html`<div class=${isUser ? "bubble" : "prose"} dir="auto">
    ${item.parts.map((part) => {
      if (part.type === "image") return html`<${Picture} mimeType=${part.mimeType} data=${part.data} />`;
      if (part.type === "link") return html`<span class="resource"><${Icon} name="file" /> <bdi>${visible(part.name)}</bdi></span>`;
      return isUser ? html`<p class="plain">${visible(part.text)}</p>` : html`<${Markdown} part=${part} length=${part.text.length} />`;
    })}
  </div>`;
}

/** @param {{item: MessageItem, version: number, isOpen: boolean, onToggle: () => void, isLast: boolean}} props */
function Thought({ item, isOpen, onToggle, isLast }) {
  const text = messageText(item);
  const line = text.trim().split("\n", 1)[0]?.replace(/[*#`]/g, "") ?? "";
  return html`<div class="thought">
    <button type="button" class="thought-line" aria-expanded=${isOpen} onClick=${onToggle}><span class="tool-chevron"><${Icon} name="chevron" /></span><strong>${isLast ? "Thinking" : "Thought"}</strong>${!isOpen && html`<span class="thought-text"><bdi>${visible(line.slice(0, 200))}</bdi></span>`}</button>
    ${isOpen && html`<div class="thought-body">${item.parts.map((part) => part.type === "text" && html`<${Markdown} part=${part} length=${part.text.length} />`)}</div>`}
  </div>`;
}

/** @param {{item: import("../types.js").NoteItem}} props */
function Note({ item }) {
  return html`<div class=${`note note-${item.level}`} role=${item.level === "error" ? "alert" : undefined}>${item.level !== "info" && html`<${Icon} name="warning" />`}<div><p><bdi>${visible(item.text)}</bdi></p>${item.detail && html`<p class="muted plain">${visible(item.detail)}</p>`}</div></div>`;
}
