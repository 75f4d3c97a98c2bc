// Markdown: the server makes trees of texts, and the page makes nodes of trees. Text never becomes markup.
//
// While a text grows, only its last block can still change, so only the text from there on is sent.

import { Component, h, html, signal, useEffect, useState } from "./lib.js";
import { post } from "./api.js";
import { visible, visibleProse } from "./format.js";

/** @typedef {import("./types.js").MarkdownNode} MarkdownNode */
/** @typedef {import("./types.js").MarkdownBlock} MarkdownBlock */

/** The least time between two requests for the same text, in milliseconds: more for a long last block. */
const MIN_PAUSE = 40;
const CHARACTERS_PER_MILLISECOND = 400;

/** The most texts whose trees are kept, and their characters. */
const MAX_CACHED = 2000;
const MAX_CACHED_SIZE = 8 << 20;

/** The longest text that is sent; a longer one is shown as it is. */
const MAX_LENGTH = 1 << 20;

/** The tags that a tree may have. */
const TAGS = new Set(["p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "em", "strong", "del", "a",
  "table", "thead", "tbody", "tr", "th", "td", "hr", "br", "input"]);

/**
 * The trees of one text, as far as they are known.
 * @typedef {object} Tree
 * @property {MarkdownBlock[]} blocks
 * @property {number} length how much of the text the blocks cover
 * @property {import("./types.js").Signal<number>} version
 * @property {boolean} isAsked
 * @property {number} askedAt
 */

/** @type {WeakMap<object, Tree>} */
const trees = new WeakMap();

/** Trees of whole texts, so that a replayed conversation is shown at once. @type {Map<string, MarkdownBlock[]>} */
const cache = new Map();
let cachedSize = 0;

/** @type {{tree: Tree, part: {text: string}, start: number, text: string}[]} */
let requests = [];

/** Returns a tree's blocks after a growing text's tail was parsed again. @param {MarkdownBlock[]} blocks @param {number} start @param {MarkdownBlock[]} tail */
export function joinBlocks(blocks, start, tail) {
  const kept = blocks.filter((block) => block.start < start);
  return [...kept, ...tail.map((block) => ({ start: block.start + start, end: block.end + start, node: block.node }))];
}

/** Returns where the part of a text begins that can still change. @param {MarkdownBlock[]} blocks */
export function tailStart(blocks) {
  return blocks[blocks.length - 1]?.start ?? 0;
}

/** @param {{text: string}} part */
function treeOf(part) {
  let tree = trees.get(part);
  if (!tree) {
    const blocks = cache.get(part.text);
    tree = { blocks: blocks ?? [], length: blocks ? part.text.length : 0, version: signal(0), isAsked: false, askedAt: -Infinity };
    trees.set(part, tree);
  }
  return tree;
}

/** Asks for what is missing of a tree. @param {Tree} tree @param {{text: string}} part */
function update(tree, part) {
  if (tree.isAsked || tree.length >= part.text.length || part.text.length > MAX_LENGTH) return;
  tree.isAsked = true;
  const start = tailStart(tree.blocks);
  const pause = MIN_PAUSE + (part.text.length - start) / CHARACTERS_PER_MILLISECOND;
  const wait = tree.length === 0 ? 0 : Math.max(0, tree.askedAt + pause - performance.now());
  // Rows that appear together are one request.
  if (wait === 0) ask(tree, part);
  else setTimeout(() => ask(tree, part), wait);
}

/** @param {Tree} tree @param {{text: string}} part */
function ask(tree, part) {
  tree.askedAt = performance.now();
  const start = tailStart(tree.blocks);
  if (requests.length === 0) queueMicrotask(send);
  requests.push({ tree, part, start, text: part.text.slice(start) });
}

async function send() {
  const sent = requests;
  requests = [];
  /** @type {{blocks: MarkdownBlock[]}[]|null} */
  let answers = null;
  try {
    answers = (await post("/api/markdown", { texts: sent.map(({ text }) => text) })).trees;
  } catch {
    // The text is shown as it is; the next change asks again.
  }
  sent.forEach(({ tree, part, start, text }, index) => {
    tree.isAsked = false;
    const blocks = answers?.[index]?.blocks;
    if (!blocks) return;
    tree.blocks = joinBlocks(tree.blocks, start, blocks);
    tree.length = start + text.length;
    if (tree.length === part.text.length) remember(part.text, tree.blocks);
    tree.version.value += 1;
    update(tree, part);
  });
}

/** @param {string} text @param {MarkdownBlock[]} blocks */
function remember(text, blocks) {
  if (cache.has(text)) return;
  cache.set(text, blocks);
  cachedSize += text.length;
  for (const old of cache.keys()) {
    if (cache.size <= MAX_CACHED && cachedSize <= MAX_CACHED_SIZE) break;
    cachedSize -= old.length;
    cache.delete(old);
  }
}

/** Shows a text that may still grow. @param {{part: {text: string}, length: number}} props `length` makes a change visible */
export function Markdown({ part }) {
  const tree = treeOf(part);
  // Reading it subscribes this component.
  tree.version.value;
  update(tree, part);
  if (tree.blocks.length === 0) return html`<div class="md"><p class="plain">${visibleProse(part.text)}</p></div>`;
  return html`<div class="md">${tree.blocks.map((block) => h(Block, { key: block.start, block }))}</div>`;
}

/** A block, which is rendered again only if it changed. @extends {Component<{block: MarkdownBlock}>} */
class Block extends Component {
  /** @param {{block: MarkdownBlock}} next */
  shouldComponentUpdate(next) {
    return next.block !== this.props.block;
  }

  render() {
    return toNode(this.props.block.node, 0, false);
  }
}

/** @param {MarkdownNode} node @param {number} depth @param {boolean} isCode whether it is part of code @returns {any} */
function toNode(node, depth, isCode) {
  // Code is copied and run, so none of its characters may be invisible.
  if (typeof node === "string") return isCode ? visible(node) : visibleProse(node);
  // Deeper than this is hostile.
  if (!TAGS.has(node.t) || depth > 64) return visible(textOf(node));
  const children = (node.c ?? []).map((child) => toNode(child, depth + 1, isCode || node.t === "pre" || node.t === "code"));
  const attributes = node.a ?? {};
  switch (node.t) {
    case "a":
      return isSafeAddress(attributes.href)
        ? h("a", { href: attributes.href, rel: "noopener noreferrer", target: "_blank" }, ...children)
        : h("span", {}, ...children);
    case "pre":
      return html`<div class="code" role="group" aria-label=${attributes.lang ? `Code, ${attributes.lang}` : "Code"}>
        <div class="code-head"><span>${attributes.lang ?? ""}</span><${CopyButton} text=${textOf(node)} /></div>
        <pre tabindex="0">${children}</pre>
      </div>`;
    case "table":
      return html`<div class="table-scroll" tabindex="0" role="region" aria-label="Table"><table>${children}</table></div>`;
    case "input":
      return h("input", { type: "checkbox", checked: attributes.checked === true, disabled: true, "aria-label": attributes.checked ? "Done" : "Open" });
    case "ol":
      return h("ol", { start: Number.isInteger(attributes.start) ? attributes.start : 1 }, ...children);
    case "th":
    case "td":
      return h(node.t, { class: ["left", "right", "center"].includes(attributes.align) ? `align-${attributes.align}` : "" }, ...children);
    case "hr":
    case "br":
      return h(node.t, {});
    default:
      return h(node.t, {}, ...children);
  }
}

/** @param {unknown} address */
function isSafeAddress(address) {
  return typeof address === "string" && /^(https?:|mailto:)/i.test(address);
}

/** @param {MarkdownNode} node @returns {string} */
function textOf(node) {
  return typeof node === "string" ? node : (node.c ?? []).map(textOf).join("");
}

/** How long a button says what it did, in milliseconds. */
const FEEDBACK_TIME = 2000;

/** @param {{text: string}} props */
function CopyButton({ text }) {
  const [outcome, setOutcome] = useState("");
  useEffect(() => {
    if (!outcome) return undefined;
    const timer = setTimeout(() => setOutcome(""), FEEDBACK_TIME);
    return () => clearTimeout(timer);
  }, [outcome]);
  const onClick = async () => setOutcome((await copy(text)) ? "Copied" : "Not copied");
  return html`<button type="button" class="quiet small" onClick=${onClick}><span aria-live="polite">${outcome || "Copy"}</span></button>`;
}

/** Copies a text, and returns whether the browser did. @param {string} text */
async function copy(text) {
  const written = navigator.clipboard?.writeText(text).then(() => true, () => false);
  if (await written) return true;
  // Pages that are not secure have no clipboard of their own, but may copy what is selected.
  const onCopy = (/** @type {ClipboardEvent} */ event) => {
    event.preventDefault();
    event.clipboardData?.setData("text/plain", text);
  };
  document.addEventListener("copy", onCopy);
  const isCopied = document.execCommand("copy");
  document.removeEventListener("copy", onCopy);
  return isCopied;
}
