// What changed in a session: by turn, file and hunk, each with undo and redo.

import { html, useEffect, useState } from "../lib.js";
import { get, post, sessionPath } from "../api.js";
import { me, openSession } from "../client.js";
import { DiffToolbar, HunkView, TextDiffs } from "../diff.js";
import { clockTime, plural, relativePath, visible } from "../format.js";
import { Icon } from "../icons.js";
import { Empty, reportError, toast } from "../ui.js";
import { SessionTabs } from "./conversation.js";

/** @typedef {import("../types.js").ChangedFile} ChangedFile */
/** @typedef {import("../types.js").ChangedTurn} ChangedTurn */
/** @typedef {import("../types.js").Conflict} Conflict */

/** @type {Record<string, string>} */
const AUTHORS = { agent: "Agent", command: "Command", user: "You", disk: "On disk" };

/** @param {{id: string}} props */
export function Changes({ id }) {
  const session = openSession(id);
  const [data, setData] = useState(/** @type {{turns: ChangedTurn[], foundOnDisk: ChangedFile[]}|null} */ (null));
  const [error, setError] = useState("");
  const [conflicts, setConflicts] = useState(/** @type {Conflict[]} */ ([]));
  const root = session.cwd.value;
  const load = () => get(sessionPath(id, "changes")).then((answer) => { setData(answer); setError(""); }, (failure) => setError(failure.message));
  // A turn that ends has made its changes.
  const updated = session.summary.value?.updatedAt;
  const isBusy = session.isBusy.value;
  useEffect(() => void load(), [id, updated, isBusy]);

  const act = async (/** @type {"undo"|"redo"} */ action, /** @type {Record<string, unknown>} */ what) => {
    try {
      const answer = await post(sessionPath(id, action), what);
      setConflicts(answer.conflicts ?? []);
      if (answer.changed?.length > 0) toast(`${action === "undo" ? "Undone" : "Redone"}: ${plural(answer.changed.length, "file")}`);
      else if (!answer.conflicts?.length) toast(`Nothing to ${action}`);
    } catch (failure) {
      reportError(failure);
    }
    await load();
  };
  const canWrite = me.value?.role !== "observer";
  const count = new Set((data?.turns ?? []).flatMap((turn) => turn.files.map((file) => file.path))).size;

  return html`<main class="page changes" id="main" tabindex="-1">
    <header class="view-head">
      <a class="quiet icon-button back" href="#/" aria-label="All sessions"><${Icon} name="back" /></a>
      <div class="view-title"><h1>Changes</h1><p class="muted">${data ? `${plural(count, "file")} in ${plural(data.turns.length, "turn")}` : "Loading…"}</p></div>
      <${SessionTabs} id=${id} current="changes" />
    </header>
    <div class="page-body">
      <div class="toolbar"><${DiffToolbar} /><span class="spacer"></span><a class="button" href=${sessionPath(id, "patch")} download><${Icon} name="download" /> Download patch</a></div>
      ${error && html`<p class="problem" role="alert">${error}</p>`}
      ${conflicts.map((conflict) => html`<${ConflictView} key=${conflict.path} conflict=${conflict} root=${root} onClose=${() => setConflicts(conflicts.filter((other) => other !== conflict))} />`)}
      ${data && data.turns.length === 0 && data.foundOnDisk.length === 0 && html`<${Empty} title="Nothing has changed yet"><p class="muted">Files that the agent writes appear here, turn by turn.</p><//>`}
      ${[...(data?.turns ?? [])].reverse().map((turn) => html`<${Turn} key=${turn.id} turn=${turn} root=${root} act=${canWrite ? act : null} />`)}
      ${data && data.foundOnDisk.length > 0 && html`<section class="turn found" aria-label="Found on disk">
        <header><h2>Found on disk</h2><p class="muted">Changed by other programs while the session was open. They are not the agent's writes.</p></header>
        ${data.foundOnDisk.map((file, index) => html`<${ChangedFileView} key=${`${file.path}-${index}`} file=${file} root=${root} act=${null} turn=${null} />`)}
      </section>`}
    </div>
  </main>`;
}

/** @param {{turn: ChangedTurn, root: string, act: ((action: "undo"|"redo", what: Record<string, unknown>) => void)|null}} props */
function Turn({ turn, root, act }) {
  const isUndone = turn.files.length > 0 && turn.files.every((file) => file.undone);
  const action = isUndone ? "redo" : "undo";
  return html`<section class=${isUndone ? "turn undone" : "turn"} aria-label=${`Turn: ${turn.label}`}>
    <header><div><h2><bdi>${visible(turn.label)}</bdi></h2><p class="muted">${AUTHORS[turn.by] ?? turn.by} · ${clockTime(turn.at)} · ${plural(turn.files.length, "file")}</p></div>
      ${act && html`<button type="button" onClick=${() => act(action, { turn: turn.id })}><${Icon} name=${action} /> ${isUndone ? "Redo turn" : "Undo turn"}</button>`}</header>
    ${turn.files.map((file) => html`<${ChangedFileView} key=${file.path} file=${file} root=${root} act=${act} turn=${turn} />`)}
  </section>`;
}

/** @param {{file: ChangedFile, root: string, turn: ChangedTurn|null, act: ((action: "undo"|"redo", what: Record<string, unknown>) => void)|null}} props */
function ChangedFileView({ file, root, act, turn }) {
  const [isOpen, setOpen] = useState(true);
  const action = file.undone ? "redo" : "undo";
  const path = relativePath(file.path, root);
  const count = (/** @type {string} */ kind) => file.hunks.reduce((sum, hunk) => sum + hunk.lines.filter((line) => line.kind === kind).length, 0);
  return html`<section class=${file.undone ? "file-diff undone" : "file-diff"} aria-label=${path}>
    <header><button type="button" class="quiet file-toggle" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}><span class="tool-chevron"><${Icon} name="chevron" /></span><span class="path" title=${file.path}><bdi>${visible(path)}</bdi></span></button>
      ${file.change !== "modified" && html`<span class="tag">${file.change}</span>`}${file.undone && html`<span class="tag">undone</span>`}
      <span class="counts"><span class="added">+${count("+")}</span> <span class="removed">−${count("-")}</span></span>
      ${file.at !== undefined && html`<span class="muted">${clockTime(file.at)}</span>`}
      ${act && turn && html`<button type="button" class="small" onClick=${() => act(action, { turn: turn.id, path: file.path })} aria-label=${`${file.undone ? "Redo" : "Undo"} ${path}`}><${Icon} name=${action} /> ${file.undone ? "Redo" : "Undo"}</button>`}</header>
    ${isOpen && (file.binary ? html`<p class="muted pad">A binary file: its content is not shown.</p>` : file.hunks.map((hunk, index) => html`<${HunkView} key=${hunk.id ?? index} hunk=${hunk}
      actions=${act && turn && !file.undone && file.hunks.length > 1 && hunk.id !== undefined && html`<button type="button" class="quiet small" onClick=${() => act("undo", { turn: turn.id, path: file.path, hunk: hunk.id })} aria-label=${`Undo lines from ${hunk.newStart} of ${path}`}>Undo hunk</button>`} />`))}
    ${isOpen && file.truncated && html`<p class="muted pad">The rest is too long to show.</p>`}
  </section>`;
}

/** @param {{conflict: Conflict, root: string, onClose: () => void}} props */
function ConflictView({ conflict, root, onClose }) {
  return html`<section class="conflict" role="alert" aria-label=${`Conflict in ${relativePath(conflict.path, root)}`}>
    <header><h2><${Icon} name="warning" /> <bdi>${visible(relativePath(conflict.path, root))}</bdi> was changed since</h2><button type="button" class="quiet icon-button" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button></header>
    <p class="muted">Nothing was written. The file as it is now, and as this step would leave it:</p>
    <div class="sides"><div><h3>Now</h3><pre class="output" tabindex="0" aria-label="The file now">${visible(conflict.ours ?? "")}</pre></div><div><h3>After this step</h3><pre class="output" tabindex="0" aria-label="The file after this step">${visible(conflict.theirs ?? "")}</pre></div></div>
    <${TextDiffs} files=${[{ path: conflict.path, old: conflict.ours ?? "", new: conflict.theirs ?? "" }]} root=${root} />
  </section>`;
}
