// Keys for the whole page, and the help that lists them.

import { html, signal, useEffect } from "./lib.js";
import { me } from "./client.js";
import { toggleLayout } from "./diff.js";
import { sessions } from "./overview-store.js";
import { ignoreWhitespace, toggleTheme } from "./preferences.js";
import { go, route } from "./router.js";
import { Dialog } from "./ui.js";
import { isTyping } from "./views/approval.js";
import { showNewSession } from "./views/new-session.js";

/** @type {[string, [string, string][]][]} */
const KEYS = [
  ["Everywhere", [["?", "show this help"], ["g o", "all sessions"], ["g a", "audit log"], ["g s", "server status"], ["j k", "next, previous session"], ["w", "next session that waits"], ["c", "new session"], ["/", "search, or write a prompt"], ["t", "light or dark"]]],
  ["In a session", [["g c", "conversation"], ["g d", "changes"], ["g w", "wire"], ["Esc", "cancel the turn, or leave the prompt while a question is open"], ["Enter", "send, or queue while a turn runs"], ["Shift Enter", "new line"]]],
  ["Permission requests", [["y", "allow once"], ["s", "allow in this session"], ["p", "always allow"], ["n", "reject"], ["r", "reject with a reason"], ["v", "unified or side by side"], ["b", "ignore white space"]]],
];

const isShown = signal(false);
let prefix = false;

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

/** @param {string} key @returns {boolean} whether it did something */
function handle(key) {
  const { id } = route.value;
  if (prefix) {
    prefix = false;
    const target = { o: "overview", a: "audit", s: "status", c: id && "session", d: id && "changes", w: id && "wire" }[key];
    if (target) go({ view: /** @type {any} */ (target), id });
    return Boolean(target);
  }
  switch (key) {
    case "?":
      showHelp();
      return true;
    case "g":
      prefix = true;
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

export function Keyboard() {
  useEffect(() => {
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTyping(event.target) || document.querySelector("dialog[open]")) return;
      if (handle(event.key)) event.preventDefault();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  if (!isShown.value) return null;
  return html`<${Dialog} title="Keys" wide onClose=${() => (isShown.value = false)}>
    <div class="keys">${KEYS.map(([title, keys]) => html`<section><h3>${title}</h3><dl>${keys.map(([key, text]) => html`<div><dt>${key.split(" ").map((part) => html`<kbd>${part}</kbd>`)}</dt><dd>${text}</dd></div>`)}</dl></section>`)}</div>
  <//>`;
}
