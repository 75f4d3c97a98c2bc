// The web page in a real browser, against the real program with the scripted agent: logins, the overview, faults, and
// use by keys, on phones and with assistive programs.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { answerWith, approval, conversation, DESKTOP, isIdle, newPage, openPage, PHONE, prompt, Server, shown, startSession, useSite } from "./harness.mjs";
import { requirePackage } from "./packages.mjs";

const site = useSite();

describe("login", () => {
  test("without a login, the page says how to get a link", async () => {
    const page = await newPage(await site.browser.newContext());
    site.keep(page);
    await page.goto(site.server.origin);
    await page.getByText("bowline web").waitFor();
    await page.getByLabel("Token").fill("wrong");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").waitFor();
  });

  test("a link works once, and leaves no secret in the address", async () => {
    const link = await site.server.link();
    const page = await newPage(await site.browser.newContext());
    site.keep(page);
    await page.goto(link);
    await page.getByRole("heading", { name: "Sessions", exact: true }).waitFor();
    assert.doesNotMatch(page.url(), /ticket/);
    const cookies = await page.context().cookies();
    assert.deepEqual(cookies.map(({ httpOnly, sameSite }) => [httpOnly, sameSite]), [[true, "Strict"]]);
    site.server.login = { cookies, origins: [] };
    const other = await newPage(await site.browser.newContext());
    site.keep(other);
    await other.goto(link);
    await other.getByRole("alert").waitFor();
  });

  test("the content security policy forbids inline code", async () => {
    const page = await site.open();
    const policy = (await page.request.get(site.server.origin)).headers()["content-security-policy"];
    assert.match(policy, /script-src 'self'/);
    assert.doesNotMatch(policy, /unsafe/);
  });
});

describe("a shared server", () => {
  test("people sign in with tokens, and an observer sees but changes nothing", async () => {
    const shared = await Server.start({ isShared: true });
    try {
      const [user, observer] = [shared.token("laptop", "user"), shared.token("wall", "observer")];
      await shared.logged(/Serving on/);
      const signIn = async (token) => {
        const page = await newPage(await site.browser.newContext({ viewport: DESKTOP }));
        site.keep(page);
        await page.goto(shared.origin);
        await page.getByLabel("Token").fill(token);
        await page.getByRole("button", { name: "Sign in" }).click();
        await page.getByRole("heading", { name: "Sessions", exact: true }).waitFor();
        return page;
      };
      const page = await signIn(user);
      const id = await startSession(page);
      await prompt(page, "propose");
      await approval(page).waitFor();
      const watcher = await signIn(observer);
      await watcher.getByRole("listitem").filter({ hasText: "propose" }).getByText("laptop").waitFor();
      assert.equal(await watcher.getByRole("button", { name: /New session|Archive propose|Delete/ }).count(), 0);
      await watcher.goto(`${shared.origin}/#/s/${id}`);
      await watcher.getByText("You can watch this session, but not write in it.").waitFor();
      await watcher.getByRole("article", { name: "Tool call" }).getByText("Bound the buffer").waitFor();
      assert.equal(await watcher.getByRole("button", { name: "Allow once" }).count() > 0 && await approval(watcher).getByRole("button", { name: "Allow once" }).isEnabled(), false);
      await answerWith(page, "Allow once");
      await shown(watcher, "answer: once");
    } finally {
      await shared.stop();
    }
  });
});

describe("overview", () => {
  test("a session is created, found, archived, restored and deleted", async () => {
    const page = await site.open();
    // The form knows the agent's settings, also before the first session. One that is not started leaves nothing.
    const form = page.getByRole("dialog", { name: "New session" });
    await page.getByRole("main").getByRole("button", { name: "New session" }).click();
    await form.locator("select[name=model] option", { hasText: "Deep 2" }).waitFor({ state: "attached" });
    await form.getByRole("button", { name: "Cancel" }).click();
    await startSession(page);
    await prompt(page, "hello");
    await shown(page, "Streaming");
    await page.goto(`${site.server.origin}/#/`);
    await page.getByRole("main").getByRole("button", { name: "New session" }).click();
    await form.getByText("Scripted agent 1.0.0").waitFor();
    await form.locator("select[name=model]").selectOption("deep");
    await form.locator("select[name=mode]").selectOption("edits");
    await form.getByLabel("Directory").fill(join(site.server.project, "src"));
    await form.getByRole("button", { name: "Start session" }).click();
    await page.getByRole("combobox", { name: "Prompt" }).waitFor();
    assert.deepEqual(await page.locator("select[data-setting]").evaluateAll((list) => list.map((select) => select.value)), ["deep", "edits"]);
    await prompt(page, "a second session");
    await shown(page, "echo: a second session");

    await page.goto(`${site.server.origin}/#/`);
    const workspace = page.getByRole("region", { name: "Workspace parser" });
    const row = workspace.getByRole("listitem").filter({ hasText: "a second session" });
    await row.waitFor();
    assert.equal(await workspace.getByText("Untitled session").count(), 0);
    await workspace.getByRole("listitem").filter({ hasText: "hello" }).getByText("8% · $0.06").waitFor();
    await page.getByLabel("Search sessions").fill("second");
    await workspace.getByRole("link").filter({ hasText: "hello" }).waitFor({ state: "detached" });
    await page.getByLabel("Search sessions").fill("");
    await row.getByRole("button", { name: "Archive" }).click();
    await row.waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Archived" }).click();
    await row.getByRole("button", { name: "Restore" }).click();
    await row.waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Current" }).click();
    await row.getByRole("button", { name: "Delete" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await row.waitFor({ state: "detached" });
  });

  test("states and changed files are shown, and a waiting session is notified", async () => {
    const context = { permissions: ["notifications"] };
    const page = await site.open({ context });
    await page.addInitScript(() => {
      window.notified = [];
      window.Notification = class extends EventTarget {
        static permission = "granted";
        static requestPermission = async () => "granted";
        constructor(title, { body }) {
          super();
          window.notified.push(`${title}: ${body}`);
        }
      };
    });
    await page.reload();
    await page.getByRole("button", { name: "Notifications" }).click();
    const tab = await site.openTab(page, "#/");
    await startSession(tab);
    await prompt(tab, "write seen.txt text of the file");
    const row = page.getByRole("listitem").filter({ hasText: "write seen.txt" });
    await row.getByText("Waiting for you").waitFor();
    await page.waitForFunction(() => window.notified.length > 0);
    assert.match((await page.evaluate(() => window.notified))[0], /Waiting for you: write seen\.txt/);
    assert.equal(await page.title(), "(1) Bowline");
    await answerWith(tab, "Allow once");
    await row.getByText("Idle").waitFor();
    await row.getByText("1 file").waitFor();
    assert.equal(await site.disk("seen.txt"), "text of the file\n");
    await prompt(tab, "fail");
    await row.getByText("Failed").waitFor();
    await shown(tab, "the model is not reachable");
    await prompt(tab, "wait");
    await row.getByText("Working").waitFor();
    await tab.getByRole("button", { name: "Cancel" }).click();
    await row.getByText("Idle").waitFor();
  });
});

describe("faults", () => {
  test("a second tab and a reload show the same conversation", async () => {
    const page = await site.open();
    const id = await startSession(page);
    const tab = await site.openTab(page, `#/s/${id}`);
    await tab.getByRole("combobox", { name: "Prompt" }).waitFor();
    await prompt(page, "both see this");
    await shown(tab, "echo: both see this");
    assert.equal(await conversation(tab).locator(".item-user").innerText(), "both see this");
    await tab.locator("select[data-setting=model]").selectOption("deep");
    await page.waitForFunction(() => document.querySelector("select[data-setting=model]").value === "deep");
    await prompt(tab, "wait");
    await page.locator(".view-head .state-working").waitFor();
    await page.reload();
    await shown(page, "waiting");
    await page.getByRole("button", { name: "Cancel" }).click();
    await Promise.all([isIdle(page), isIdle(tab)]);
    const texts = (view) => conversation(view).locator(".item-user, .item-agent").allInnerTexts();
    assert.deepEqual(await texts(page), await texts(tab));
  });

  test("an agent that dies ends the turn, and the session goes on", async () => {
    const page = await site.open();
    await startSession(page);
    await prompt(page, "before");
    await shown(page, "echo: before");
    await prompt(page, "die");
    await conversation(page).getByRole("alert").waitFor();
    await site.server.logged(/an agent ended/);
    await prompt(page, "after");
    await shown(page, "echo: after");
    await shown(page, "echo: before");
  });

  test("a dropped socket is opened again, and what was typed meanwhile is sent", async () => {
    const page = await site.open();
    const worker = page.workers()[0] ?? (await page.waitForEvent("worker"));
    await worker.evaluate(() => {
      const { send } = WebSocket.prototype;
      WebSocket.prototype.send = function (text) {
        self.lastSocket = this;
        send.call(this, text);
      };
    });
    await startSession(page);
    await prompt(page, "before the drop");
    await shown(page, "echo: before the drop");
    await worker.evaluate(() => {
      self.RealSocket = WebSocket;
      self.WebSocket = class extends WebSocket {
        constructor(url) {
          super(`${url}/nowhere`);
        }
      };
      self.lastSocket.close();
    });
    await page.getByText("Connection lost").waitFor();
    await prompt(page, "typed offline");
    await page.getByText("Prompts are kept here").waitFor();
    await worker.evaluate(() => {
      self.WebSocket = self.RealSocket;
    });
    await page.getByRole("button", { name: "Retry" }).click().catch(() => undefined);
    await shown(page, "echo: typed offline");
    assert.deepEqual(await conversation(page).locator(".item-user").allInnerTexts(), ["before the drop", "typed offline"]);
  });

  test("a restarted server finds the page again", async () => {
    const own = await Server.start();
    try {
      const page = await openPage(site.browser, own);
      site.keep(page);
      await startSession(page);
      await prompt(page, "before the restart");
      await shown(page, "echo: before the restart");
      await own.kill("SIGKILL");
      await page.getByText("Connection lost").waitFor();
      await own.launch();
      await page.getByText("Connection lost").waitFor({ state: "detached" });
      await prompt(page, "after the restart");
      await shown(page, "echo: after the restart");
      assert.deepEqual(await conversation(page).locator(".item-user").allInnerTexts(), ["before the restart", "after the restart"]);
    } finally {
      await own.stop();
    }
  });
});

describe("people", () => {
  const axeSource = readFile(requirePackage.resolve("axe-core/axe.min.js"), "utf8");

  /** Returns what axe finds that is serious, as lines. */
  async function audit(page) {
    // Playwright's own world is not bound by the page's policy.
    await page.evaluate(await axeSource);
    return page.evaluate(async () => {
      const { violations } = await window.axe.run(document, { resultTypes: ["violations"] });
      return violations.filter(({ impact }) => impact === "serious" || impact === "critical").map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target.join(" ")).slice(0, 4).join(", ")}`);
    });
  }

  for (const [name, viewport, colorScheme] of [["a desktop in light", DESKTOP, "light"], ["a phone in dark", PHONE, "dark"]]) {
    test(`every view is accessible and fits on ${name}`, async () => {
      const page = await site.open({ viewport, context: { colorScheme, reducedMotion: "reduce" } });
      const id = await startSession(page);
      const check = async (view) => {
        assert.deepEqual(await audit(page), [], view);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth), `${view} is too wide`);
        assert.equal(await page.evaluate(() => document.getAnimations().filter(({ playState }) => playState === "running").length), 0, view);
      };
      await check("new session");
      await prompt(page, "hello");
      await shown(page, "Streaming");
      await prompt(page, "think");
      await shown(page, "I will bound it");
      await prompt(page, "ends README.md");
      await approval(page).getByRole("region", { name: "Changes of README.md" }).waitFor();
      const sizes = await approval(page).locator(".answer").evaluateAll((list) => list.map((element) => element.getBoundingClientRect().height));
      assert.ok(sizes.length >= 4 && sizes.every((height) => height >= (viewport === PHONE ? 44 : 36)), `${sizes}`);
      await check("approval");
      await answerWith(page, "Allow once");
      await shown(page, "result: written");
      await conversation(page).getByRole("button", { name: /Sign README/ }).click();
      await conversation(page).getByRole("region", { name: "Changes of README.md" }).waitFor();
      await check("conversation");
      for (const [hash, ready] of [["#/", "hello"], [`#/s/${id}/changes`, "Undo turn"], [`#/s/${id}/wire`, "session/update"], ["#/audit", "README.md"], ["#/status", "in order"]]) {
        await page.goto(`${site.server.origin}/${hash}`);
        await page.getByRole("main").getByText(ready).first().waitFor();
        await check(hash);
      }
    });
  }

  test("everything can be reached by keys", async () => {
    const page = await site.open();
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keys" }).getByText("reject with a reason").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog", { name: "Keys" }).waitFor({ state: "detached" });
    await page.keyboard.press("c");
    await page.getByRole("dialog", { name: "New session" }).waitFor();
    await page.keyboard.press("Enter");
    await page.getByRole("combobox", { name: "Prompt" }).waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("by keys");
    await page.keyboard.press("Enter");
    await shown(page, "echo: by keys");
    await page.getByRole("combobox", { name: "Prompt" }).blur();
    await page.keyboard.type("gd");
    await page.getByRole("heading", { name: "Changes", exact: true }).waitFor();
    await page.keyboard.type("go");
    await page.getByRole("heading", { name: "Sessions", exact: true }).waitFor();
    await page.keyboard.press("j");
    await page.getByRole("combobox", { name: "Prompt" }).waitFor();
    await page.reload();
    await page.getByRole("combobox", { name: "Prompt" }).waitFor();
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Skip to content");
  });

  test("colours follow the system until one is chosen", async () => {
    const page = await site.open({ context: { colorScheme: "dark" } });
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await background();
    await page.keyboard.press("t");
    const light = await background();
    assert.notEqual(dark, light);
    await page.reload();
    await page.getByRole("heading", { name: "Sessions", exact: true }).waitFor();
    assert.equal(await background(), light);
  });
});
