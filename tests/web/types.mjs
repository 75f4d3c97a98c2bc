// Checks the types of the page's modules, which are in their comments, with the TypeScript compiler.

import { spawnSync } from "node:child_process";
import { cp, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { assetsDir, packagesDir, testsDir } from "./packages.mjs";

/** Returns the compiler's complaints, one in a line; empty if there are none. */
export async function checkTypes() {
  const directory = await mkdtemp(join(tmpdir(), "bowline-types-"));
  const modules = join(packagesDir, "node_modules");
  const options = {
    target: "es2023", module: "esnext", moduleResolution: "bundler", lib: ["es2023", "dom", "dom.iterable", "dom.asynciterable"],
    allowJs: true, checkJs: true, strict: true, noEmit: true, skipLibCheck: true, noUncheckedIndexedAccess: true, noUnusedLocals: true, noUnusedParameters: true, types: [],
    paths: { "preact/hooks": [join(modules, "preact/hooks/src/index.d.ts")], "preact": [join(modules, "preact/src/index.d.ts")], "*": [join(modules, "*")] },
  };
  const project = join(directory, "tsconfig.json");
  // In place of the vendored files, the copy has the types of their packages.
  await cp(assetsDir, directory, { recursive: true, filter: (source) => basename(source) !== "vendor" });
  await cp(join(testsDir, "types"), directory, { recursive: true });
  await writeFile(project, JSON.stringify({ compilerOptions: options, include: ["*.js", "views/*.js"] }));
  try {
    const run = spawnSync(process.execPath, [join(modules, "typescript/bin/tsc"), "-p", project, "--pretty", "false"], { encoding: "utf8", cwd: directory });
    return (run.stdout + run.stderr).trim();
  } finally {
    await rm(directory, { recursive: true });
  }
}
