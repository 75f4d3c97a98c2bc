// Finds a Chromium: the system's, or else the one that comes as a package. As a program, it checks that it starts.

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import { packagesDir, requirePackage } from "./packages.mjs";

const PACKAGE = "@sparticuz/chromium";

/** Returns the browser's program. */
export async function findBrowser() {
  const system = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
  return system && !process.env.BOWLINE_PACKAGED_CHROMIUM ? system : unpackBrowser();
}

/** Returns where the packaged browser is to be, by its version. */
async function browserDir() {
  const { version } = JSON.parse(await readFile(join(packagesDir, "node_modules", PACKAGE, "package.json"), "utf8"));
  return join(packagesDir, `browser-${version}`);
}

/**
 * Unpacks the packaged browser, unless it is, and returns its program. The package unpacks into the directory of temporary
 * files and starts what it finds there, whole or not. So it gets a directory of its own, which has its name once it is whole.
 */
async function unpackBrowser() {
  const directory = await browserDir();
  const program = join(directory, "chromium");
  const { TMPDIR } = process.env;
  try {
    // The package brings its libraries along only where it believes to be in the environment it was made for.
    process.env.AWS_LAMBDA_JS_RUNTIME ??= "nodejs22.x";
    process.env.TMPDIR = directory;
    // This sets where the browser looks for its libraries and fonts.
    const packaged = requirePackage(PACKAGE);
    if (existsSync(program)) return program;
    const partial = await mkdtemp(`${directory}.`);
    process.env.TMPDIR = partial;
    await (packaged.default ?? packaged).executablePath();
    // It names the fonts' usual place.
    const fonts = join(partial, "fonts/fonts.conf");
    await writeFile(fonts, (await readFile(fonts, "utf8")).replaceAll("/tmp/fonts", join(directory, "fonts")));
    await rename(partial, directory).catch(async (error) => {
      await rm(partial, { recursive: true });
      // Another process was faster.
      if (!existsSync(program)) throw error;
    });
    return program;
  } finally {
    if (TMPDIR === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = TMPDIR;
  }
}

/** Removes what is left of browsers that were not unpacked to the end, and of other versions. */
async function removeOthers() {
  const current = basename(await browserDir());
  for (const name of await readdir(packagesDir)) {
    if (name.startsWith("browser-") && name !== current) await rm(join(packagesDir, name), { recursive: true, force: true });
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  await removeOthers();
  const program = await findBrowser();
  const { status, stdout, stderr, error } = spawnSync(program, ["--version"], { encoding: "utf8" });
  if (status !== 0) throw new Error(`${program} does not start: ${error?.message ?? stderr.trim()}`);
  console.log(stdout.trim());
}
