// Diffs: unified or side by side, with the changed words marked. The server computes the hunks.

import { html, signal, useEffect, useMemo, useState } from "./lib.js";
import { post } from "./api.js";
import { diffLayout, ignoreWhitespace } from "./preferences.js";
import { visible } from "./format.js";

/** @typedef {import("./types.js").DiffLine} DiffLine */
/** @typedef {import("./types.js").FileDiff} FileDiff */
/** @typedef {import("./types.js").Hunk} Hunk */

/** The width from which `auto` is side by side, in pixels. */
const SPLIT_WIDTH = 1100;

/** The most lines of a hunk that are shown before the user asks for more. */
const MAX_LINES = 400;

/** The most characters of a line that are shown. */
const MAX_LINE_LENGTH = 2000;

/** Whether the window is wide enough for two columns. */
const isWide = signal(typeof window !== "undefined" && window.innerWidth >= SPLIT_WIDTH);
if (typeof window !== "undefined") addEventListener("resize", () => (isWide.value = window.innerWidth >= SPLIT_WIDTH));

/** Returns the layout in use. */
function currentLayout() {
  if (diffLayout.value !== "auto") return diffLayout.value;
  return isWide.value ? "split" : "unified";
}

/** Switches between the layouts. */
export function toggleLayout() {
  diffLayout.value = currentLayout() === "split" ? "unified" : "split";
}

/** Returns the rows of a hunk side by side: removed lines left of the added lines that replace them. @param {DiffLine[]} lines */
export function pairLines(lines) {
  /** @type {{left: DiffLine|null, right: DiffLine|null}[]} */
  const rows = [];
  let index = 0;
  while (index < lines.length) {
    const line = /** @type {DiffLine} */ (lines[index]);
    if (line.kind === " ") {
      rows.push({ left: line, right: line });
      index += 1;
      continue;
    }
    const removed = takeWhile(lines, index, "-");
    const added = takeWhile(lines, index + removed.length, "+");
    for (let row = 0; row < Math.max(removed.length, added.length); row += 1) {
      rows.push({ left: removed[row] ?? null, right: added[row] ?? null });
    }
    index += removed.length + added.length;
  }
  return rows;
}

/** @param {DiffLine[]} lines @param {number} start @param {string} kind */
function takeWhile(lines, start, kind) {
  let end = start;
  while (lines[end]?.kind === kind) end += 1;
  return lines.slice(start, end);
}

export function DiffToolbar() {
  const layout = currentLayout();
  return html`<div class="diff-toolbar" role="group" aria-label="Diff display">
    <div class="segmented">
      <button type="button" aria-pressed=${layout === "unified"} onClick=${() => (diffLayout.value = "unified")}>Unified</button>
      <button type="button" aria-pressed=${layout === "split"} onClick=${() => (diffLayout.value = "split")}>Side by side</button>
    </div>
    <label class="check"><input type="checkbox" checked=${ignoreWhitespace.value} onChange=${(/** @type {any} */ event) => (ignoreWhitespace.value = event.target.checked)} /> Ignore white space</label>
  </div>`;
}

/** Texts whose hunks the server computes. @param {{files: {path: string, old: string|null, new: string|null}[], root: string}} props */
export function TextDiffs({ files, root }) {
  const [state, setState] = useState(/** @type {{files: FileDiff[]|null, error: string}} */ ({ files: null, error: "" }));
  const ignore = ignoreWhitespace.value;
  const key = useMemo(() => JSON.stringify(files), [files]);
  useEffect(() => {
    let isCurrent = true;
    post("/api/diff", { files, ignoreWhitespace: ignore }).then(
      (answer) => isCurrent && setState({ files: answer.files, error: "" }),
      (error) => isCurrent && setState({ files: null, error: error.message }),
    );
    return () => {
      isCurrent = false;
    };
  }, [key, ignore]);
  if (state.error) return html`<p class="problem">The diff cannot be shown: ${state.error}</p>`;
  if (!state.files) return html`<p class="muted loading">Comparing…</p>`;
  return html`${state.files.map((file) => html`<${FileDiffView} key=${file.path} file=${file} root=${root} isNew=${files.find(({ path }) => path === file.path)?.old === null} />`)}`;
}

/** @param {{file: FileDiff, root: string, isNew?: boolean}} props */
function FileDiffView({ file, root, isNew }) {
  const path = root && file.path.startsWith(`${root}/`) ? file.path.slice(root.length + 1) : file.path;
  return html`<section class="file-diff" aria-label=${`Changes of ${path}`}>
    <header><span class="path" title=${file.path}><bdi>${visible(path)}</bdi></span>
      ${isNew && html`<span class="tag">new</span>`}
      <span class="counts"><span class="added">+${file.added}</span> <span class="removed">−${file.removed}</span></span></header>
    ${file.hunks.length === 0 && html`<p class="muted pad">No changes${ignoreWhitespace.value ? " other than white space" : ""}.</p>`}
    ${joinHunks(file.hunks).map((hunk, index) => html`<${HunkView} key=${index} hunk=${hunk} />`)}
    <${Omitted} file=${file} />
  </section>`;
}

/** Says how much of a long diff is missing. @param {{file: {truncated?: boolean, omittedLines?: number}}} props */
export function Omitted({ file }) {
  if (!file.truncated) return null;
  return html`<p class="muted pad">${file.omittedLines ? `${file.omittedLines.toLocaleString("en")} more lines are not shown.` : "The rest is too long to show."}</p>`;
}

/** Returns hunks without gaps between them as one: the server divides them where an undo can. @param {Hunk[]} hunks */
export function joinHunks(hunks) {
  /** @type {Hunk[]} */
  const joined = [];
  for (const hunk of hunks) {
    const last = joined[joined.length - 1];
    const end = last && nextLine(last);
    if (last && end === hunk.newStart) joined[joined.length - 1] = { ...last, lines: [...last.lines, ...hunk.lines] };
    else joined.push(hunk);
  }
  return joined;
}

/** Returns the number of the new line after a hunk. @param {Hunk} hunk */
function nextLine({ lines, newStart }) {
  return newStart + lines.filter((line) => line.kind !== "-").length;
}

/** @param {{hunk: Hunk, actions?: any}} props */
export function HunkView({ hunk, actions }) {
  const [isWhole, setWhole] = useState(false);
  const lines = isWhole ? hunk.lines : hunk.lines.slice(0, MAX_LINES);
  const hidden = hunk.lines.length - lines.length;
  return html`<div class=${hunk.undone ? "hunk undone" : "hunk"}>
    <div class="hunk-head"><span>Line ${hunk.newStart || hunk.oldStart}</span>${actions}</div>
    <div class="hunk-scroll" tabindex="0" role="region" aria-label=${`Lines from ${hunk.newStart || hunk.oldStart}`}>
      ${currentLayout() === "split" ? html`<${SplitTable} lines=${lines} />` : html`<${UnifiedTable} lines=${lines} />`}
    </div>
    ${hidden > 0 && html`<button type="button" class="quiet wide-button" onClick=${() => setWhole(true)}>Show ${hidden.toLocaleString("en")} more lines</button>`}
  </div>`;
}

/** @type {Record<string, string>} */
const KIND_CLASS = { "+": "add", "-": "del", " ": "same" };

/** @param {{lines: DiffLine[]}} props */
function UnifiedTable({ lines }) {
  return html`<table class="diff unified"><tbody>${lines.map((line) => html`<tr class=${KIND_CLASS[line.kind]}>
    <td class="num">${line.old}</td><td class="num">${line.new}</td><td class="sign">${line.kind}</td><td class="text">${lineText(line)}</td>
  </tr>`)}</tbody></table>`;
}

/** @param {{lines: DiffLine[]}} props */
function SplitTable({ lines }) {
  const cells = (/** @type {DiffLine|null} */ line, /** @type {"old"|"new"} */ side) => {
    const kind = line ? KIND_CLASS[line.kind] : "none";
    return html`<td class=${`num ${kind}`}>${line?.[side]}</td><td class=${`sign ${kind}`}>${line?.kind}</td><td class=${`text ${kind}`}>${line && lineText(line)}</td>`;
  };
  return html`<table class="diff split"><colgroup><col class="c-num" /><col class="c-sign" /><col /><col class="c-num" /><col class="c-sign" /><col /></colgroup>
    <tbody>${pairLines(lines).map(({ left, right }) => html`<tr>${cells(left, "old")}${cells(right, "new")}</tr>`)}</tbody></table>`;
}

/** @param {DiffLine} line */
function lineText(line) {
  let room = MAX_LINE_LENGTH;
  const parts = [];
  for (const { text, changed } of line.parts) {
    if (room <= 0) {
      parts.push(html`<span class="muted"> … line too long</span>`);
      break;
    }
    const shown = visible(text.slice(0, room).replace(/\r?\n$/, ""));
    room -= text.length;
    parts.push(changed && line.kind !== " " ? html`<mark>${shown}</mark>` : shown);
  }
  if (line.noNewline) parts.push(html`<span class="muted"> (no newline at the end)</span>`);
  return html`<bdi>${parts}</bdi>`;
}
