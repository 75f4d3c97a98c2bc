// Compares the vendored files with the npm packages that they come from. `node vendor.mjs --write` copies them anew.
//
// A copy differs from its package in two ways: imports name files instead of packages, because browsers resolve no
// package names, and the last line with the address of a source map is gone, because the maps are not served.

import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { assetsDir, packagesDir } from "./packages.mjs";

const vendorDir = join(assetsDir, "vendor");

const SOURCES = [
  ["preact", "dist/preact.mjs", "preact.js"],
  ["preact", "hooks/dist/hooks.mjs", "preact-hooks.js"],
  ["@preact/signals-core", "dist/signals-core.mjs", "signals-core.js"],
  ["@preact/signals", "dist/signals.mjs", "signals.js"],
  ["htm", "dist/htm.mjs", "htm.js"],
  ["@xterm/xterm", "lib/xterm.mjs", "xterm.js"],
  ["@xterm/xterm", "css/xterm.css", "xterm.css"],
  ["@xterm/addon-fit", "lib/addon-fit.mjs", "xterm-addon-fit.js"],
];

const IMPORTS = { preact: "./preact.js", "preact/hooks": "./preact-hooks.js", "@preact/signals-core": "./signals-core.js" };

/** Returns the text of a package's file as it is vendored. */
function toVendored(text) {
  return text
    .replace(/\bfrom\s*"([^"]+)"/g, (all, name) => (IMPORTS[name] ? `from"${IMPORTS[name]}"` : all))
    .replace(/\n\/\/# sourceMappingURL=.*\s*$/, "\n");
}

function licenseName(name) {
  return `${name.replace("@", "").replace("/", "-")}.LICENSE`;
}

/** Returns what `vendor/` must hold: names and texts, with `vendor.json`. */
export async function vendoredFiles() {
  const files = new Map();
  const list = [];
  for (const [name, source, file] of SOURCES) {
    const directory = join(packagesDir, "node_modules", name);
    const { version } = JSON.parse(await readFile(join(directory, "package.json"), "utf8"));
    const text = toVendored(await readFile(join(directory, source), "utf8"));
    files.set(file, text);
    files.set(licenseName(name), await readFile(join(directory, "LICENSE"), "utf8"));
    list.push({ package: name, version, source, file, sha256: createHash("sha256").update(text).digest("hex"), license: licenseName(name) });
  }
  files.set("vendor.json", `${JSON.stringify(list, null, 2)}\n`);
  return files;
}

/** Returns the vendored text of a file; `undefined` if it is missing. */
export async function readVendored(name) {
  return readFile(join(vendorDir, name), "utf8").catch(() => undefined);
}

if (import.meta.url === pathToFileURL(process.argv[1]).href && process.argv[2] === "--write") {
  await mkdir(vendorDir, { recursive: true });
  for (const [name, text] of await vendoredFiles()) await writeFile(join(vendorDir, name), text);
}
