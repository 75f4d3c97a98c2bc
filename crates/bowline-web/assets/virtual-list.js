// A list that renders only the rows in sight, of any height. It stays at its end while it grows, unless a person scrolls
// back.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";

/** The height of a row that was never rendered. */
const ESTIMATE = 90;

/** How far beyond the visible part rows are rendered, in pixels. */
const OVERSCAN = 800;

/** How far below the upper edge a row is that the list was taken to, in pixels. */
const TARGET_OFFSET = 60;

/** How close to the end counts as being there, in pixels. */
const END_SLACK = 48;

/**
 * Returns the rows to render and the space before and after them.
 * @param {number[]} heights @param {number} top @param {number} height of the visible part
 */
export function visibleRange(heights, top, height) {
  const from = top - OVERSCAN;
  const to = top + height + OVERSCAN;
  let offset = 0;
  let start = 0;
  while (start < heights.length - 1 && offset + /** @type {number} */ (heights[start]) < from) {
    offset += /** @type {number} */ (heights[start]);
    start += 1;
  }
  let end = start;
  let bottom = offset;
  while (end < heights.length && bottom < to) {
    bottom += /** @type {number} */ (heights[end]);
    end += 1;
  }
  let after = 0;
  for (let row = end; row < heights.length; row += 1) after += /** @type {number} */ (heights[row]);
  return { start, end, before: offset, after };
}

/**
 * The heights of the rows of the list `id`, with its first and last key, and those of all rows that were ever rendered.
 * @typedef {{id: string, first: string, last: string, heights: number[], known: Map<string, number>}} RowHeights
 */

/**
 * Adds the heights of rows that are new at the end, or begins anew if others are new.
 * @param {RowHeights} list @param {string} id @param {{key: string}[]} items
 */
export function updateHeights(list, id, items) {
  if (list.id !== id) list.known.clear();
  const count = list.heights.length;
  const isContinued = list.id === id && list.first === items[0]?.key && list.last === items[count - 1]?.key;
  if (!isContinued) list.heights = [];
  for (const { key } of items.slice(list.heights.length)) list.heights.push(list.known.get(key) ?? ESTIMATE);
  Object.assign(list, { id, first: items[0]?.key, last: items[items.length - 1]?.key });
  return list.heights;
}

/**
 * @template {{key: string, version: number}} T
 * @param {{items: T[], revision: number, label: string, busy: boolean, row: (item: T, index: number) => any, id: string, isFeed?: boolean, follows?: boolean, target?: {key: string}|null, header?: any, footer?: any}} props
 * `follows` takes the list to its end when it becomes true, and a new `target` takes it to a row.
 */
export function VirtualList({ items, revision, label, busy, row, id, isFeed, follows, target, header, footer }) {
  const scroller = useRef(/** @type {HTMLDivElement|null} */ (null));
  const atEnd = useRef(true);
  // Where the list was, which tells a person who scrolls back from rows that came meanwhile.
  const lastTop = useRef(0);
  // The row that was opened while the list was at its end.
  const opened = useRef("");
  const [, redraw] = useState(0);
  const [view, setView] = useState({ top: Infinity, height: 800 });
  const [away, setAway] = useState(false);
  // The row that keeps its place when heights above it change, and where it is.
  const anchor = useRef(/** @type {{key: string, offset: number}|null} */ (null));

  // Of ten thousand rows, a few are new in a frame.
  const list = useRef(/** @type {RowHeights} */ ({ id: "", first: "", last: "", heights: [], known: new Map() }));
  const heights = updateHeights(list.current, id, items);
  const total = heights.reduce((sum, height) => sum + height, 0);
  const top = atEnd.current ? Math.max(0, total - view.height) : Math.min(view.top, total);
  const range = visibleRange(heights, top, view.height);
  const firstRow = useRef(0);
  firstRow.current = range.start;

  const measure = () => {
    const element = scroller.current;
    if (!element) return;
    const { known, heights } = list.current;
    let changed = false;
    let place = firstRow.current;
    for (const child of element.querySelectorAll("[data-key]")) {
      const node = /** @type {HTMLElement} */ (child);
      const key = /** @type {string} */ (node.dataset.key);
      const height = node.getBoundingClientRect().height;
      if (Math.abs((known.get(key) ?? -1) - height) > 0.5) {
        known.set(key, height);
        heights[place] = height;
        changed = true;
      }
      place += 1;
    }
    if (changed) redraw((count) => count + 1);
  };

  const remember = () => {
    const element = scroller.current;
    if (!element) return;
    const edge = element.getBoundingClientRect().top;
    for (const child of element.querySelectorAll("[data-key]")) {
      const box = child.getBoundingClientRect();
      if (box.bottom > edge) {
        anchor.current = { key: /** @type {HTMLElement} */ (child).dataset.key ?? "", offset: box.top - edge };
        return;
      }
    }
  };

  const scrollTo = (/** @type {HTMLDivElement} */ element, /** @type {number} */ position) => {
    element.scrollTop = position;
    lastTop.current = element.scrollTop;
  };

  /** Goes to the end, or only as far as the row that was opened stays in sight. @param {HTMLDivElement} element */
  const followEnd = (element) => {
    const row = opened.current && element.querySelector(`[data-key="${CSS.escape(opened.current)}"]`);
    const top = row ? element.scrollTop + row.getBoundingClientRect().top - element.getBoundingClientRect().top : Infinity;
    if (top < element.scrollHeight - element.clientHeight) {
      anchor.current = { key: opened.current, offset: 0 };
      opened.current = "";
      atEnd.current = false;
      setAway(true);
    }
    scrollTo(element, Math.min(top, element.scrollHeight));
  };

  const onScroll = () => {
    const element = scroller.current;
    if (!element) return;
    const distance = element.scrollHeight - element.scrollTop - element.clientHeight;
    if (distance < END_SLACK) atEnd.current = true;
    else if (element.scrollTop < lastTop.current - 1) atEnd.current = false;
    lastTop.current = element.scrollTop;
    setAway(!atEnd.current);
    remember();
    setView({ top: element.scrollTop, height: element.clientHeight });
  };

  useLayoutEffect(() => {
    atEnd.current = true;
    setAway(false);
  }, [id]);

  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    measure();
    if (atEnd.current) {
      followEnd(element);
      return;
    }
    const kept = anchor.current && element.querySelector(`[data-key="${CSS.escape(anchor.current.key)}"]`);
    if (kept && anchor.current) {
      const moved = kept.getBoundingClientRect().top - element.getBoundingClientRect().top - anchor.current.offset;
      if (Math.abs(moved) > 1) scrollTo(element, element.scrollTop + moved);
    }
  });

  useEffect(() => {
    const element = scroller.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(() => {
      setView((old) => (old.height === element.clientHeight ? old : { ...old, height: element.clientHeight }));
      measure();
      if (atEnd.current) followEnd(element);
    });
    observer.observe(element);
    const inner = element.firstElementChild;
    if (inner) observer.observe(inner);
    return () => observer.disconnect();
  }, []);

  const toEnd = () => {
    atEnd.current = true;
    opened.current = "";
    setAway(false);
    redraw((count) => count + 1);
  };

  useLayoutEffect(() => {
    if (follows) toEnd();
  }, [follows]);

  useLayoutEffect(() => {
    const element = scroller.current;
    const place = target ? items.findIndex((item) => item.key === target.key) : -1;
    if (!element || !target || place < 0) return;
    atEnd.current = false;
    setAway(true);
    // Most heights before it may be estimates: it is put in its place once it is rendered.
    anchor.current = { key: target.key, offset: TARGET_OFFSET };
    scrollTo(element, heights.slice(0, place).reduce((sum, height) => sum + height, 0) - TARGET_OFFSET);
    setView({ top: element.scrollTop, height: element.clientHeight });
  }, [target]);

  const onClick = (/** @type {any} */ event) => {
    const row = event.target.closest("[aria-expanded=false]")?.closest("[data-key]");
    opened.current = row && atEnd.current ? row.dataset.key : "";
  };

  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.target !== scroller.current) return;
    if (event.key === "End") {
      event.preventDefault();
      toEnd();
    }
    if (event.key === "Home" && scroller.current) {
      event.preventDefault();
      atEnd.current = false;
      scroller.current.scrollTop = 0;
    }
  };

  return html`<div class="virtual" data-revision=${revision}>
    <div class="scroller" ref=${scroller} onScroll=${onScroll} onClickCapture=${onClick} onKeyDown=${onKeyDown} tabindex="0" role="region" aria-label=${label}>
      <div class="scroller-inner">
        ${header}
        <div ...${isFeed && items.length > 0 ? { role: "feed", "aria-label": label, "aria-busy": busy ? "true" : "false" } : {}} style=${{ paddingTop: `${range.before}px`, paddingBottom: `${range.after}px` }}>
          ${items.slice(range.start, range.end).map((item, offset) => html`<div key=${item.key} data-key=${item.key} class="virtual-row">${row(item, range.start + offset)}</div>`)}
        </div>
        ${footer}
      </div>
    </div>
    ${away && html`<button type="button" class="to-end" onClick=${toEnd}>Latest</button>`}
  </div>`;
}
