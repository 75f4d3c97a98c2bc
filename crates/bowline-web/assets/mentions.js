// What is being completed in a prompt: a file after `@`, or a command after `/`. Pure.

/** @typedef {{kind: "file"|"command", start: number, query: string}} Mention */

/** Returns what the text before the cursor completes. @param {string} text @param {number} cursor @returns {Mention|null} */
export function findMention(text, cursor) {
  const before = text.slice(0, cursor);
  const command = /^\/([\w:-]*)$/.exec(before);
  if (command) return { kind: "command", start: 0, query: command[1] ?? "" };
  const file = /(?:^|\s)@([^\s@]*)$/.exec(before);
  if (file) return { kind: "file", start: before.length - (file[1]?.length ?? 0) - 1, query: file[1] ?? "" };
  return null;
}

/** Returns the text with a mention completed, and the cursor after it. @param {string} text @param {number} cursor @param {Mention} mention @param {string} value */
export function completeMention(text, cursor, mention, value) {
  const written = `${mention.kind === "file" ? "@" : "/"}${value} `;
  return { text: text.slice(0, mention.start) + written + text.slice(cursor), cursor: mention.start + written.length };
}

/** Returns the words of a text that are written like files and that the cursor has left. @param {string} text @param {number} cursor */
export function findFileNames(text, cursor) {
  const words = [...text.matchAll(/(?<=^|[\s([{"'])@([^\s@]+)/g)].filter((word) => word.index > cursor || word.index + word[0].length < cursor);
  return [...new Set(words.flatMap(([, name = ""]) => [name, name.replace(PUNCTUATION, "")]))].filter(Boolean);
}

/** What can follow a name at the end of a clause. */
const PUNCTUATION = /[.,;:!?)\]}'"]+$/;

/** Returns whether a text names a file, and not only one whose name begins the same. @param {string} text @param {string} file */
function isMentioned(text, file) {
  const rests = text.split(`@${file}`).slice(1);
  return rests.some((rest) => (rest.split(/\s/, 1)[0] ?? "").replace(PUNCTUATION, "") === "");
}

/** Returns the blocks of a prompt: its text, the files that it names, and the attachments. @param {string} text @param {string[]} files completed before @param {string} root @param {import("./types.js").ContentBlock[]} attachments */
export function toBlocks(text, files, root, attachments) {
  const named = files.filter((file) => isMentioned(text, file));
  return [
    ...(text ? [{ type: "text", text }] : []),
    ...named.map((file) => ({ type: "resource_link", uri: `file://${`${root}/${file}`.split("/").map(encodeURIComponent).join("/")}`, name: file })),
    ...attachments,
  ];
}
