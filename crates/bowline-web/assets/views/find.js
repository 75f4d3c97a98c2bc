// Find in a conversation: the browser's own find sees only the entries that are in sight.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { Icon } from "../icons.js";
import { itemText } from "../store.js";

/** @typedef {import("../types.js").Item} Item */

/** The name of the highlight in the style sheet. */
const HIGHLIGHT = "found";

/** Normalized texts, by entry, with the version that they are of. @type {WeakMap<Item, {version: number, text: string}>} */
const texts = new WeakMap();

/** Returns a text without what markdown hides, and without case. @param {string} text */
function normalize(text) {
  return text.toLowerCase().replace(/[*`]/g, "");
}

/** @param {Item} item */
function searchText(item) {
  const known = texts.get(item);
  if (known?.version === item.version) return known.text;
  const text = normalize(itemText(item));
  texts.set(item, { version: item.version, text });
  return text;
}

/** Returns the keys of the entries that have a text. @param {Item[]} items @param {string} query @returns {string[]} */
export function findItems(items, query) {
  const wanted = normalize(query.trim());
  return wanted ? items.filter((item) => searchText(item).includes(wanted)).map(({ key }) => key) : [];
}

/** Returns the place among `found` of the first entry that is not before the one with a key. @param {string[]} found @param {Item[]} items @param {string} from */
function placeFrom(found, items, from) {
  const after = new Set(items.slice(items.findIndex(({ key }) => key === from)).map(({ key }) => key));
  return Math.max(0, found.findIndex((key) => after.has(key)));
}

/** Marks a text in the entry with a key, as far as that is shown. @param {string} key @param {string} query */
function highlight(key, query) {
  if (!("highlights" in CSS)) return;
  const row = document.querySelector(`.conversation [data-key="${CSS.escape(key)}"]`);
  /** The nodes of the row, each with where it begins in the row's text. @type {[Node, number][]} */
  const nodes = [];
  let text = "";
  for (const walker = row && document.createTreeWalker(row, NodeFilter.SHOW_TEXT); walker?.nextNode();) {
    nodes.push([walker.currentNode, text.length]);
    text += walker.currentNode.nodeValue?.toLowerCase() ?? "";
  }
  const ranges = [];
  for (let at = query ? text.indexOf(query) : -1; at >= 0; at = text.indexOf(query, at + query.length)) {
    const range = new Range();
    const end = at + query.length;
    for (const [node, start] of nodes) {
      if (start <= at) range.setStart(node, Math.min(at - start, node.nodeValue?.length ?? 0));
      if (start < end) range.setEnd(node, Math.min(end - start, node.nodeValue?.length ?? 0));
    }
    ranges.push(range);
  }
  CSS.highlights.set(HIGHLIGHT, new Highlight(...ranges));
}

/**
 * @param {{items: Item[], revision: number, onShow: (key: string) => void, onClose: () => void}} props
 * `onShow` is called with the entry that is to be shown.
 */
export function Find({ items, revision, onShow, onClose }) {
  const input = useRef(/** @type {HTMLInputElement|null} */ (null));
  const [query, setQuery] = useState("");
  const [current, setCurrent] = useState("");
  const found = useMemo(() => findItems(items, query), [items, query, revision]);
  const place = found.indexOf(current);

  const show = (/** @type {string} */ key) => {
    setCurrent(key);
    if (key) onShow(key);
  };
  const step = (/** @type {number} */ by) => show(found[(place + by + found.length) % found.length] ?? "");
  const onInput = (/** @type {any} */ event) => {
    const text = event.target.value;
    setQuery(text);
    // The search goes on from the entry that it has found, or from what is in sight.
    const edge = document.querySelector(".conversation .scroller")?.getBoundingClientRect().top ?? 0;
    const rows = [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".conversation [data-key]"))];
    const from = current || (rows.find((row) => row.getBoundingClientRect().bottom > edge)?.dataset.key ?? "");
    const next = findItems(items, text);
    show(next[placeFrom(next, items, from)] ?? "");
  };
  const close = () => {
    onClose();
    // On from there by keys.
    /** @type {HTMLElement|null|undefined} */ (document.querySelector(`.conversation [data-key="${CSS.escape(current)}"] .item`) ?? document.getElementById("main"))?.focus({ preventScroll: true });
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    // Elsewhere, Escape cancels the turn.
    event.stopPropagation();
    event.preventDefault();
    if (event.key === "Escape") close();
    else if (found.length > 0) step(event.shiftKey ? -1 : 1);
  };

  useLayoutEffect(() => input.current?.focus(), []);
  useEffect(() => highlight(current, normalize(query.trim())));
  useEffect(() => () => void ("highlights" in CSS && CSS.highlights.delete(HIGHLIGHT)), []);

  return html`<div class="find" role="search" onKeyDown=${onKeyDown}>
    <label class="search"><${Icon} name="search" /><span class="hidden">Find in the conversation</span><input type="search" id="find" ref=${input} placeholder="Find" value=${query} onInput=${onInput} /></label>
    <span class="muted find-count" role="status">${query.trim() && (found.length === 0 ? "Nothing found" : `${place + 1} of ${found.length}`)}</span>
    <button type="button" class="quiet icon-button find-previous" aria-label="Previous" disabled=${found.length === 0} onClick=${() => step(-1)}><${Icon} name="chevron" /></button>
    <button type="button" class="quiet icon-button find-next" aria-label="Next" disabled=${found.length === 0} onClick=${() => step(1)}><${Icon} name="chevron" /></button>
    <button type="button" class="quiet icon-button" aria-label="Close" onClick=${close}><${Icon} name="close" /></button>
  </div>`;
}
