// A tool call: one line, which opens to its diffs, output, terminal and raw values.

import { html, useState } from "../lib.js";
import { TextDiffs, DiffToolbar } from "../diff.js";
import { plainOutput, relativePath, visible, withRelativePaths } from "../format.js";
import { Icon } from "../icons.js";
import { Markdown } from "../markdown.js";
import { TerminalView } from "../terminal.js";

/** @typedef {import("../types.js").ToolItem} ToolItem */
/** @typedef {import("../types.js").ToolCall} ToolCall */
/** @typedef {import("../types.js").ToolContent} ToolContent */

/** The longest raw value that is shown, in characters. */
const MAX_RAW = 20_000;

/** @type {Record<string, string>} */
const ICONS = { read: "file", edit: "edit", delete: "trash", move: "file", search: "search", execute: "terminal", fetch: "globe", think: "dot", switch_mode: "dot" };

/** @type {Record<string, string>} */
const STATUS = { pending: "Pending", in_progress: "Running", completed: "Done", failed: "Failed", cancelled: "Cancelled" };

/** Returns a command as one line, if the call runs one. @param {ToolCall} call @returns {string|null} */
export function commandOf(call) {
  const input = call.rawInput;
  const command = input?.command ?? input?.cmd ?? input?.script;
  if (Array.isArray(command)) return command.map(String).join(" ");
  if (typeof command !== "string") return null;
  return Array.isArray(input?.args) && input.args.length > 0 ? `${command} ${input.args.map(String).join(" ")}` : command;
}

/** Returns the diffs of a call. @param {ToolCall} call */
export function diffsOf(call) {
  return (call.content ?? []).filter((content) => content?.type === "diff" && typeof content.path === "string")
    .map((content) => ({ path: /** @type {string} */ (content.path), old: content.oldText ?? null, new: content.newText ?? null }));
}

/** Returns what the closed line says about the result. @param {ToolCall} call @param {string} root */
function summary(call, root) {
  const diffs = diffsOf(call);
  if (diffs.length === 1 && diffs[0]) return relativePath(diffs[0].path, root);
  if (diffs.length > 1) return `${diffs.length} files`;
  const [location] = call.locations;
  if (location?.path) return `${relativePath(location.path, root)}${location.line ? `:${location.line}` : ""}`;
  return "";
}

/** @param {{item: ToolItem, version: number, root: string, isOpen: boolean, onToggle: () => void}} props */
export function ToolCallView({ item, root, isOpen, onToggle }) {
  const { call } = item;
  const status = STATUS[call.status] ?? call.status;
  const detail = summary(call, root);
  const title = visible(withRelativePaths(call.title || call.kind, root));
  return html`<div class=${`tool status-${call.status}`}>
    <button type="button" class="tool-line" aria-expanded=${isOpen} onClick=${onToggle}>
      <span class="tool-chevron"><${Icon} name="chevron" /></span><span class="tool-icon"><${Icon} name=${ICONS[call.kind] ?? "dot"} /></span>
      <span class="tool-title"><bdi>${title}</bdi></span>${detail && !title.includes(detail) && html`<span class="tool-detail"><bdi>${visible(detail)}</bdi></span>`}
      <span class="tool-status"><span class="hidden">Status: </span>${status}</span>
    </button>
    ${isOpen && html`<div class="tool-body"><${ToolBody} item=${item} version=${item.version} root=${root} /></div>`}
  </div>`;
}

/** @param {{item: ToolItem, version: number, root: string}} props */
function ToolBody({ item, root }) {
  const { call } = item;
  const diffs = diffsOf(call);
  const command = call.kind === "execute" ? commandOf(call) : null;
  const rest = call.content.filter((content) => content?.type !== "diff");
  const hasTerminal = item.terminals.size > 0;
  return html`
    ${command && html`<pre class="command" tabindex="0" role="group" aria-label="Command">${visible(command)}</pre>`}
    ${diffs.length > 0 && html`<${DiffToolbar} /><${TextDiffs} files=${diffs} root=${root} />`}
    ${rest.map((content, index) => html`<${Content} key=${index} content=${content} item=${item} hasTerminal=${hasTerminal} isAlone=${rest.length === 1} />`)}
    ${!rest.some(({ type }) => type === "terminal") && [...item.terminals].map(([id, output]) => html`<${TerminalView} key=${id} output=${output} length=${output.dropped + output.text.length + (output.exit ? 0.5 : 0)} label="Command output" />`)}
    <${Raw} call=${call} />`;
}

/** @param {{content: ToolContent, item: ToolItem, hasTerminal: boolean, isAlone: boolean}} props */
function Content({ content, item, hasTerminal, isAlone }) {
  if (content.type === "terminal" && typeof content.terminalId === "string") {
    const output = item.terminals.get(content.terminalId);
    return output
      ? html`<${TerminalView} output=${output} length=${output.dropped + output.text.length + (output.exit ? 0.5 : 0)} label="Command output" />`
      // An agent repeats the output as text once the command has ended.
      : isAlone ? html`<p class="muted">The output is shown when the command has ended.</p>` : null;
  }
  const block = content.content;
  if (block?.type === "text") {
    // Agents repeat a terminal's output as text for clients without one.
    if (hasTerminal) return null;
    return item.call.kind === "execute" || item.call.kind === "read" || item.call.kind === "search"
      ? html`<pre class="output" tabindex="0" role="group" aria-label="Output">${plainOutput(String(block.text ?? ""))}</pre>`
      : html`<${Markdown} part=${textPart(content)} length=${block.text?.length ?? 0} />`;
  }
  if (block?.type === "image") return html`<${Picture} mimeType=${String(block.mimeType)} data=${String(block.data)} />`;
  if (block?.type === "resource_link" || block?.type === "resource") return html`<p class="resource"><${Icon} name="file" /> ${visible(String(block.name ?? block.uri ?? block.resource?.uri ?? ""))}</p>`;
  return null;
}

/** @type {WeakMap<ToolContent, {text: string}>} */
const parts = new WeakMap();

/** @param {ToolContent} content */
function textPart(content) {
  let part = parts.get(content);
  if (!part) {
    part = { text: String(content.content?.text ?? "") };
    parts.set(content, part);
  }
  return part;
}

/** The images that are shown: formats without scripts. */
const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"]);

/** @param {{mimeType: string, data: string}} props */
export function Picture({ mimeType, data }) {
  if (!IMAGES.has(mimeType) || !/^[A-Za-z0-9+/=\s]*$/.test(data)) return html`<p class="muted">An image of the type ${visible(mimeType)} cannot be shown.</p>`;
  return html`<img class="picture" src=${`data:${mimeType};base64,${data}`} alt="Image in the conversation" />`;
}

/** @param {{call: ToolCall}} props */
function Raw({ call }) {
  const [isOpen, setOpen] = useState(false);
  if (call.rawInput === null && call.rawOutput === null) return null;
  const show = (/** @type {any} */ value) => {
    const text = JSON.stringify(value, null, 2) ?? "";
    return visible(text.length > MAX_RAW ? `${text.slice(0, MAX_RAW)}\n… ${text.length - MAX_RAW} characters more` : text);
  };
  return html`<div class="raw"><button type="button" class="quiet small" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${isOpen ? "Hide" : "Show"} input and output</button>
    ${isOpen && html`
      ${call.rawInput !== null && html`<pre class="output" tabindex="0" role="group" aria-label="Raw input">${show(call.rawInput)}</pre>`}
      ${call.rawOutput !== null && html`<pre class="output" tabindex="0" role="group" aria-label="Raw output">${show(call.rawOutput)}</pre>`}`}
  </div>`;
}
