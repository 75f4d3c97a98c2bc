// A command's output in xterm.js, which is loaded when the first terminal is opened.
//
// Output comes from programs, so sequences with effects outside of the terminal are dropped: links (OSC 8), the
// clipboard (OSC 52), notifications and titles. Nothing is ever typed into it.

import { html, useEffect, useRef, useState } from "./lib.js";
import { plainOutput } from "./format.js";
import { isDark } from "./preferences.js";

/** @typedef {import("./types.js").TerminalOutput} TerminalOutput */

/** The most rows of the screen. */
const MAX_ROWS = 24;

/** The OSC sequences that are dropped: titles, directories, links, notifications, the clipboard, images. */
const DROPPED_OSC = [0, 1, 2, 7, 8, 9, 52, 99, 133, 633, 777, 1337];

/** @type {Promise<{Terminal: any, FitAddon: any}>|undefined} */
let library;

function loadLibrary() {
  library ??= Promise.all([import("./vendor/xterm.js"), import("./vendor/xterm-addon-fit.js"), loadStyle()])
    .then(([{ Terminal }, { FitAddon }]) => {
      Object.defineProperty(document, "createElement", { value: createElement, configurable: true });
      return { Terminal, FitAddon };
    });
  library.catch(() => {
    library = undefined;
  });
  return library;
}

/** @returns {Promise<void>} */
function loadStyle() {
  return new Promise((resolve, reject) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    link.href = new URL("./vendor/xterm.css", import.meta.url).href;
    link.addEventListener("load", () => resolve());
    link.addEventListener("error", () => reject(new Error("the terminal's styles cannot be loaded")));
    document.head.append(link);
  });
}

// The content security policy forbids style elements and attributes that scripts make of text, but not style sheets and
// declarations that they construct. So xterm.js gets elements that do the latter. It has an option for its document, but
// some of its parts ignore it.

/** @param {string} tag */
function createElement(tag) {
  const element = Document.prototype.createElement.call(document, tag === "style" ? "span" : tag);
  if (tag === "style") {
    const sheet = new CSSStyleSheet();
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    element.hidden = true;
    Object.defineProperty(element, "textContent", { set: (/** @type {string} */ text) => sheet.replaceSync(text), get: () => "" });
    element.remove = () => {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet);
      Element.prototype.remove.call(element);
    };
  } else if (tag === "span") {
    element.setAttribute = (name, value) => {
      if (name === "style") element.style.cssText = value;
      else Element.prototype.setAttribute.call(element, name, value);
    };
  }
  return element;
}

/** Returns a colour of the page as xterm.js understands it. @param {HTMLElement} element @param {string} name */
function colour(element, name) {
  element.style.color = `var(${name})`;
  const { color } = getComputedStyle(element);
  element.style.color = "";
  return color;
}

/** Returns the page's colours for xterm.js. @param {HTMLElement} element */
function colours(element) {
  const shade = (/** @type {string} */ name) => colour(element, name);
  return {
    background: shade("--code-bg"), foreground: shade("--text"), cursor: shade("--code-bg"), selectionBackground: shade("--selection"),
    red: shade("--red"), green: shade("--green"), yellow: shade("--amber"), cyan: shade("--accent"), brightBlack: shade("--muted"),
    brightRed: shade("--red"), brightGreen: shade("--green"), brightYellow: shade("--amber"), brightCyan: shade("--accent"),
  };
}

/** @param {{output: TerminalOutput, length: number, label: string}} props `length` makes a change visible */
export function TerminalView({ output, length, label }) {
  const host = useRef(/** @type {HTMLDivElement|null} */ (null));
  const written = useRef(0);
  const [terminal, setTerminal] = useState(/** @type {any} */ (null));
  const [isPlain, setPlain] = useState(false);

  useEffect(() => {
    /** @type {any} */
    let made = null;
    /** @type {ResizeObserver|null} */
    let observer = null;
    let isGone = false;
    loadLibrary().then(({ Terminal, FitAddon }) => {
      const element = host.current;
      if (isGone || !element) return;
      made = new Terminal({
        disableStdin: true, convertEol: true, scrollback: 5000, rows: 4, fontSize: 12.5, allowProposedApi: false, cursorInactiveStyle: "none",
        fontFamily: getComputedStyle(element).getPropertyValue("--mono"), screenReaderMode: false, linkHandler: null,
        theme: colours(element), minimumContrastRatio: 4.5,
      });
      for (const code of DROPPED_OSC) made.parser.registerOscHandler(code, () => true);
      const fit = new FitAddon();
      made.loadAddon(fit);
      made.open(element);
      made.textarea?.setAttribute("tabindex", "-1");
      const resize = () => {
        const columns = fit.proposeDimensions()?.cols;
        if (columns && columns !== made.cols) made.resize(columns, made.rows);
      };
      resize();
      observer = new ResizeObserver(resize);
      observer.observe(element);
      setTerminal(made);
    }, () => setPlain(true));
    return () => {
      isGone = true;
      observer?.disconnect();
      made?.dispose();
    };
  }, []);

  useEffect(() => {
    if (!terminal) return;
    const from = Math.max(0, written.current - output.dropped);
    const text = output.text.slice(from);
    written.current = output.dropped + output.text.length;
    if (!text) return;
    terminal.write(text, () => {
      const used = Math.min(MAX_ROWS, Math.max(2, terminal.buffer.active.baseY + terminal.buffer.active.cursorY + 1));
      if (used > terminal.rows) terminal.resize(terminal.cols, used);
    });
  }, [terminal, length]);

  useEffect(() => {
    if (terminal && host.current) terminal.options.theme = colours(host.current);
  }, [terminal, isDark.value]);

  return html`<div class="terminal-box">
    ${isPlain
      ? html`<pre class="output" tabindex="0">${plainOutput(output.text)}</pre>`
      : html`<div class="terminal" ref=${host} role="group" aria-label=${label}></div><pre class="hidden" data-testid="terminal-text">${plainOutput(output.text.slice(-4000))}</pre>`}
    <${ExitNote} exit=${output.exit} />
  </div>`;
}

/** @param {{exit: TerminalOutput["exit"]}} props */
function ExitNote({ exit }) {
  if (!exit) return html`<p class="exit running">Running</p>`;
  if (exit.signal) return html`<p class="exit failed">Ended by ${exit.signal}</p>`;
  return html`<p class=${exit.exitCode ? "exit failed" : "exit"}>Exit code ${exit.exitCode ?? "unknown"}</p>`;
}
