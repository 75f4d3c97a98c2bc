// Starts the real program with the scripted agent, and a browser: Debian's Chromium, driven by Playwright.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, afterEach, before } from "node:test";
import { findBrowser } from "./browser.mjs";
import { requirePackage, testsDir } from "./packages.mjs";

/** The program under test. With BOWLINE_WEB_ASSETS it serves the files of that directory instead of its own. */
const program = process.env.BOWLINE_BIN ?? join(process.env.CARGO_TARGET_DIR ?? join(testsDir, "../../target"), "release/bowline");

/** The command line of the scripted agent. */
export const AGENT = [process.execPath, join(testsDir, "agent.mjs")];

/** How long a step may take, in milliseconds: only a hang exceeds it. */
export const TIMEOUT = 60_000;

export const DESKTOP = { width: 1280, height: 800 };
export const PHONE = { width: 360, height: 740 };

const PARSER = `//! The parser.

pub fn parse(input: &[u8]) -> Vec<u8> {
    let mut buffer = Vec::new();
    for &byte in input {
        buffer.push(byte);
    }
    buffer
}

pub fn is_empty(input: &[u8]) -> bool {
    input.is_empty()
}

pub fn first(input: &[u8]) -> Option<u8> {
    input.first().copied()
}
`;

/** Returns the browser; the tests share one. */
export async function launchBrowser() {
  const { chromium } = requirePackage("playwright-core");
  return chromium.launch({ executablePath: await findBrowser(), args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"] });
}

/** A project directory and the program's own directories, which survive restarts. */
export class Server {
  /** Starts `bowline web`, or `bowline serve` for several people. */
  static async start({ directory, isShared = false, keepsLink = false, isOwnAgent = false, agent = AGENT, config = "", offers = [] } = {}) {
    const server = new Server();
    server.isOwnAgent = isOwnAgent;
    server.agent = agent;
    server.isShared = isShared;
    server.offers = offers;
    server.directory = directory ?? await mkdtemp(join(tmpdir(), "bowline-web-"));
    server.project = join(server.directory, "parser");
    await mkdir(join(server.project, "src"), { recursive: true });
    await writeFile(join(server.project, "src/parser.rs"), PARSER);
    await writeFile(join(server.project, "README.md"), "# Parser\n");
    spawnSync("git", ["init", "-q"], { cwd: server.project });
    if (config) {
      await mkdir(join(server.directory, "config/bowline"), { recursive: true });
      await writeFile(join(server.directory, "config/bowline/config.toml"), config);
    }
    server.port = 0;
    await server.launch();
    // The one that was free; a restart takes it again.
    const [, port] = await server.logged(/https?:\/\/127\.0\.0\.1:(\d+)/);
    server.port = Number(port);
    if (!isShared && !keepsLink) await server.logIn();
    return server;
  }

  get origin() {
    return `http://127.0.0.1:${this.port}`;
  }

  get env() {
    const directories = Object.fromEntries(["CONFIG", "STATE", "DATA", "CACHE"].map((kind) => [`XDG_${kind}_HOME`, join(this.directory, kind.toLowerCase())]));
    return { PATH: process.env.PATH, HOME: this.directory, LANG: "C.UTF-8", ...directories, ...(process.env.BOWLINE_WEB_ASSETS ? { BOWLINE_WEB_ASSETS: process.env.BOWLINE_WEB_ASSETS } : {}) };
  }

  async launch() {
    const how = this.isShared ? ["serve", "--root", this.project, ...this.offers.flatMap((name) => ["--offer", name])] : ["web", "--no-open"];
    const agent = this.isOwnAgent ? [] : ["--", ...this.agent];
    this.log = [];
    this.child = spawn(program, [...how, "--listen", `127.0.0.1:${this.port}`, ...agent], { cwd: this.project, env: this.env, stdio: ["pipe", "pipe", "pipe"] });
    for (const input of [this.child.stdout, this.child.stderr]) {
      createInterface({ input }).on("line", (line) => {
        this.log.push(line);
        this.child.emit("logged");
      });
    }
  }

  /** Waits until the program has written a line that matches, and returns the match. */
  async logged(pattern) {
    const { child } = this;
    const signal = AbortSignal.timeout(TIMEOUT);
    for (;;) {
      const found = this.log.map((line) => pattern.exec(line)).find(Boolean);
      if (found) return found;
      await once(child, "logged", { signal }).catch(() => {
        throw new Error(`the program did not write ${pattern}:\n${this.log.join("\n")}`);
      });
    }
  }

  /** Returns the link that the program printed when it started. */
  async link() {
    const [link] = await this.logged(/http:\/\/\S+#ticket=\S+/);
    return link;
  }

  /** Uses the link, which holds for a minute, and keeps the cookie for all pages. */
  async logIn() {
    const ticket = (await this.link()).split("#ticket=")[1];
    const answer = await fetch(`${this.origin}/login`, { method: "POST", headers: { "Content-Type": "application/json", Origin: this.origin }, body: JSON.stringify({ ticket }) });
    assert.ok(answer.ok, `the login was answered with ${answer.status}`);
    const [name, value] = answer.headers.getSetCookie()[0].split(";", 1)[0].split(/=(.*)/);
    this.login = { cookies: [{ name, value, domain: "127.0.0.1", path: "/", expires: -1, httpOnly: true, secure: false, sameSite: "Strict" }], origins: [] };
  }

  /** Makes a token for a person. */
  token(name, role) {
    const { status, stdout, stderr } = spawnSync(program, ["serve", "token", "add", name, "--role", role], { cwd: this.project, env: this.env, encoding: "utf8" });
    assert.equal(status, 0, stderr);
    return stdout.trim().split("\n").pop();
  }

  async kill(signal = "SIGTERM") {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    this.child.kill(signal);
    await once(this.child, "exit");
  }

  async stop() {
    await this.kill();
    // Agents that end after the program may still write.
    await rm(this.directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

/** Opens a page that is logged in, and records what must not happen. */
export async function openPage(browser, server, { viewport = DESKTOP, context: options = {} } = {}) {
  const context = await browser.newContext({ viewport, acceptDownloads: true, storageState: server.login, ...options });
  context.setDefaultTimeout(TIMEOUT);
  const page = await newPage(context);
  await page.goto(server.origin);
  await page.getByRole("heading", { name: "Sessions", exact: true }).waitFor();
  return page;
}

/** A page of a context, whose errors are kept in `page.problems`. */
export async function newPage(context) {
  const page = await context.newPage();
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error" && !/WebSocket|ERR_CONNECTION|Failed to load resource/.test(message.text())) page.problems.push(message.text());
  });
  return page;
}

/** Starts a session with the form, and returns its id. */
export async function startSession(page) {
  await page.goto(new URL("/#/", page.url()).href);
  await page.getByRole("main").getByRole("button", { name: "New session" }).click();
  await page.getByRole("button", { name: "Start session" }).click();
  await page.getByRole("dialog", { name: "New session" }).waitFor({ state: "detached" });
  await page.getByRole("combobox", { name: "Prompt" }).waitFor();
  return decodeURIComponent(page.url().split("#/s/")[1]);
}

/** Sends a prompt. */
export async function prompt(page, text) {
  const input = page.getByRole("combobox", { name: "Prompt" });
  await input.fill(text);
  await input.press("Enter");
}

/** A browser and a server for the tests of a file. */
export function useSite() {
  /** Pages of the running test, closed after it; their errors fail it. */
  let pages = [];
  const site = {
    browser: undefined,
    server: undefined,
    keep: (page) => pages.push(page),
    /** Opens a page that is logged in. */
    async open(options) {
      const page = await openPage(site.browser, site.server, options);
      pages.push(page);
      return page;
    },
    /** Opens another tab of the same browser at an address of the page. The page is hidden then, and drawn once a second. */
    async openTab(page, hash) {
      return site.openIn(page.context(), hash);
    },
    /** Opens an address of the page in a window of its own, with the same login: both are in sight. */
    async openWindow(page, hash) {
      const context = await site.browser.newContext({ viewport: DESKTOP, storageState: await page.context().storageState() });
      context.setDefaultTimeout(TIMEOUT);
      return site.openIn(context, hash);
    },
    async openIn(context, hash) {
      const opened = await newPage(context);
      pages.push(opened);
      await opened.goto(`${site.server.origin}/${hash}`);
      return opened;
    },
    disk: (name) => readFile(join(site.server.project, name), "utf8"),
  };
  before(async () => {
    [site.browser, site.server] = await Promise.all([launchBrowser(), Server.start()]);
  });
  after(async () => {
    await site.browser?.close();
    await site.server?.stop();
  });
  afterEach(async () => {
    const problems = pages.flatMap((page) => page.problems);
    await Promise.all(pages.map((page) => page.context().close()));
    pages = [];
    assert.deepEqual(problems, []);
  });
  return site;
}

export const conversation = (page) => page.getByRole("feed", { name: "Conversation" });
export const approval = (page) => page.getByRole("group", { name: "Permission request" });
export const shown = (page, text) => conversation(page).getByText(text).first().waitFor();
export const answerWith = (page, name) => approval(page).getByRole("button", { name }).click();
/** Waits until no turn runs. */
export const isIdle = (page) => page.locator(".view-head .state-idle, .view-head .state-failed").waitFor();
