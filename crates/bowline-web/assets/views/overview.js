// The sessions of the server, grouped by workspace.

import { html, useRef, useState } from "../lib.js";
import { post, sessionPath } from "../api.js";
import { deleteSession, me } from "../client.js";
import { Icon } from "../icons.js";
import { filter, listed, loadMore, nextPage, overviewError, refreshOverview, sessions, setFilter } from "../overview-store.js";
import { routeHash } from "../router.js";
import { Age, confirmAction, Empty, Meter, Problem, reportError, StateBadge, toast } from "../ui.js";
import { baseName, plural, usageText, visible } from "../format.js";
import { showNewSession } from "./new-session.js";

/** @typedef {import("../types.js").SessionSummary} SessionSummary */

/** Returns the sessions by workspace: the workspace with a waiting session first, then the one used last. @param {SessionSummary[]} list */
export function groupByWorkspace(list) {
  /** @type {Map<string, SessionSummary[]>} */
  const groups = new Map();
  for (const session of list) {
    const key = session.workspace || session.cwd;
    groups.set(key, [...(groups.get(key) ?? []), session]);
  }
  const rank = (/** @type {SessionSummary[]} */ group) => Math.max(...group.map((session) => session.updatedAt + (session.state === "waiting" ? 1e15 : 0)));
  return [...groups].map(([workspace, group]) => ({ workspace, sessions: group.sort(compareSessions) }))
    .sort((a, b) => rank(b.sessions) - rank(a.sessions));
}

/** @param {SessionSummary} a @param {SessionSummary} b */
function compareSessions(a, b) {
  const waits = (/** @type {SessionSummary} */ session) => Number(session.state === "waiting");
  return waits(b) - waits(a) || b.updatedAt - a.updatedAt;
}

/** @param {SessionSummary} session */
async function archive(session) {
  try {
    await post(sessionPath(session.id, "archive"), { archived: !session.archived });
    toast(session.archived ? "Session restored" : "Session archived");
    refreshOverview();
  } catch (error) {
    reportError(error);
  }
}

/** @param {SessionSummary} session */
async function remove(session) {
  const yes = await confirmAction({
    title: "Delete this session?",
    text: `“${visible(session.title || "Untitled session")}” and its conversation are removed from the server. Files of the project stay as they are.`,
    verb: "Delete",
  });
  if (!yes) return;
  try {
    await deleteSession(session.id);
    toast("Session deleted");
    if (location.hash.startsWith(routeHash({ view: "session", id: session.id }))) location.hash = "#/";
  } catch (error) {
    reportError(error);
  }
}

export function Overview() {
  const list = listed.value;
  const waiting = list?.filter((session) => session.state === "waiting").length ?? 0;
  const working = list?.filter((session) => session.state === "working").length ?? 0;
  const canWrite = me.value?.role !== "observer";
  return html`<main class="page overview" id="main" tabindex="-1">
    <header class="page-head">
      <div><h1>Sessions</h1><p class="muted">${list ? describe(list.length, waiting, working) : "Loading…"}</p></div>
      ${canWrite && html`<button type="button" class="primary" onClick=${() => showNewSession()}><${Icon} name="plus" /> New session</button>`}
    </header>
    <${Toolbar} />
    <${Problem} text=${overviewError.value} />
    ${list?.length === 0 && html`<${Empty} title=${filter.value.query ? "No session matches" : filter.value.archived ? "Nothing is archived" : "No sessions yet"}>
      <p class="muted">${filter.value.query ? "Titles, directories and agents are searched." : filter.value.archived ? "Archived sessions are kept here, out of the list of current ones." : "A session is a conversation with the agent in one directory."}</p>
    <//>`}
    ${groupByWorkspace(list ?? []).map(({ workspace, sessions: group }) => html`<section key=${workspace} class="workspace" aria-label=${`Workspace ${baseName(workspace)}`}>
      <header><h2>${baseName(workspace)}</h2><span class="muted path" title=${workspace}>${workspace}</span></header>
      <ul class="session-list">${group.map((session) => html`<${SessionRow} key=${session.id} session=${session} canWrite=${canWrite} />`)}</ul>
    </section>`)}
    ${nextPage.value !== null && html`<button type="button" class="wide-button" onClick=${loadMore}>Show more</button>`}
  </main>`;
}

/** @param {number} count @param {number} waiting @param {number} working */
function describe(count, waiting, working) {
  const parts = [plural(count, "session")];
  if (waiting > 0) parts.push(`${waiting} waiting for you`);
  if (working > 0) parts.push(`${working} working`);
  return parts.join(" · ");
}

function Toolbar() {
  const [text, setText] = useState(filter.value.query);
  const timer = useRef(/** @type {ReturnType<typeof setTimeout>|undefined} */ (undefined));
  const onInput = (/** @type {any} */ event) => {
    const query = event.target.value;
    setText(query);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setFilter({ query }), 150);
  };
  return html`<div class="toolbar" role="search">
    <label class="search"><${Icon} name="search" /><span class="hidden">Search sessions</span>
      <input type="search" id="search" placeholder="Search sessions" value=${text} onInput=${onInput} /></label>
    <div class="segmented" role="group" aria-label="Which sessions">
      <button type="button" aria-pressed=${!filter.value.archived} onClick=${() => setFilter({ archived: false })}>Current</button>
      <button type="button" aria-pressed=${filter.value.archived} onClick=${() => setFilter({ archived: true })}>Archived</button>
    </div>
  </div>`;
}

/** @param {{session: SessionSummary, canWrite: boolean}} props */
function SessionRow({ session, canWrite }) {
  const title = visible(session.title || "Untitled session");
  return html`<li class=${`session-row is-${session.state}`}>
    <a class="session-link" href=${routeHash({ view: "session", id: session.id })}>
      <span class="session-main"><span class="session-title"><bdi>${title}</bdi></span>
        <span class="session-sub"><${StateBadge} state=${session.state} />${session.state === "waiting" && session.waitingFor && html`<span class="waiting-for"><bdi>${visible(session.waitingFor)}</bdi></span>`}</span></span>
      <span class="session-facts">
        ${session.changedFiles ? html`<span class="fact"><${Icon} name="diff" />${plural(session.changedFiles, "file")}</span>` : null}
        ${session.usage && html`<span class="fact" title=${`${session.usage.used.toLocaleString("en")} of ${session.usage.size.toLocaleString("en")} tokens`}><${Meter} ...${session.usage} />${usageText(session.usage)}</span>`}
        ${session.agent && html`<span class="fact" title="Agent">${visible(session.agent)}</span>`}
        ${me.value?.name !== session.principal && html`<span class="fact">${session.principal}</span>`}
        <span class="fact age"><${Age} at=${session.updatedAt} /></span>
      </span>
    </a>
    ${canWrite && html`<span class="row-actions">
      <button type="button" class="quiet icon-button" aria-label=${`${session.archived ? "Restore" : "Archive"} ${title}`} title=${session.archived ? "Restore" : "Archive"} onClick=${() => archive(session)}><${Icon} name="archive" /></button>
      <button type="button" class="quiet icon-button" aria-label=${`Delete ${title}`} title="Delete" onClick=${() => remove(session)}><${Icon} name="trash" /></button>
    </span>`}
  </li>`;
}

/** The sessions beside an open one. @param {{current: string}} props */
export function Sidebar({ current }) {
  return html`<nav class="sidebar" aria-label="Sessions">
    <div class="sidebar-head"><a href="#/" class="sidebar-title">Sessions</a>
      ${me.value?.role !== "observer" && html`<button type="button" class="quiet icon-button" aria-label="New session" title="New session (c)" onClick=${() => showNewSession()}><${Icon} name="plus" /></button>`}</div>
    <div class="sidebar-list">
    ${groupByWorkspace(sessions.value ?? []).map(({ workspace, sessions: group }) => html`<section key=${workspace} aria-label=${baseName(workspace)}>
      <h2 title=${workspace}>${baseName(workspace)}</h2>
      <ul>${group.map((session) => html`<li key=${session.id}><a href=${routeHash({ view: "session", id: session.id })} aria-current=${session.id === current ? "page" : undefined}>
        <${StateBadge} state=${session.state} compact />
        <span class="sidebar-session"><bdi>${visible(session.title || "Untitled session")}</bdi></span>
        <span class="sidebar-age"><${Age} at=${session.updatedAt} /></span></a></li>`)}</ul>
    </section>`)}
    </div>
  </nav>`;
}

