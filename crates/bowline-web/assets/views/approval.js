// A question of the agent: what it wants to do, the dangers, and the answers. There is no default answer.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { get } from "../api.js";
import { answer } from "../client.js";
import { DiffToolbar, TextDiffs } from "../diff.js";
import { plural, visible, withRelativePaths } from "../format.js";
import { Icon } from "../icons.js";
import { addKeys } from "../keyboard.js";
import { Markdown } from "../markdown.js";
import { commandOf, diffsOf } from "./tool-call.js";

/** @typedef {import("../types.js").Question} Question */
/** @typedef {{optionId: string, name: string, kind: string}} Option */

/** How long a new question cannot be answered, so that a tap or key meant for something else does not: milliseconds. */
const READY_DELAY = 300;

/** Returns the option that a key answers with. @param {Option[]} options @param {string} key @returns {Option|undefined} */
export function optionForKey(options, key) {
  const isSession = (/** @type {Option} */ option) => /session/i.test(`${option.optionId} ${option.name}`);
  if (key === "y") return options.find(({ kind }) => kind === "allow_once");
  if (key === "s") return options.find((option) => option.kind.startsWith("allow") && isSession(option));
  if (key === "p") return options.find((option) => option.kind === "allow_always" && !isSession(option));
  if (key === "n") return options.find(({ kind }) => kind === "reject_once") ?? options.find(({ kind }) => kind === "reject_always");
  return undefined;
}

/** Returns the options of a request, as far as they can be chosen. @param {any} options @returns {Option[]} */
export function toOptions(options) {
  const known = (Array.isArray(options) ? options : []).filter((option) => typeof option?.optionId === "string");
  return known.map(({ optionId, name, kind }) => ({ optionId, name: String(name ?? optionId), kind: String(kind ?? "") }));
}

/** Returns the key of an option, if it has one. @param {Option[]} options @param {Option} option */
function keyOf(options, option) {
  return ["y", "s", "p", "n"].find((key) => optionForKey(options, key) === option);
}

/** @param {{question: Question, count: number, root: string, canAnswer: boolean, call: import("../types.js").ToolCall|null, cancel: any}} props */
export function Approval({ question, count, root, canAnswer, call: announced, cancel }) {
  const options = useMemo(() => toOptions(question.params.options), [question]);
  // The request names only what differs from the call that was announced.
  const call = { ...announced, ...withoutNull(question.params.toolCall ?? {}) };
  const command = commandOf(/** @type {any} */ (call));
  const dangers = useDangers(command, question.sessionId);
  const [isSettled, setSettled] = useState(false);
  // A command is answered with its dangers in sight.
  const isReady = isSettled && dangers !== null;
  const [reason, setReason] = useState(/** @type {string|null} */ (null));
  const panel = useRef(/** @type {HTMLElement|null} */ (null));

  useEffect(() => {
    setSettled(false);
    setReason(null);
    const timer = setTimeout(() => setSettled(true), READY_DELAY);
    return () => clearTimeout(timer);
  }, [question.id]);

  const choose = (/** @type {Option} */ option, /** @type {string} */ text = "") => {
    if (!isReady || !canAnswer) return;
    // The panel goes away with the focus.
    if (panel.current?.contains(document.activeElement)) document.getElementById("main")?.focus();
    const meta = text.trim() ? { _meta: { bowline: { reason: text.trim() } } } : {};
    answer(question, { outcome: { outcome: "selected", optionId: option.optionId }, ...meta });
  };
  const reject = optionForKey(options, "n");

  // Before the answers are shown as ready, so that no key is lost in between.
  useLayoutEffect(() => addKeys((key) => {
    if (reason !== null) return false;
    const option = optionForKey(options, key);
    if (option) choose(option);
    else if (key === "r" && reject) setReason("");
    else return false;
    return true;
  }));

  const files = useMemo(() => diffsOf(/** @type {any} */ (call)), [question]);
  const texts = useMemo(() => textsOf(call), [question]);
  const allows = options.filter(({ kind }) => kind.startsWith("allow"));
  const rejects = options.filter(({ kind }) => !kind.startsWith("allow"));
  return html`<section class="approval" ref=${panel} role="group" aria-label="Permission request" aria-live="polite">
    <header><span class="approval-mark"><${Icon} name="warning" /></span><h2><bdi>${visible(withRelativePaths(typeof call.title === "string" && call.title ? call.title : "The agent asks for permission", root))}</bdi></h2>
      ${count > 1 && html`<span class="muted">1 of ${plural(count, "request")}</span>`}${cancel}</header>
    <div class="approval-body" tabindex="0" role="region" aria-label="What is asked for">
      ${command && html`<pre class="command" role="group" aria-label="Command">${visible(command)}</pre>${dangers && dangers.length > 0 && html`<ul class="dangers" aria-label="Dangers">${dangers.map((danger) => html`<li>${visible(danger)}</li>`)}</ul>`}`}
      ${texts.map((part) => html`<${RequestText} part=${part} hasDetails=${files.length > 0 || command !== null} command=${command} known=${dangers ?? []} />`)}
      ${files.length > 0 && html`<div class="approval-files"><p class="muted">${plural(files.length, "file")}</p><${DiffToolbar} /></div><${TextDiffs} files=${files} root=${root} />`}
      ${!command && files.length === 0 && texts.length === 0 && html`<${Described} call=${call} />`}
    </div>
    ${reason === null
      ? html`<footer class="answers">
        ${[...allows, ...rejects].map((option) => html`<${Answer} key=${option.optionId} option=${option} options=${options} command=${command} isReady=${isReady && canAnswer} onChoose=${() => choose(option)} />`)}
        ${reject && html`<button type="button" class="answer reject" disabled=${!isReady || !canAnswer} onClick=${() => setReason("")}><span>Reject with reason…</span><kbd aria-hidden="true">r</kbd></button>`}
        ${!canAnswer && html`<p class="muted">You can watch this session, but not answer for it.</p>`}
      </footer>`
      : html`<form class="reason" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); if (reject) choose(reject, reason); }}>
        <label class="field"><span>Why not? The agent reads it.</span><${ReasonInput} value=${reason} onInput=${setReason} onCancel=${() => setReason(null)} /></label>
        <footer><button type="button" onClick=${() => setReason(null)}>Back</button><button type="submit" class="danger">Reject</button></footer>
      </form>`}
  </section>`;
}

/** @param {{value: string, onInput: (text: string) => void, onCancel: () => void}} props */
function ReasonInput({ value, onInput, onCancel }) {
  const ref = useRef(/** @type {HTMLInputElement|null} */ (null));
  // At once: the next key is meant for it.
  useLayoutEffect(() => ref.current?.focus(), []);
  return html`<input ref=${ref} name="reason" maxlength="2000" autocomplete="off" value=${value} onInput=${(/** @type {any} */ event) => onInput(event.target.value)}
    onKeyDown=${(/** @type {KeyboardEvent} */ event) => { if (event.key === "Escape") { event.stopPropagation(); onCancel(); } }} />`;
}

/**
 * Returns the name of an option without the command that is shown above it: a long one would leave no room for the rest.
 * @param {string} name @param {string|null} command
 */
export function shortName(name, command) {
  return command ? name.split(`\`${command}\``).join("this command") : name;
}

/** @param {{option: Option, options: Option[], command: string|null, isReady: boolean, onChoose: () => void}} props */
function Answer({ option, options, command, isReady, onChoose }) {
  const kind = option.kind.startsWith("allow") ? (option.kind === "allow_once" ? "allow primary" : "allow") : "reject";
  const key = keyOf(options, option);
  return html`<button type="button" class=${`answer ${kind}${option.kind.endsWith("_always") ? " lasting" : ""}`} disabled=${!isReady} onClick=${onChoose} data-option=${option.optionId}><span><bdi>${visible(shortName(option.name, command))}</bdi></span>${key && html`<kbd aria-hidden="true">${key}</kbd>`}</button>`;
}

/** Returns what is dangerous about a command; `null` until it is known. @param {string|null} command @param {string|null} session */
function useDangers(command, session) {
  const [found, setFound] = useState(/** @type {{command: string, dangers: string[]}|null} */ (null));
  useEffect(() => {
    if (command === null) return undefined;
    let isCurrent = true;
    const show = (/** @type {string[]} */ dangers) => isCurrent && setFound({ command, dangers });
    get("/api/command", { text: command, session }).then(
      (checked) => show(checked.dangers ?? []),
      (error) => show([`The command could not be checked: ${error.message}`]),
    );
    return () => {
      isCurrent = false;
    };
  }, [command]);
  if (command === null) return [];
  return found?.command === command ? found.dangers : null;
}

/**
 * Returns the parts of a text that Bowline writes for a question of its own, or that its agent adds: warnings first, the
 * operations, and the reason. Other texts are all body.
 * @param {string} text @returns {{dangers: string[], body: string, reason: string, isOwn: boolean}}
 */
export function readRequestText(text) {
  const lines = text.trimEnd().split("\n");
  if (lines.every((line) => line.startsWith("Careful: "))) return { dangers: lines.map((line) => line.slice(9)), body: "", reason: "", isOwn: true };
  const last = lines[lines.length - 1] ?? "";
  if (!last.startsWith("Asked because ")) return { dangers: [], body: text, reason: "", isOwn: false };
  const rest = lines.slice(1, -1);
  const count = rest.findIndex((line) => !line.startsWith("! "));
  const warnings = count < 0 ? rest.length : count;
  return { dangers: rest.slice(0, warnings).map((line) => line.slice(2)), body: rest.slice(warnings).join("\n"), reason: last, isOwn: true };
}

/**
 * Returns what a text says beside the command that is shown already; `null` if it says something else.
 * @param {string} text @param {string|null} command @returns {string|null}
 */
export function besideCommand(text, command) {
  const [first, ...rest] = text.trim().replace(/^```\w*\n([\s\S]*)\n```$/, "$1").split("\n");
  return command !== null && first === `run ${command}` ? rest.join("\n") : null;
}

/** @param {{part: {text: string}, hasDetails: boolean, command: string|null, known: string[]}} props `known` dangers are shown already */
function RequestText({ part, hasDetails, command, known }) {
  const beside = besideCommand(part.text, command);
  if (beside !== null) return beside && html`<p class="muted small-text plain">${visible(beside)}</p>`;
  const { dangers: all, body, reason, isOwn } = readRequestText(part.text);
  if (!isOwn) return html`<${Markdown} part=${part} length=${part.text.length} />`;
  const dangers = all.filter((danger) => !known.includes(danger));
  return html`
    ${dangers.length > 0 && html`<ul class="dangers" aria-label="Dangers">${dangers.map((danger) => html`<li>${visible(danger)}</li>`)}</ul>`}
    ${body && !hasDetails && html`<pre class="output" tabindex="0" role="group" aria-label="What is asked for">${visible(body)}</pre>`}
    ${reason && html`<p class="muted small-text">${visible(reason)}.</p>`}`;
}

/** Returns the texts of a request. @param {any} call @returns {{text: string}[]} */
function textsOf(call) {
  const contents = Array.isArray(call.content) ? call.content : [];
  return contents.filter((/** @type {any} */ content) => content?.type === "content" && content.content?.type === "text")
    .map((/** @type {any} */ content) => ({ text: String(content.content.text) }));
}

/** @param {{call: any}} props */
function Described({ call }) {
  const paths = (call.locations ?? []).map((/** @type {any} */ location) => String(location?.path ?? ""));
  if (paths.length === 0 && (call.rawInput === undefined || call.rawInput === null)) return html`<p class="muted">The agent does not say what it wants to do.</p>`;
  return html`${paths.map((/** @type {string} */ path) => html`<p class="path"><bdi>${visible(path)}</bdi></p>`)}
    ${call.rawInput !== undefined && call.rawInput !== null && html`<pre class="output">${visible(JSON.stringify(call.rawInput, null, 2)).slice(0, 20_000)}</pre>`}`;
}

/** @param {Record<string, any>} value */
function withoutNull(value) {
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== null && member !== undefined));
}
