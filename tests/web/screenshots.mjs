// Takes the pictures of the web page for the documentation: `node screenshots.mjs DIRECTORY`.
//
// Times and ids are replaced, so that a picture changes only when the page does.

import { spawnSync } from "node:child_process";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { launchBrowser, openPage, PHONE, prompt, Server } from "./harness.mjs";

const WINDOW = { width: 1200, height: 760 };

/** The time that every picture shows. */
const NOW = Date.UTC(2026, 0, 15, 10, 30);

const target = resolve(process.argv[2] ?? "docs/images");
const directory = join(tmpdir(), "bowline-pictures");
await rm(directory, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
await mkdir(directory);
await mkdir(target, { recursive: true });
const [browser, server] = await Promise.all([launchBrowser(), Server.start({ directory })]);

/** Opens a page with fixed times. */
async function open(options) {
  const page = await openPage(browser, server, { ...options, context: { reducedMotion: "reduce", timezoneId: "UTC", locale: "en-GB", ...options?.context } });
  await page.clock.setFixedTime(NOW);
  const ids = new Map();
  await page.route(/\/api\/(overview(\?|$)|audit(\?|$)|sessions\/[^/]+\/(changes|events))/, async (route) => {
    const response = await route.fetch();
    const text = (await response.text())
      .replace(/"(at|createdAt|updatedAt)":\d+/g, (_, name) => `"${name}":${NOW - 4 * 60_000}`)
      .replace(/"sessionId":"[^"]+"/g, '"sessionId":"session-1"').replace(/"(id|requestId)":"[0-9a-f]{16}"/g, '"$1":"request-1"').replace(/call-\d+-/g, "call-")
      .replace(/"client":"[^"]+"/g, '"client":"1f09c3"')
      .replace(/"session":"([^"]+)"/g, (_, id) => `"session":"${ids.get(id) ?? ids.set(id, `session-${ids.size + 1}`).get(id)}"`);
    await route.fulfill({ status: response.status(), contentType: "application/json", body: text });
  });
  await page.reload();
  return page;
}

/** Takes a picture when the page is at rest. */
async function picture(page, name) {
  await page.evaluate(() => document.fonts.ready);
  // A toast or a blinking cursor would differ from time to time.
  await page.evaluate(() => document.activeElement?.blur());
  await page.locator(".toast").first().waitFor({ state: "detached" });
  await page.locator(".answer:disabled").first().waitFor({ state: "detached" });
  await page.locator(".sidebar").getByText("Untitled session").waitFor({ state: "detached" });
  await page.screenshot({ path: join(target, `web-${name}.png`), caret: "hide", animations: "disabled" });
}

const feed = (page) => page.getByRole("feed", { name: "Conversation" });
const approve = async (page) => {
  await page.getByRole("button", { name: "Allow once" }).click();
  await feed(page).getByText("result: written").last().waitFor();
};

try {
  const website = join(server.project, "website");
  await mkdir(website);
  await writeFile(join(website, "index.html"), "<h1>Parser</h1>\n");
  spawnSync("git", ["init", "-q"], { cwd: website });
  const page = await open({ viewport: WINDOW });

  const startIn = async (cwd, text) => {
    await page.goto(`${server.origin}/#/`);
    await page.getByRole("main").getByRole("button", { name: "New session" }).click();
    await page.getByLabel("Directory").fill(cwd);
    await page.getByRole("button", { name: "Start session" }).click();
    await prompt(page, text);
    await feed(page).locator(".item-user").first().waitFor();
    return page.url().split("#")[1];
  };

  await startIn(website, "Translate the footer");
  await feed(page).getByText("echo:").waitFor();
  await startIn(website, "Show the release page again when the feed is empty");
  await feed(page).getByText("waiting").waitFor();
  const first = await startIn(server.project, "Find out why memory grows with large inputs");
  await feed(page).getByText("I will bound it").waitFor();
  await prompt(page, "Why does the parser block when a reader is slow?");
  await feed(page).getByRole("link", { name: "the notes" }).waitFor();
  await page.locator(".sidebar").getByText("Find out why").waitFor();
  await page.locator(".view-head .state-idle").waitFor();
  await picture(page, "conversation");

  const second = await startIn(server.project, "Sign the parser's source");
  await approve(page);
  await prompt(page, "Add a changelog");
  await page.getByRole("region", { name: "Changes of CHANGELOG.md" }).waitFor();
  await page.getByRole("button", { name: "Allow once" }).click();
  await feed(page).getByText("result: written").nth(1).waitFor();
  await startIn(server.project, "Bound the parser's buffer");
  await page.getByRole("region", { name: "Changes of src/limits.rs" }).waitFor();
  await page.getByRole("button", { name: "Side by side" }).click();
  await page.locator(".sidebar .state-waiting").waitFor();
  await picture(page, "approval");
  const third = page.url().split("#")[1];

  await page.goto(`${server.origin}/#/`);
  await page.getByRole("listitem").filter({ hasText: "Waiting for you" }).waitFor();
  await picture(page, "overview");

  await page.goto(`${server.origin}/#/audit`);
  await page.getByRole("cell", { name: /parser\.rs/ }).first().waitFor();
  await page.getByRole("button", { name: "Verify the chain" }).click();
  await page.locator("p.good").waitFor();
  await picture(page, "audit");

  const dark = await open({ viewport: WINDOW, context: { colorScheme: "dark" } });
  await dark.goto(`${server.origin}/#${second}/changes`);
  await dark.getByRole("button", { name: "Undo turn" }).first().waitFor();
  await picture(dark, "changes");

  await dark.goto(`${server.origin}/#${first}`);
  await dark.getByRole("combobox", { name: "Prompt" }).waitFor();
  await prompt(dark, "Run the tests");
  await feed(dark).getByText("One test fails").waitFor();
  await feed(dark).getByRole("button", { name: /cargo test/ }).click();
  await dark.locator(".xterm-rows").getByText("FAILED").waitFor();
  await dark.getByRole("button", { name: /Plan/ }).click();
  await picture(dark, "terminal");

  await dark.goto(`${server.origin}/#${second}/wire`);
  await dark.getByRole("button", { name: /sent\W*result\W*session\/request_permission/ }).last().click();
  await dark.getByLabel("Raw message").waitFor();
  await picture(dark, "wire");

  const phone = await open({ viewport: PHONE, context: { colorScheme: "dark", deviceScaleFactor: 2 } });
  await phone.goto(`${server.origin}/#${third}`);
  await phone.getByRole("region", { name: "Changes of src/parser.rs" }).waitFor();
  await picture(phone, "phone");
} finally {
  await browser.close();
  await server.stop();
}
