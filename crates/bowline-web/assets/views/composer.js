// The prompt: text, completion of files and commands, attachments, the queue, and the session's settings.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { get, sessionPath } from "../api.js";
import { connectionState, promptText } from "../client.js";
import { firstLine, visible } from "../format.js";
import { Icon } from "../icons.js";
import { completeMention, findFileNames, findMention, toBlocks } from "../mentions.js";
import { messageText, settings } from "../store.js";
import { hasFiles, reportError } from "../ui.js";

/** @typedef {import("../types.js").ContentBlock} ContentBlock */
/** @typedef {{value: string, detail: string}} Suggestion */
/** @typedef {{name: string, block: ContentBlock}} Attachment */

/** The largest attachment, in bytes. */
const MAX_ATTACHMENT = 10 << 20;

/** The most attachments of a prompt. */
const MAX_ATTACHMENTS = 20;

/** The most file names of a draft that are looked up. */
const MAX_LOOKED_UP = 50;

/**
 * What belongs to the text of a draft, by session, until the page is loaded again: attachments, the files that it names,
 * and the names that were looked up.
 * @typedef {{attachments: Attachment[], files: Set<string>, known: Set<string>}} Draft
 * @type {Map<string, Draft>}
 */
const drafts = new Map();

/** @param {string} id @returns {Draft} */
function draftOf(id) {
  const draft = drafts.get(id) ?? { attachments: [], files: new Set(), known: new Set() };
  drafts.set(id, draft);
  return draft;
}

/** @param {string} id */
function draftKey(id) {
  return `bowline.draft.${id}`;
}

/** Whether text is written on a screen: its Enter begins a line, because it has no other key for that. */
function isTouched() {
  return matchMedia("(pointer: coarse)").matches;
}

/** Reads a file as a content block, if the agent accepts it. @param {File} file @param {import("../types.js").Json} accepts @returns {Promise<Attachment>} */
async function toAttachment(file, accepts) {
  if (file.size > MAX_ATTACHMENT) throw new Error(`${file.name} is larger than 10 MiB`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (file.type.startsWith("image/")) {
    if (!accepts.image) throw new Error("This agent does not accept images");
    return { name: file.name || "image", block: { type: "image", mimeType: file.type, data: toBase64(bytes) } };
  }
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error(`${file.name} is not text, and only images and text can be attached`);
  }
  if (accepts.embeddedContext) return { name: file.name, block: { type: "resource", resource: { uri: `attachment:///${encodeURIComponent(file.name)}`, mimeType: file.type || "text/plain", text } } };
  return { name: file.name, block: { type: "text", text: `\n\n${file.name}:\n\n${text}` } };
}

/** @param {Uint8Array} bytes */
function toBase64(bytes) {
  let text = "";
  for (let start = 0; start < bytes.length; start += 0x8000) text += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  return btoa(text);
}

/** @param {{session: import("../client.js").LiveSession, revision: number, canWrite: boolean}} props */
export function Composer({ session, canWrite }) {
  const [text, setText] = useState(() => sessionStorage.getItem(draftKey(session.id)) ?? "");
  const draft = useMemo(() => draftOf(session.id), [session.id]);
  const [attachments, setAttachments] = useState(draft.attachments);
  const [suggestions, setSuggestions] = useState(/** @type {Suggestion[]} */ ([]));
  const [selected, setSelected] = useState(0);
  const [isOver, setOver] = useState(false);
  const input = useRef(/** @type {HTMLTextAreaElement|null} */ (null));
  const picker = useRef(/** @type {HTMLInputElement|null} */ (null));
  const mention = useRef(/** @type {import("../mentions.js").Mention|null} */ (null));
  const asked = useRef(0);
  const nextCursor = useRef(/** @type {number|null} */ (null));
  const isBusy = session.isBusy.value;

  useEffect(() => {
    if (text) sessionStorage.setItem(draftKey(session.id), text);
    else sessionStorage.removeItem(draftKey(session.id));
    for (const name of findFileNames(text, document.activeElement === input.current ? input.current?.selectionStart ?? -1 : -1)) {
      if (draft.known.has(name) || draft.known.size >= MAX_LOOKED_UP) continue;
      draft.known.add(name);
      get(sessionPath(session.id, "files"), { query: name }).then((answer) => noteFile(name, answer.files), () => draft.known.delete(name));
    }
  }, [text]);
  useEffect(() => {
    draft.attachments = attachments;
  }, [attachments]);

  useLayoutEffect(() => {
    const element = input.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${Math.min(element.scrollHeight, window.innerHeight * 0.4)}px`;
    if (nextCursor.current !== null) {
      element.setSelectionRange(nextCursor.current, nextCursor.current);
      nextCursor.current = null;
    }
  }, [text]);

  /** Notes a file that is written without being chosen. @param {string} name @param {string[]} found */
  const noteFile = (name, found) => {
    if (found.includes(name)) draft.files.add(name);
  };

  const complete = async () => {
    asked.current += 1;
    const request = asked.current;
    const element = input.current;
    const before = mention.current;
    mention.current = element ? findMention(element.value, element.selectionStart) : null;
    const found = mention.current;
    /** @type {Suggestion[]} */
    let list = [];
    if (found?.kind === "command") {
      list = session.state.commands.filter(({ name }) => name.startsWith(found.query)).map(({ name, description, hint }) => ({ value: name, detail: hint ? `${hint} · ${description}` : description }));
    } else if (found?.kind === "file") {
      // Until the answer is here, only what still matches can be chosen.
      const query = found.query.toLowerCase();
      setSuggestions((old) => (before?.kind === "file" && before.start === found.start ? old.filter(({ value }) => value.toLowerCase().includes(query)) : []));
      setSelected(0);
      const answer = await get(sessionPath(session.id, "files"), { query: found.query }).catch(() => ({ files: [] }));
      noteFile(found.query, answer.files);
      if (request !== asked.current) return;
      list = answer.files.map((/** @type {string} */ file) => ({ value: file, detail: "" }));
    }
    setSuggestions(list.slice(0, 50));
    setSelected(0);
  };

  const choose = (/** @type {Suggestion} */ suggestion) => {
    const element = input.current;
    if (!element || !mention.current) return;
    if (mention.current.kind === "file") draft.files.add(suggestion.value);
    const result = completeMention(element.value, element.selectionStart, mention.current, suggestion.value);
    nextCursor.current = result.cursor;
    setText(result.text);
    setSuggestions([]);
    element.focus();
  };

  /** How many prompts back the text is; -1 for a text of its own. */
  const recalled = useRef(-1);
  /** Shows an earlier or later prompt, and returns whether there is one. @param {1|-1} step */
  const recall = (step) => {
    const prompts = session.state.items.filter(({ kind }) => kind === "user").map(messageText).filter(Boolean).reverse();
    if (text === "") recalled.current = -1;
    else if (text !== prompts[recalled.current]) return false;
    const next = recalled.current + step;
    if (next < -1 || next >= prompts.length) return false;
    recalled.current = next;
    setText(prompts[next] ?? "");
    nextCursor.current = prompts[next]?.length ?? 0;
    return true;
  };

  const submit = () => {
    const trimmed = text.trim();
    if ((!trimmed && attachments.length === 0) || !canWrite) return;
    session.prompt(toBlocks(trimmed, [...draft.files], session.cwd.value, attachments.map(({ block }) => block)));
    setText("");
    setAttachments([]);
    setSuggestions([]);
    draft.files.clear();
    draft.known.clear();
  };

  const attach = async (/** @type {Iterable<File>} */ list) => {
    for (const file of list) {
      try {
        const attachment = await toAttachment(file, session.accepts);
        setAttachments((old) => [...old, attachment].slice(0, MAX_ATTACHMENTS));
      } catch (error) {
        reportError(error);
      }
    }
  };

  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.isComposing) return;
    if (suggestions.length > 0) {
      const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
      const chosen = suggestions[selected];
      if (step !== 0) {
        event.preventDefault();
        setSelected((selected + step + suggestions.length) % suggestions.length);
        return;
      }
      if ((event.key === "Enter" || event.key === "Tab") && chosen) {
        event.preventDefault();
        choose(chosen);
        return;
      }
      if (event.key === "Escape") {
        event.preventDefault();
        event.stopPropagation();
        setSuggestions([]);
        return;
      }
    }
    const element = /** @type {HTMLTextAreaElement} */ (event.target);
    const isFirstLine = !text.slice(0, element.selectionStart).includes("\n");
    const isLastLine = !text.slice(element.selectionEnd).includes("\n");
    if ((event.key === "ArrowUp" && isFirstLine && recall(1)) || (event.key === "ArrowDown" && isLastLine && recall(-1))) {
      event.preventDefault();
      return;
    }
    if (event.key === "Enter" && !event.shiftKey && (event.ctrlKey || event.metaKey || !isTouched())) {
      event.preventDefault();
      submit();
    }
  };

  // Files are taken wherever they are dropped.
  useEffect(() => {
    if (!canWrite) return undefined;
    const onDragOver = (/** @type {DragEvent} */ event) => setOver(hasFiles(event));
    const onDragLeave = (/** @type {DragEvent} */ event) => event.relatedTarget === null && setOver(false);
    const onDrop = (/** @type {DragEvent} */ event) => {
      setOver(false);
      if (hasFiles(event) && !document.querySelector("dialog[open]")) void attach([...(event.dataTransfer?.files ?? [])]);
    };
    document.addEventListener("dragover", onDragOver);
    document.addEventListener("dragleave", onDragLeave);
    document.addEventListener("drop", onDrop);
    return () => {
      document.removeEventListener("dragover", onDragOver);
      document.removeEventListener("dragleave", onDragLeave);
      document.removeEventListener("drop", onDrop);
    };
  }, [canWrite]);
  const onPaste = (/** @type {ClipboardEvent} */ event) => {
    const list = event.clipboardData?.files;
    if (!list || list.length === 0) return;
    event.preventDefault();
    void attach([...list]);
  };

  if (!canWrite) return html`<div class="composer"><p class="muted pad">You can watch this session, but not write in it.</p></div>`;
  return html`<div class=${isOver ? "composer over" : "composer"}>
    <${Queue} session=${session} />
    ${suggestions.length > 0 && html`<ul class="suggestions" id="suggestions" role="listbox" aria-label=${mention.current?.kind === "file" ? "Files" : "Commands"}>
      ${suggestions.map((suggestion, index) => html`<li key=${suggestion.value} id=${`suggestion-${index}`} role="option" aria-selected=${index === selected}
        onMouseDown=${(/** @type {Event} */ event) => { event.preventDefault(); choose(suggestion); }}><span class="suggestion-value"><bdi>${visible(suggestion.value)}</bdi></span><span class="muted">${visible(suggestion.detail)}</span></li>`)}
    </ul>`}
    <div class="composer-box">
      ${attachments.length > 0 && html`<ul class="attachments" aria-label="Attachments">${attachments.map((attachment, index) => html`<li>
        ${attachment.block.type === "image" ? html`<img src=${`data:${attachment.block.mimeType};base64,${attachment.block.data}`} alt="" />` : html`<${Icon} name="file" />`}
        <span><bdi>${visible(attachment.name)}</bdi></span><button type="button" class="quiet icon-button" aria-label=${`Remove ${attachment.name}`} onClick=${() => setAttachments(attachments.filter((_, other) => other !== index))}><${Icon} name="close" /></button></li>`)}</ul>`}
      <textarea ref=${input} id="prompt" rows="1" dir="auto" aria-label="Prompt" placeholder=${isBusy ? "Queue a prompt for the next turn" : "Ask the agent: @ files, / commands"} value=${text}
        role="combobox" aria-expanded=${suggestions.length > 0} aria-controls="suggestions" aria-autocomplete="list" aria-activedescendant=${suggestions.length > 0 ? `suggestion-${selected}` : undefined}
        onInput=${(/** @type {any} */ event) => { setText(event.target.value); void complete(); }} onKeyDown=${onKeyDown} onPaste=${onPaste} onBlur=${() => setSuggestions([])}></textarea>
      <div class="composer-bar">
        <input ref=${picker} type="file" multiple class="hidden" tabindex="-1" aria-label="Files to attach" onChange=${(/** @type {any} */ event) => { void attach([...event.target.files]); event.target.value = ""; }} />
        <button type="button" class="quiet icon-button" aria-label="Attach files" title="Attach files" onClick=${() => picker.current?.click()}><${Icon} name="clip" /></button>
        <${Settings} session=${session} />
        <span class="spacer"></span>
        ${isBusy && html`<button type="button" class="stop" aria-label="Cancel" onClick=${() => session.cancel()} title="Cancel the turn (Esc)"><${Icon} name="stop" /><span>Cancel</span></button>`}
        <button type="button" class="primary send" aria-label=${isBusy ? "Queue prompt" : "Send prompt"} title=${isBusy ? "Queue (Enter)" : "Send (Enter)"} disabled=${!text.trim() && attachments.length === 0} onClick=${submit}><${Icon} name="send" /></button>
      </div>
    </div>
    ${connectionState.value !== "open" && html`<p class="muted hint">Prompts are kept here and sent when the server is back.</p>`}
  </div>`;
}

/** @param {{session: import("../client.js").LiveSession}} props */
function Queue({ session }) {
  const queue = session.queue.value;
  if (queue.length === 0) return null;
  return html`<ol class="queue" aria-label="Queued prompts">${queue.map((queued) => html`<li key=${queued.key}><span class="tag">queued</span>
    <span class="queue-text"><bdi>${firstLine(promptText(queued.blocks) || "Attachment", 200)}</bdi></span>
    <button type="button" class="quiet icon-button" aria-label="Remove from the queue" onClick=${() => (session.queue.value = queue.filter((other) => other !== queued))}><${Icon} name="close" /></button></li>`)}</ol>`;
}

/** @param {{session: import("../client.js").LiveSession}} props */
function Settings({ session }) {
  // Settings change with the state.
  session.revision.value;
  return html`${settings(session.state).map((setting) => (typeof setting.current === "boolean"
    ? html`<label class="check setting" key=${setting.id}><input type="checkbox" checked=${setting.current} onChange=${(/** @type {any} */ event) => session.set(setting, event.target.checked)} /> ${setting.name}</label>`
    : html`<label class="setting" key=${setting.id}><span class="hidden">${setting.name}</span>
      <select data-setting=${setting.category} title=${setting.name} value=${setting.current} onChange=${(/** @type {any} */ event) => session.set(setting, event.target.value)}>
        ${setting.choices.map(({ group, choices }) => {
          const options = choices.map((choice) => html`<option value=${choice.value} selected=${choice.value === setting.current} title=${choice.description ?? undefined}>${visible(choice.name)}</option>`);
          return group ? html`<optgroup label=${group}>${options}</optgroup>` : options;
        })}
      </select></label>`))}`;
}
