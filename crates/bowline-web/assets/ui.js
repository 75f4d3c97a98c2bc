// Parts that several views share.

import { Component, html, signal, useEffect, useRef } from "./lib.js";
import { Icon } from "./icons.js";
import { age, dateTime, sentence, visible } from "./format.js";

/** The time, for ages; it moves every half minute. */
const now = signal(Date.now());
if (typeof window !== "undefined") setInterval(() => (now.value = Date.now()), 30_000);

/** @param {{at: number}} props */
export function Age({ at }) {
  return html`<time datetime=${new Date(at).toISOString()} title=${dateTime(at)}>${age(at, now.value)}</time>`;
}

/** @type {Record<string, string>} */
const STATE_NAMES = { working: "Working", waiting: "Waiting for you", idle: "Idle", failed: "Failed" };

/** @param {{state: string, compact?: boolean}} props */
export function StateBadge({ state, compact }) {
  const name = STATE_NAMES[state] ?? state;
  return html`<span class=${`state state-${state}${compact ? " compact" : ""}`} title=${compact ? name : undefined}>
    <span class="state-dot" aria-hidden="true"></span><span class=${compact ? "hidden" : ""}>${name}</span>
  </span>`;
}

/** @param {{title: string, onClose: () => void, children?: any, wide?: boolean}} props */
export function Dialog({ title, onClose, children, wide }) {
  const ref = useRef(/** @type {HTMLDialogElement|null} */ (null));
  useEffect(() => {
    const before = /** @type {HTMLElement|null} */ (document.activeElement);
    ref.current?.showModal();
    return () => before?.focus?.();
  }, []);
  return html`<dialog ref=${ref} class=${wide ? "wide" : ""} aria-label=${title} onClose=${onClose}
      onCancel=${(/** @type {Event} */ event) => { event.preventDefault(); onClose(); }}
      onClick=${(/** @type {MouseEvent} */ event) => { if (event.target === ref.current) onClose(); }}>
    <div class="dialog-body">
      <header><h2>${title}</h2><button type="button" class="quiet icon-button" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button></header>
      ${children}
    </div>
  </dialog>`;
}

/** What the user is asked to confirm. */
const confirmation = signal(/** @type {{title: string, text: string, verb: string, resolve: (yes: boolean) => void}|null} */ (null));

/** Asks the user, and returns whether the answer is yes. @param {{title: string, text: string, verb: string}} question @returns {Promise<boolean>} */
export function confirmAction(question) {
  return new Promise((resolve) => {
    confirmation.value?.resolve(false);
    confirmation.value = { ...question, resolve };
  });
}

export function Confirmation() {
  const asked = confirmation.value;
  if (!asked) return null;
  const finish = (/** @type {boolean} */ yes) => {
    confirmation.value = null;
    asked.resolve(yes);
  };
  return html`<${Dialog} title=${asked.title} onClose=${() => finish(false)}>
    <p>${asked.text}</p>
    <footer><button type="button" autofocus onClick=${() => finish(false)}>Keep</button><button type="button" class="danger" onClick=${() => finish(true)}>${asked.verb}</button></footer>
  <//>`;
}

/** Returns whether files are dragged, and not text of the page. @param {DragEvent} event */
export function hasFiles(event) {
  return event.dataTransfer?.types.includes("Files") === true;
}

/** Keeps the browser from leaving the page for a file that is dropped on it, from here on. */
export function keepDroppedFiles() {
  for (const name of /** @type {const} */ (["dragover", "drop"])) {
    document.addEventListener(name, (event) => {
      if (hasFiles(event)) event.preventDefault();
    });
  }
}

/** Short messages about what just happened. */
const toasts = signal(/** @type {{key: number, text: string, isError: boolean}[]} */ ([]));
let toastKey = 0;

/** @param {string} text @param {{isError?: boolean}} [options] */
export function toast(text, { isError = false } = {}) {
  toastKey += 1;
  const key = toastKey;
  toasts.value = [...toasts.value.slice(-3), { key, text, isError }];
  setTimeout(() => {
    toasts.value = toasts.value.filter((other) => other.key !== key);
  }, isError ? 10_000 : 6000);
}

/** Tells the user about an error. @param {unknown} error */
export function reportError(error) {
  toast(visible(sentence(error instanceof Error ? error.message : String(error))), { isError: true });
}

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.value.map(({ key, text, isError }) => html`<div key=${key} class=${isError ? "toast error" : "toast"}>${text}</div>`)}
  </div>`;
}

/** What did not work. @param {{text: string, isPadded?: boolean}} props */
export function Problem({ text, isPadded }) {
  return text ? html`<p class=${isPadded ? "problem pad" : "problem"} role="alert">${visible(sentence(text))}</p>` : null;
}

/** @param {{title: string, children?: any}} props */
export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children}</div>`;
}

/**
 * Shows its children, or a note in their place if they cannot be shown: an agent may send what no view expects. When
 * `of` changes, they are tried again.
 * @extends {Component<{of: unknown, children?: any}, {of: unknown, error: Error|null}>}
 */
export class Boundary extends Component {
  /** @param {{of: unknown}} props @param {{of: unknown, error: Error|null}} state */
  static getDerivedStateFromProps({ of }, state) {
    return of === state.of ? null : { of, error: null };
  }

  /** @param {any} error */
  static getDerivedStateFromError(error) {
    return { error };
  }

  render() {
    const { error } = this.state;
    if (!error) return this.props.children;
    return html`<${Problem} text=${`This cannot be shown: ${error.message ?? error}. The wire view has the messages as they came.`} />`;
  }
}

/** @param {{used: number, size: number}} props */
export function Meter({ used, size }) {
  const share = size > 0 ? Math.min(1, used / size) : 0;
  return html`<span class=${share > 0.85 ? "meter high" : "meter"} aria-hidden="true"><span style=${{ width: `${Math.round(share * 100)}%` }}></span></span>`;
}
