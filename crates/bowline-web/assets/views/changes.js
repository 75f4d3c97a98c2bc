// What changed in a session: by turn, file and hunk, each with undo and redo.

import { html, useEffect, useRef, useState } from "../lib.js";
import { get, post, sessionPath } from "../api.js";
import { me, openSession } from "../client.js";
import { DiffToolbar, HunkView, Omitted, TextDiffs } from "../diff.js";
import { clockTime, plural, relativePath, visible } from "../format.js";
import { Icon } from "../icons.js";
import { onSessionChange } from "../overview-store.js";
import { ignoreWhitespace } from "../preferences.js";
import { confirmAction, Empty, Problem, reportError, toast } from "../ui.js";
import { SessionTabs } from "./conversation.js";

/** @typedef {import("../types.js").ChangedFile} ChangedFile */
/** @typedef {import("../types.js").ChangedTurn} ChangedTurn */
/** @typedef {import("../types.js").Conflict} Conflict */
/** @typedef {"undo"|"redo"} Action */
/** @typedef {(action: Action, target: Record<string, unknown>, path: string) => void} Act */

/** @type {Record<string, string>} */
const AUTHORS = { agent: "Agent", command: "Command", user: "You", disk: "Found on disk" };

/** @param {{id: string}} props */
export function Changes({ id }) {
  const session = openSession(id);
  const [data, setData] = useState(/** @type {{turns: ChangedTurn[], foundOnDisk: ChangedFile[], omitted?: number}|null} */ (null));
  const [error, setError] = useState("");
  const [refused, setRefused] = useState(/** @type {{action: Action, target: Record<string, unknown>, conflicts: Conflict[]}|null} */ (null));
  const root = session.cwd.value;
  const ignore = ignoreWhitespace.value;
  const loads = useRef({ isRunning: false, isStale: false });
  const load = async () => {
    const { current: state } = loads;
    state.isStale = true;
    if (state.isRunning) return;
    state.isRunning = true;
    while (state.isStale) {
      state.isStale = false;
      await get(sessionPath(id, "changes"), { ignoreWhitespace: ignoreWhitespace.peek() }).then((answer) => { setData(answer); setError(""); }, (failure) => setError(failure.message));
    }
    state.isRunning = false;
  };
  // A turn that ends has made its changes; an undo in another tab changes no time.
  const updated = session.summary.value?.updatedAt;
  const isBusy = session.isBusy.value;
  useEffect(() => void load(), [updated, isBusy, ignore]);
  useEffect(() => onSessionChange((changed) => {
    if (changed === null || changed === id) void load();
  }), []);

  const act = async (/** @type {Action} */ action, /** @type {Record<string, unknown>} */ target) => {
    try {
      const { changed, conflicts } = await post(sessionPath(id, action), target);
      setRefused(conflicts.length > 0 ? { action, target, conflicts } : null);
      if (changed.length > 0) toast(`${action === "undo" ? "Undone" : "Redone"}: ${plural(changed.length, "file")}`);
    } catch (failure) {
      reportError(failure);
    }
    await load();
  };
  const allowed = me.value?.role === "observer" ? null : act;
  const turns = data?.turns ?? [];
  const count = new Set(turns.flatMap((turn) => turn.files.map((file) => file.path))).size;
  const isAllUndone = turns.every((turn) => turn.files.every((file) => file.undone));
  const actOnAll = async () => {
    if (isAllUndone) return act("redo", {});
    const isSure = await confirmAction({ title: "Undo all changes of this session?", text: `${plural(count, "file")} in ${plural(turns.length, "turn")}. They can be redone.`, verb: "Undo all" });
    if (isSure) await act("undo", {});
  };
  const actOnFound = allowed && (async (/** @type {Action} */ action, /** @type {Record<string, unknown>} */ target, /** @type {string} */ path) => {
    const isSure = action === "redo" || await confirmAction({
      title: `Undo the change of ${visible(path)}?`,
      text: "No agent is known to have made this change. It may be your own work.",
      verb: "Undo",
    });
    if (isSure) await act(action, target);
  });

  return html`<main class="page changes" id="main" tabindex="-1">
    <header class="view-head">
      <a class="quiet icon-button back" href="#/" aria-label="All sessions"><${Icon} name="back" /></a>
      <div class="view-title"><h1>Changes</h1><p class="muted">${data ? `${plural(count, "file")} in ${plural(turns.length, "turn")}` : "Loading…"}</p></div>
      <${SessionTabs} id=${id} current="changes" />
    </header>
    <div class="page-body">
      <div class="toolbar"><${DiffToolbar} /><span class="spacer"></span>
        ${allowed && turns.length > 0 && html`<button type="button" onClick=${actOnAll}><${Icon} name=${isAllUndone ? "redo" : "undo"} /> ${isAllUndone ? "Redo all" : "Undo all"}</button>`}
        <a class="button" href=${sessionPath(id, "patch")} download><${Icon} name="download" /> Download patch</a></div>
      <${Problem} text=${error} />
      ${refused && html`<${Refused} ...${refused} root=${root} act=${act} onClose=${() => setRefused(null)} />`}
      ${data && turns.length === 0 && data.foundOnDisk.length === 0 && html`<${Empty} title="Nothing has changed yet"><p class="muted">Files that the agent writes appear here, turn by turn.</p><//>`}
      ${turns.map((turn) => html`<${Turn} key=${turn.id} turn=${turn} root=${root} act=${allowed} />`)}
      ${data && data.foundOnDisk.length > 0 && html`<section class="turn found" aria-label="Found on disk">
        <header><h2>Found on disk</h2><p class="muted">Changed by other programs while the session was open. They are not the agent's writes.</p></header>
        ${data.foundOnDisk.map((file) => html`<${ChangedFileView} key=${file.changeId} file=${file} root=${root} act=${actOnFound} />`)}
      </section>`}
      ${data?.omitted ? html`<p class="muted center">${plural(data.omitted, "older change")} left out.</p>` : null}
    </div>
  </main>`;
}

/** @param {{turn: ChangedTurn, root: string, act: Act|null}} props */
function Turn({ turn, root, act }) {
  const isUndone = turn.files.length > 0 && turn.files.every((file) => file.undone);
  const action = isUndone ? "redo" : "undo";
  const label = visible(turn.label || (turn.id === 0 ? "Outside of turns" : `Turn ${turn.id}`));
  return html`<section class=${isUndone ? "turn undone" : "turn"} aria-label=${`Turn: ${label}`}>
    <header><div><h2><bdi>${label}</bdi></h2><p class="muted">${AUTHORS[turn.by] ?? turn.by} · ${clockTime(turn.at)} · ${plural(turn.files.length, "change")}</p></div>
      ${act && html`<button type="button" onClick=${() => act(action, { turn: turn.id }, "")}><${Icon} name=${action} /> ${isUndone ? "Redo turn" : "Undo turn"}</button>`}</header>
    ${turn.files.map((file) => html`<${ChangedFileView} key=${file.changeId} file=${file} root=${root} act=${act} />`)}
  </section>`;
}

/** @param {{file: ChangedFile, root: string, act: Act|null}} props */
function ChangedFileView({ file, root, act }) {
  const [isOpen, setOpen] = useState(true);
  const action = file.undone ? "redo" : "undo";
  const path = relativePath(file.path, root);
  const isDivisible = file.hunks.length > 1 && act !== null;
  return html`<section class=${file.undone ? "file-diff undone" : "file-diff"} aria-label=${path}>
    <header><button type="button" class="quiet file-toggle" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}><span class="tool-chevron"><${Icon} name="chevron" /></span><span class="path" title=${file.path}><bdi>${visible(path)}</bdi></span></button>
      ${file.change !== "modified" && html`<span class="tag">${file.change}</span>`}${file.undone && html`<span class="tag">undone</span>`}
      ${file.by === "command" && html`<span class="tag" title=${file.command ? visible(file.command) : undefined}>by a command</span>`}
      <span class="counts"><span class="added">+${file.added}</span> <span class="removed">−${file.removed}</span></span>
      ${act && !file.pruned && html`<button type="button" class="small" onClick=${() => act(action, { change: file.changeId }, path)} aria-label=${`${file.undone ? "Redo" : "Undo"} ${path}`}><${Icon} name=${action} /> ${file.undone ? "Redo" : "Undo"}</button>`}</header>
    ${isOpen && html`
      ${file.binary && html`<p class="muted pad">A binary file: its content is not shown.</p>`}
      ${file.pruned && html`<p class="muted pad">The earlier text is no longer kept, so this cannot be undone.</p>`}
      ${file.hunks.map((hunk, index) => html`<${HunkView} key=${hunk.id ?? index} hunk=${hunk} actions=${isDivisible && hunk.id && html`<${HunkAction} file=${file} hunk=${hunk} act=${act} path=${path} />`} />`)}
      <${Omitted} file=${file} />`}
  </section>`;
}

/** @param {{file: ChangedFile, hunk: import("../types.js").Hunk, act: Act, path: string}} props */
function HunkAction({ hunk, act, path }) {
  const action = hunk.undone ? "redo" : "undo";
  const name = hunk.undone ? "Redo hunk" : "Undo hunk";
  return html`<button type="button" class="quiet small" onClick=${() => act(action, { hunk: hunk.id }, path)} aria-label=${`${name} at line ${hunk.newStart} of ${path}`}>${name}</button>`;
}

/** Conflicts of an action that was refused, with both sides. @param {{action: Action, target: Record<string, unknown>, conflicts: Conflict[], root: string, act: (action: Action, target: Record<string, unknown>) => void, onClose: () => void}} props */
function Refused({ action, target, conflicts, root, act, onClose }) {
  const paths = [...new Set(conflicts.map(({ path }) => path))];
  const replace = async () => {
    const names = paths.map((path) => visible(relativePath(path, root)));
    const isSure = await confirmAction({
      title: `Replace ${names.length === 1 ? names[0] : plural(names.length, "file")}?`,
      text: `What was changed since is lost where it conflicts: ${names.join(", ")}.`,
      verb: "Replace",
    });
    if (isSure) act(action, { ...target, conflicts: "force" });
  };
  return html`<section class="conflict" role="alert" aria-label="Conflicts">
    <header><h2><${Icon} name="warning" /> Nothing was changed: ${plural(paths.length, "file")} changed since</h2><button type="button" class="quiet icon-button" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button></header>
    ${conflicts.map((conflict, index) => html`<${ConflictView} key=${index} conflict=${conflict} root=${root} action=${action} />`)}
    <footer><button type="button" onClick=${() => act(action, { ...target, conflicts: "markers" })}>Write both sides with markers</button>
      <button type="button" onClick=${replace}>Replace what is there now</button></footer>
  </section>`;
}

/** @param {{conflict: Conflict, root: string, action: Action}} props */
function ConflictView({ conflict, root, action }) {
  const path = relativePath(conflict.path, root);
  const { ours, theirs } = conflict;
  const hasSides = typeof ours === "string" || typeof theirs === "string";
  return html`<div class="conflict-file"><p><span class="path"><bdi>${visible(path)}</bdi></span>${conflict.line ? `, line ${conflict.line}` : ""}: ${visible(conflict.reason)}</p>
    ${hasSides && html`<div class="sides"><div><h3>Now</h3><pre class="output" tabindex="0" role="group" aria-label=${`${path} now`}>${visible(ours ?? "(no such file)")}</pre></div>
      <div><h3>After the ${action}</h3><pre class="output" tabindex="0" role="group" aria-label=${`${path} after the ${action}`}>${visible(theirs ?? "(no such file)")}</pre></div></div>
      <${TextDiffs} files=${[{ path: conflict.path, old: ours ?? null, new: theirs ?? null }]} root=${root} />`}</div>`;
}
