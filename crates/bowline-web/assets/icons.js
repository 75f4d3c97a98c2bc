// Small line drawings, in the colour of the text around them.

import { html } from "./lib.js";

/** @type {Record<string, string>} */
const PATHS = {
  plus: "M8 3v10M3 8h10",
  back: "M10 3 5 8l5 5",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10Zm3.6-1.4L14 14",
  archive: "M2.5 3h11v3h-11zM3.5 6v7h9V6M6.5 8.5h3",
  trash: "M3 4.5h10M6 4.5V3h4v1.5M4.5 4.5l.5 8.5h6l.5-8.5",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5Z",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1",
  bell: "M4.5 11V7a3.5 3.5 0 0 1 7 0v4l1 1.5h-9zM6.8 14h2.4",
  chevron: "M6 4l4 4-4 4",
  send: "M8 13V3M4 7l4-4 4 4",
  stop: "M4.5 4.5h7v7h-7z",
  clip: "M11.5 7 7 11.5a2.1 2.1 0 0 1-3-3L9 3.6a1.4 1.4 0 0 1 2 2L6.3 10.3",
  close: "M4 4l8 8M12 4l-8 8",
  check: "M3 8.5 6.5 12 13 4.5",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  edit: "M3 13l.7-3L11 2.7l2.3 2.3L6 12.3z",
  terminal: "M2 3h12v10H2zM4.5 6l2 2-2 2M8.5 10h3",
  globe: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM2 8h12M8 2c2 2 2 10 0 12M8 2c-2 2-2 10 0 12",
  dot: "M8 9.5a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Z",
  warning: "M8 2.5 14.5 13h-13zM8 6.5v3M8 11.2v.3",
  undo: "M3 6h7a3.5 3.5 0 0 1 0 7H6M3 6l3-3M3 6l3 3",
  redo: "M13 6H6a3.5 3.5 0 0 0 0 7h4M13 6l-3-3M13 6l-3 3",
  download: "M8 2.5V10M4.8 7 8 10.2 11.2 7M3 13h10",
  wire: "M2 5h10M9 2l3 3-3 3M14 11H4M7 8l-3 3 3 3",
  help: "M6 6a2 2 0 1 1 2.8 1.8c-.6.3-.8.7-.8 1.4M8 11.5v.2M8 14.5a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13Z",
  diff: "M5 2v12M11 2v12M3 5h4M9 11h4M9 5h4",
};

/** @param {{name: string}} props */
export function Icon({ name }) {
  return html`<svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
    <path d=${PATHS[name] ?? PATHS.dot} fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" />
  </svg>`;
}

/** The mark of the program: a loop of rope. */
export function Mark() {
  return html`<svg class="mark" viewBox="0 0 24 24" width="22" height="22" aria-hidden="true" focusable="false">
    <path d="M6 21V9.5a5.5 5.5 0 1 1 11 0c0 4.5-8 3.5-8 8 0 2 1.4 3.5 3.4 3.5" fill="none" stroke="currentColor" stroke-width="2.2" stroke-linecap="round" />
    <path d="M3 14.5h6.5" fill="none" stroke="currentColor" stroke-width="2.2" stroke-linecap="round" />
  </svg>`;
}
