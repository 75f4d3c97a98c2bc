// Keys for the whole page, and the help that lists them. One listener hears them all, so that a key has one meaning.

import { html, signal } from "./lib.js";
import { me } from "./client.js";
import { toggleLayout } from "./diff.js";
import { sessions } from "./overview-store.js";
import { ignoreWhitespace, toggleTheme } from "./preferences.js";
import { go, route } from "./router.js";
import { Dialog } from "./ui.js";
import { showNewSession } from "./views/new-session.js";

/** @type {[string, [string, string][]][]} */
const KEYS = [
  ["Everywhere", [["?", "show this help"], ["g o", "all sessions"], ["g a", "audit log"], ["g s", "server status"], ["j k", "next, previous session"], ["w", "next session that waits"], ["c", "new session"], ["/", "search, or write a prompt"], ["t", "light or dark"]]],
  ["In a session", [["g c", "conversation"], ["g d", "changes"], ["g w", "wire"], ["Esc", "cancel the turn, or leave the prompt while a question is open"], ["Enter", "send, or queue while a turn runs (on a touch screen, the button does; Ctrl Enter everywhere)"], ["Shift Enter", "new line"], ["↑", "in an empty prompt, the one before"], ["f", "find in the conversation, as Ctrl F"]]],
  ["Permission requests", [["y", "allow once"], ["s", "allow in this session"], ["p", "always allow"], ["n", "reject"], ["r", "reject with a reason"], ["v", "unified or side by side"], ["b", "ignore white space"]]],
];

const isShown = signal(false);

/** Whether the key before was `g`, which gives the next one another meaning. */
let hasPrefix = false;

/** What open views do with keys, before the page does. @type {Set<(key: string) => boolean>} */
const viewKeys = new Set();

/** Lets a view handle keys, and returns what ends it. @param {(key: string) => boolean} handler returns whether it did something */
export function addKeys(handler) {
  viewKeys.add(handler);
  return () => void viewKeys.delete(handler);
}

/** @param {EventTarget|null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));
}

export function showHelp() {
  isShown.value = true;
}

/** Moves to another session of the list. @param {number} step @param {boolean} onlyWaiting */
function move(step, onlyWaiting) {
  const list = (sessions.value ?? []).filter((session) => !onlyWaiting || session.state === "waiting");
  if (list.length === 0) return;
  const index = list.findIndex((session) => session.id === route.value.id);
  const target = list[(index + step + list.length) % list.length];
  if (target) go({ view: "session", id: target.id });
}

/** Shows the view that a key after `g` names. @param {string} key @returns {boolean} whether it did something */
function goTo(key) {
  const { id } = route.value;
  const target = { o: "overview", a: "audit", s: "status", c: id && "session", d: id && "changes", w: id && "wire" }[key];
  if (target) go({ view: /** @type {any} */ (target), id });
  return Boolean(target);
}

/** @param {string} key @returns {boolean} whether it did something */
function handle(key) {
  switch (key) {
    case "?":
      showHelp();
      return true;
    case "g":
      hasPrefix = true;
      return true;
    case "j":
      move(1, false);
      return true;
    case "k":
      move(-1, false);
      return true;
    case "w":
      move(1, true);
      return true;
    case "c":
      if (me.value?.role === "observer") return false;
      showNewSession();
      return true;
    case "t":
      toggleTheme();
      return true;
    case "v":
      toggleLayout();
      return true;
    case "b":
      ignoreWhitespace.value = !ignoreWhitespace.value;
      return true;
    case "/": {
      const target = document.getElementById("prompt") ?? document.getElementById("search");
      target?.focus();
      return target !== null;
    }
    default:
      return false;
  }
}

/** @param {KeyboardEvent} event */
function onKeyDown(event) {
  const { key, repeat } = event;
  if (["Shift", "Control", "Alt", "Meta", "CapsLock"].includes(key)) return;
  const isPrefixed = hasPrefix;
  hasPrefix = false;
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTyping(event.target) || document.querySelector("dialog[open]")) return;
  const isDone = isPrefixed ? goTo(key) : (!repeat && [...viewKeys].some((handler) => handler(key))) || handle(key);
  if (isDone) event.preventDefault();
}

/** Listens from here on. */
export function startKeyboard() {
  document.addEventListener("keydown", onKeyDown);
}

/** The help. */
export function Keyboard() {
  if (!isShown.value) return null;
  return html`<${Dialog} title="Keys" wide onClose=${() => (isShown.value = false)}>
    <div class="keys">${KEYS.map(([title, keys]) => html`<section><h3>${title}</h3><dl>${keys.map(([key, text]) => html`<div><dt>${key.split(" ").map((part) => html`<kbd>${part}</kbd>`)}</dt><dd>${text}</dd></div>`)}</dl></section>`)}</div>
  <//>`;
}
