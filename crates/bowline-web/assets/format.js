// Values as short texts for people.

/** @param {number} count @param {string} one @param {string} [many] */
export function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** Returns how long ago a time was. @param {number} at @param {number} now milliseconds */
export function age(at, now) {
  const seconds = Math.max(0, Math.round((now - at) / 1000));
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  if (seconds < 30 * 86400) return plural(Math.floor(seconds / 86400), "day");
  return new Date(at).toISOString().slice(0, 10);
}

/** Returns a duration in its two largest units. @param {number} seconds */
export function duration(seconds) {
  const units = /** @type {[string, number][]} */ ([["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]);
  const first = units.findIndex(([, size]) => seconds >= size);
  if (first < 0) return "0 s";
  let rest = Math.floor(seconds);
  return units.slice(first, first + 2).map(([name, size]) => {
    const count = Math.floor(rest / size);
    rest -= count * size;
    return count > 0 ? `${count} ${name}` : "";
  }).filter(Boolean).join(" ");
}

/** @param {number} at milliseconds */
export function clockTime(at) {
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

/** @param {number} at milliseconds */
export function dateTime(at) {
  const date = new Date(at);
  return `${date.toLocaleDateString("en-CA")} ${date.toLocaleTimeString("en-GB")}`;
}

/** Returns a count with a unit, such as `12.3k`. @param {number} count */
export function compact(count) {
  if (count < 1000) return String(count);
  if (count < 100_000) return `${(count / 1000).toFixed(1)}k`;
  if (count < 1_000_000) return `${Math.round(count / 1000)}k`;
  return `${(count / 1_000_000).toFixed(1)}M`;
}

/** @param {import("./types.js").Usage} usage */
export function usageText(usage) {
  const share = usage.size > 0 ? `${Math.round((usage.used / usage.size) * 100)}%` : compact(usage.used);
  return usage.cost ? `${share} · ${costText(usage.cost)}` : share;
}

/** @param {{amount: number, currency: string}} cost */
export function costText({ amount, currency }) {
  const digits = amount < 0.1 ? 4 : 2;
  return currency === "USD" ? `$${amount.toFixed(digits)}` : `${amount.toFixed(digits)} ${currency}`;
}

/** Returns a path relative to a directory, if it is below it. @param {string} path @param {string} directory */
export function relativePath(path, directory) {
  const base = directory.endsWith("/") ? directory : `${directory}/`;
  return path.startsWith(base) ? path.slice(base.length) : path;
}

/** Returns a text in which paths below a directory are relative to it. @param {string} text @param {string} directory */
export function withRelativePaths(text, directory) {
  if (!directory || directory === "/") return text;
  return text.split(directory.endsWith("/") ? directory : `${directory}/`).join("");
}

/** @param {string} path */
export function baseName(path) {
  return path.replace(/\/+$/, "").split("/").pop() || path;
}

/** Returns the last segments of a path, marked if something is left out. @param {string} path */
export function shortPath(path) {
  const parts = path.split("/").filter(Boolean);
  return parts.length <= 3 ? path : `…/${parts.slice(-2).join("/")}`;
}

// Bidirectional controls reorder the text around them, and other controls are invisible.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

/** Returns a text with its invisible characters written out. @param {string} text */
export function visible(text) {
  return text.replace(HIDDEN, writeOut);
}

/** @param {string} character */
function writeOut(character) {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
}

// What reorders or hides text. Marks and joiners are part of many languages and of emoji, and stay.
const HIDDEN_IN_PROSE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\u{e0000}-\u{e007f}]/gu;

/** Returns prose with those of its invisible characters written out that can deceive. @param {string} text */
export function visibleProse(text) {
  return text.replace(/\r\n/g, "\n").replace(HIDDEN_IN_PROSE, writeOut);
}

/** Returns a message of a program as the beginning of a sentence. @param {string} text */
export function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Returns the first line of a text, shortened. @param {string} text @param {number} limit */
export function firstLine(text, limit) {
  const line = visible(text.split("\n", 1)[0] ?? "");
  return line.length > limit ? `${line.slice(0, limit)}…` : line;
}

// Sequences of a terminal: CSI, OSC, DCS and single escapes.
const SEQUENCE = /\u001b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[ -/]*[0-~])/g;

/** Returns a terminal's output as plain text. @param {string} text */
export function plainOutput(text) {
  return visible(text.replace(SEQUENCE, "").replace(/\r\n/g, "\n").replace(/[^\n]*\r(?!\n)/g, ""));
}
