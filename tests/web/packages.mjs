// Finds the npm packages that the tests use: below BOWLINE_WEB_PACKAGES, else beside this file.

import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The directory of the tests. */
export const testsDir = dirname(fileURLToPath(import.meta.url));

/** The directory of the page's files. */
export const assetsDir = join(testsDir, "../../crates/bowline-web/assets");

/** The directory that has `node_modules`. */
export const packagesDir = process.env.BOWLINE_WEB_PACKAGES ?? testsDir;

/** Loads a CommonJS package. */
export const requirePackage = createRequire(join(packagesDir, "package.json"));
