// Parts that several views share.

import { html, signal, useEffect, useRef } from "./lib.js";
import { Icon } from "./icons.js";
import { age, dateTime } from "./format.js";

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
  }, isError ? 10_000 : 4000);
}

/** Tells the user about an error. @param {unknown} error */
export function reportError(error) {
  toast(error instanceof Error ? error.message : String(error), { isError: true });
}

export function Toasts() {
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.value.map(({ key, text, isError }) => html`<div key=${key} class=${isError ? "toast error" : "toast"}>${text}</div>`)}
  </div>`;
}

/** @param {{title: string, children?: any}} props */
export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p>${children}</div>`;
}

/** @param {{used: number, size: number}} props */
export function Meter({ used, size }) {
  const share = size > 0 ? Math.min(1, used / size) : 0;
  return html`<span class=${share > 0.85 ? "meter high" : "meter"} aria-hidden="true"><span style=${{ width: `${Math.round(share * 100)}%` }}></span></span>`;
}
