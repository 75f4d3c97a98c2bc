// The web page in a real browser, against the real program with the scripted agent: logins, the overview, records,
// faults, and use by keys, on phones and with assistive programs.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { describe, test } from "node:test";
import { AGENT, answerWith, approval, conversation, DESKTOP, isIdle, newPage, openPage, PHONE, prompt, Server, shown, startSession, useSite } from "./harness.mjs";
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
    await page.getByRole("alert").getByText("This token is wrong").waitFor();
  });

  test("a link works once, and leaves no secret in the address", async () => {
    const own = await Server.start({ keepsLink: true });
    try {
      const link = await own.link();
      const page = await newPage(await site.browser.newContext());
      site.keep(page);
      await page.goto(link);
      await page.getByRole("heading", { name: "Sessions", exact: true }).waitFor();
      assert.doesNotMatch(page.url(), /ticket/);
      const cookies = await page.context().cookies();
      assert.deepEqual(cookies.map(({ httpOnly, sameSite }) => [httpOnly, sameSite]), [[true, "Strict"]]);
      const other = await newPage(await site.browser.newContext());
      site.keep(other);
      await other.goto(link);
      await other.getByRole("alert").getByText("This link was used before").waitFor();
    } finally {
      await own.stop();
    }
  });

  test("the content security policy forbids inline code", async () => {
    const page = await site.open();
    const policy = (await page.request.get(site.server.origin)).headers()["content-security-policy"];
    assert.match(policy, /script-src 'self'/);
    assert.doesNotMatch(policy, /unsafe/);
  });
});

describe("other sites", () => {
  test("a page of another port or name reads nothing and changes nothing", async () => {
    const page = await site.open();
    const id = await startSession(page);
    await prompt(page, "mine alone");
    await shown(page, "echo: mine alone");
    // Browsers send cookies to all ports of a host, so only the checks of the server are in the way.
    const evil = createServer((_, response) => response.setHeader("Content-Type", "text/html").end("<title>evil</title>")).listen(0, "127.0.0.1");
    await once(evil, "listening");
    try {
      const attacker = await newPage(page.context());
      await attacker.goto(`http://127.0.0.1:${evil.address().port}/`);
      const outcomes = await attacker.evaluate(async ([origin, session]) => {
        const send = (path, options) => fetch(origin + path, { credentials: "include", ...options }).then(({ status }) => String(status), () => "refused");
        const body = JSON.stringify({ archived: true });
        const socket = new WebSocket(`${origin.replace("http", "ws")}/acp`);
        const opened = new Promise((resolve) => {
          socket.onopen = () => resolve("open");
          socket.onerror = () => resolve("refused");
        });
        const frame = document.createElement("iframe");
        frame.src = origin;
        const loaded = new Promise((resolve) => {
          frame.onload = resolve;
        });
        document.body.append(frame);
        await loaded;
        return {
          read: await send("/api/overview"),
          changed: await send(`/api/sessions/${session}/archive`, { method: "POST", body, headers: { "Content-Type": "application/json" } }),
          // Without a question to the server first: neither its answer nor its status is shown.
          sent: await send(`/api/sessions/${session}/archive`, { method: "POST", body, mode: "no-cors" }),
          loggedIn: await send("/login", { method: "POST", body: "{}", mode: "no-cors" }),
          socket: await opened,
        };
      }, [site.server.origin, id]);
      assert.deepEqual(outcomes, { read: "refused", changed: "refused", sent: "0", loggedIn: "0", socket: "refused" });
      assert.match(attacker.frames()[1].url(), /^chrome-error:/);
      // A name that an attacker points at this machine.
      await attacker.goto(`http://evil.localhost:${site.server.port}/`);
      assert.equal(await attacker.evaluate(() => fetch("/api/me").then(({ status }) => status)), 403);
      await attacker.close();
    } finally {
      evil.close();
    }
    await page.goto(`${site.server.origin}/#/`);
    await page.getByRole("listitem").filter({ hasText: "mine alone" }).waitFor();
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
    await form.locator("select[name=agent] option", { hasText: "Scripted agent 1.0.0" }).waitFor({ state: "attached" });
    await form.locator("select[name=model]").selectOption("deep");
    await form.locator("select[name=mode]").selectOption("edits");
    await form.getByLabel("Directory").fill(join(site.server.project, "src"));
    await form.getByRole("button", { name: "Start session" }).click();
    await page.getByRole("combobox", { name: "Prompt" }).waitFor();
    assert.deepEqual(await page.locator("select[data-setting]").evaluateAll((list) => list.map((select) => select.value)), ["deep", "edits"]);
    assert.equal(await page.locator(".view-head .path").textContent(), join(site.server.project, "src"));
    await prompt(page, "a second session");
    await shown(page, "echo: a second session");

    await page.goto(`${site.server.origin}/#/`);
    const workspace = page.getByRole("region", { name: "Workspace parser" });
    const row = workspace.getByRole("listitem").filter({ hasText: "a second session" });
    await row.waitFor();
    assert.equal(await workspace.getByText("Untitled session").count(), 0);
    const first = workspace.getByRole("listitem").filter({ hasText: "hello" });
    await first.getByText("8% · $0.06").waitFor();
    await first.locator("time", { hasText: /^(just now|\d+ min)$/ }).waitFor();
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

  const [command, ...args] = AGENT;
  const AGENTS = `[agents.second]\ncommand = "${command}"\nargs = ${JSON.stringify(args)}\nenv = { AGENT_TITLE = "Second agent" }\n\n[agents.old]\ncommand = "${command}"\nargs = ${JSON.stringify(args)}\nenv = { AGENT_IS_OLD = "1" }\n\n[agents.missing]\ncommand = "/nowhere/agent"\n`;

  test("a shared server offers the agents that its operator lists", async () => {
    const shared = await Server.start({ isShared: true, config: AGENTS, offers: ["second"] });
    try {
      await shared.logged(/Serving on/);
      const headers = { Authorization: `Bearer ${shared.token("laptop", "user")}` };
      const { agents } = await (await fetch(`${shared.origin}/api/me`, { headers })).json();
      assert.deepEqual(agents, ["second"]);
    } finally {
      await shared.stop();
    }
  });

  test("a session can have another agent of the server", async () => {
    const own = await Server.start({ config: AGENTS });
    try {
      const page = await openPage(site.browser, own);
      site.keep(page);
      const form = page.getByRole("dialog", { name: "New session" });
      await page.getByRole("main").getByRole("button", { name: "New session" }).click();
      const agents = form.locator("select[name=agent]");
      await agents.locator("option", { hasText: "Scripted agent 1.0.0" }).waitFor({ state: "attached" });
      assert.deepEqual(await agents.locator("option").allTextContents(), ["Scripted agent 1.0.0", "bowline", "missing", "old", "second"]);
      await agents.selectOption("missing");
      await form.getByRole("alert").waitFor();
      await agents.selectOption("second");
      await form.locator("select[name=model] option", { hasText: "Calm 1" }).waitFor({ state: "attached" });
      await form.getByLabel("Careful").selectOption("On");
      await form.getByRole("button", { name: "Start session" }).click();
      await prompt(page, "who");
      await shown(page, "I am the Second agent.");
      await shown(page, /^careful$/);
      assert.equal(await page.getByLabel("Careful").isChecked(), true);
      await page.locator(".view-head").getByText("Second agent").waitFor();
      const input = page.getByRole("combobox", { name: "Prompt" });
      await input.evaluate((element) => {
        const paste = new DataTransfer();
        paste.items.add(new File([Uint8Array.from([137, 80, 78, 71])], "shot.png", { type: "image/png" }));
        element.dispatchEvent(new ClipboardEvent("paste", { clipboardData: paste, bubbles: true, cancelable: true }));
      });
      await page.getByText("This agent does not accept images").waitFor();
      await own.kill();
      await own.launch();
      await page.getByText("Connection lost").waitFor({ state: "detached" });
      await prompt(page, "who");
      await conversation(page).getByText("I am the Second agent.").nth(1).waitFor();
      await page.goto(`${own.origin}/#/`);
      const row = page.getByRole("listitem").filter({ hasText: "who" });
      await row.getByText("second", { exact: true }).waitFor();
      await page.getByLabel("Search sessions").fill("second");
      await page.getByText("1 session", { exact: true }).waitFor();
      await row.waitFor();
      assert.equal(await page.getByText("Untitled session").count(), 0);
    } finally {
      await own.stop();
    }
  });

  test("an agent with modes and models instead of options can be switched", async () => {
    const own = await Server.start({ config: AGENTS });
    try {
      const page = await openPage(site.browser, own);
      site.keep(page);
      await page.getByRole("main").getByRole("button", { name: "New session" }).click();
      const form = page.getByRole("dialog", { name: "New session" });
      await form.locator("select[name=agent]").selectOption("old");
      await form.locator("select[name=mode]").selectOption("edits");
      await form.getByRole("button", { name: "Start session" }).click();
      await prompt(page, "who");
      await shown(page, "model swift, mode edits");
      await page.locator("select[data-setting=model]").selectOption("deep");
      await page.locator("select[data-setting=mode]").selectOption("ask");
      await prompt(page, "who");
      await shown(page, "model deep, mode ask");
      assert.deepEqual(await page.locator("select[data-setting]").evaluateAll((list) => list.map((select) => select.value)), ["deep", "ask"]);
    } finally {
      await own.stop();
    }
  });

  test("what is searched for changes neither the sidebar nor the notifications", async () => {
    const page = await site.open();
    await page.addInitScript(() => {
      window.notified = [];
      Object.defineProperty(Notification, "permission", { get: () => "granted" });
      Notification.requestPermission = async () => "granted";
      ServiceWorkerRegistration.prototype.showNotification = async (title, options) => {
        window.notified.push(options.body);
      };
    });
    await page.reload();
    await page.getByRole("button", { name: "Notifications" }).click();
    await page.getByLabel("Search sessions").fill("no such session");
    await page.getByText("No session matches").waitFor();
    const tab = await site.openTab(page, "#/");
    await startSession(tab);
    await prompt(tab, "command searched for");
    await page.waitForFunction(() => window.notified.length > 0);
    assert.match(await page.title(), /^\(1\)/);
    await page.getByText("No session matches").waitFor();
    await page.getByLabel("Search sessions").fill("");
    await page.getByRole("listitem").filter({ hasText: "command searched for" }).getByText("Waiting for you").waitFor();
    await answerWith(tab, "Allow once");
    await page.getByRole("listitem").filter({ hasText: "command searched for" }).getByText("Idle").waitFor();
    assert.equal(await page.evaluate(() => window.notified.length), 1);
  });

  test("states and changed files are shown, and a waiting session is notified", async () => {
    const page = await site.open();
    await page.addInitScript(() => {
      // A browser without a screen shows none. Phones show them only from the service worker.
      window.notified = [];
      Object.defineProperty(Notification, "permission", { get: () => "granted" });
      Notification.requestPermission = async () => "granted";
      ServiceWorkerRegistration.prototype.showNotification = async (title, options) => {
        window.notified.push({ title, ...options });
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
    const [{ title, body, data }] = await page.evaluate(() => window.notified);
    assert.match(`${title}: ${body}`, /^Waiting for you: write seen\.txt/);
    assert.equal(await page.title(), "(1) Bowline");
    // A page is brought to the front and shows the session.
    await tab.goto(`${site.server.origin}/#/`);
    const [worker] = page.context().serviceWorkers();
    await worker.evaluate((hash) => {
      self.dispatchEvent(Object.assign(new Event("notificationclick"), { notification: { data: hash, close: () => undefined }, waitUntil: () => undefined }));
    }, data);
    await Promise.any([page, tab].map((view) => approval(view).getByRole("region", { name: "Changes of seen.txt" }).waitFor()));
    await page.goto(`${site.server.origin}/#/`);
    await tab.goto(`${site.server.origin}/${data}`);
    await answerWith(tab, "Allow once");
    await row.getByText("Idle").waitFor();
    await row.getByText("1 file").waitFor();
    assert.equal(await site.disk("seen.txt"), "text of the file\n");
    await prompt(tab, "fail");
    await row.getByText("Failed").waitFor();
    await shown(tab, "The model is not reachable");
    await prompt(tab, "wait");
    await row.getByText("Working").waitFor();
    await tab.getByRole("button", { name: "Cancel" }).click();
    await row.getByText("Idle").waitFor();
  });
});

describe("records", () => {
  test("the audit log is filtered and verified", async () => {
    const page = await site.open();
    await startSession(page);
    await prompt(page, "write audited.txt x");
    await answerWith(page, "Allow once");
    await shown(page, "result: written");
    await page.goto(`${site.server.origin}/#/audit`);
    await page.getByRole("cell", { name: /audited\.txt/ }).first().waitFor();
    await page.getByLabel("Search the audit log").fill("no such thing");
    await page.getByText("No entry matches").waitFor();
    await page.getByLabel("Search the audit log").fill("audited.txt");
    await page.getByRole("cell", { name: /audited\.txt/ }).first().waitFor();
    for (const decision of ["denied", "cancelled"]) {
      await page.getByLabel("Decision").selectOption(decision);
      await page.getByText("No entry matches").waitFor();
      // The agent read the file first, which was not there.
      await page.getByLabel("Decision").selectOption("failed");
      await page.getByRole("row").filter({ hasText: "audited.txt" }).first().waitFor();
      assert.deepEqual([...new Set(await page.locator("td.outcome").allInnerTexts())], ["failed"]);
    }
    await page.getByRole("button", { name: "Verify the chain" }).click();
    await page.locator("p.good").waitFor();
  });

  test("a changed audit log is found", async () => {
    const own = await Server.start();
    try {
      const page = await openPage(site.browser, own);
      site.keep(page);
      await startSession(page);
      await prompt(page, "write audited.txt x");
      await answerWith(page, "Allow once");
      await shown(page, "result: written");
      const files = (await readdir(join(own.directory, "state"), { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile());
      for (const entry of files) {
        const path = join(entry.parentPath, entry.name);
        const text = await readFile(path, "latin1");
        if (text.startsWith("{") && text.includes("audited.txt")) await writeFile(path, text.replaceAll("audited.txt", "another.txt"), "latin1");
      }
      await page.goto(`${own.origin}/#/audit`);
      await page.getByRole("button", { name: "Verify the chain" }).click();
      await page.getByText("the log is not as it was written").waitFor();
    } finally {
      await own.stop();
    }
  });

  test("the wire shows raw messages of the session in both directions, and of the page", async () => {
    const page = await site.open();
    const id = await startSession(page);
    await prompt(page, "propose");
    const tab = await site.openWindow(page, `#/s/${id}`);
    await answerWith(tab, "Allow once");
    await shown(page, "answer: once");
    await prompt(page, "wait");
    await shown(page, "waiting");
    await page.getByRole("button", { name: "Cancel" }).click();
    await isIdle(page);
    await page.getByRole("link", { name: "Wire" }).click();
    await page.getByRole("button", { name: /session\/update agent_message_chunk/ }).first().click();
    await page.getByLabel("Raw message").getByText('"answer: once"').waitFor();
    // It has opened below where it was.
    const opened = page.locator(".wire-line[aria-expanded=true]");
    assert.ok(await opened.evaluate((element) => element.getBoundingClientRect().top >= element.closest(".scroller").getBoundingClientRect().top));
    const row = (name) => page.getByRole("button", { name });
    await row(/^2\W+\d\d:\d\d:\d\d\W+sent\W*session\/prompt\W*request \d+/).waitFor();
    await row(/^3\W+\d\d:\d\d:\d\d\W+received\W*session\/update\W*user_message_chunk/).waitFor();
    const answer = row(/sent\W*result\W*session\/request_permission, request/);
    await answer.click();
    await page.getByLabel("Raw message").getByText('"optionId": "once"').waitFor();
    await page.getByText(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d · from client [0-9a-f]{6}$/).waitFor();
    await row(/sent\W*session\/cancel/).waitFor();
    await row(/received\W*result\W*session\/prompt, request \d+: cancelled/).waitFor();
    const facts = async (name) => {
      await row(name).first().click();
      return page.locator(".wire-facts").innerText();
    };
    const [prompter, responder] = [await facts(/sent\W*session\/prompt/), await facts(/sent\W*result\W*session\/request_permission/)].map((text) => text.split("client ")[1]);
    assert.notEqual(prompter, responder);
    assert.equal((await facts(/received\W*result\W*session\/prompt/)).split("client ")[1], prompter);
    await page.getByRole("button", { name: "This page" }).click();
    await page.getByLabel("Search messages").fill("session/prompt");
    await page.getByRole("button", { name: /^\d+\W+\d\d:\d\d:\d\d\W+sent\W*session\/prompt/ }).first().click();
    await page.getByLabel("Raw message").getByText('"propose"').waitFor();
    await page.getByLabel("Search messages").fill("end_turn");
    await page.getByRole("button", { name: /received\W*result\W*session\/prompt, request \d+: end_turn/ }).waitFor();
  });

  test("the wire of a long session is shown whole, and goes on while the agent works", async () => {
    const page = await site.open();
    const id = await startSession(page);
    await prompt(page, "stream 3000");
    await isIdle(page);
    await prompt(page, "drip");
    await shown(page, "drip 0");
    const events = async (after) => (await (await page.request.get(`${site.server.origin}/api/sessions/${encodeURIComponent(id)}/events?after=${after}`)).json());
    assert.ok((await events((await events(0)).last)).events.length > 0, "the session fits into one answer");
    await page.getByRole("link", { name: "Wire" }).click();
    const messages = page.getByRole("main").getByText(/^[\d,]+ messages$/);
    const count = async () => Number((await messages.innerText()).replace(/\D/g, ""));
    await page.waitForFunction(() => Number(document.querySelector(".view-title p").textContent.replace(/\D/g, "")) > 3000);
    const before = await count();
    await page.waitForFunction((least) => Number(document.querySelector(".view-title p").textContent.replace(/\D/g, "")) > least, before + 5);
    await page.getByLabel("Search messages").fill("word2999");
    await page.getByText("0 messages").waitFor();
    await page.getByLabel("Search messages").fill("end of paragraph 2999");
    await page.getByText("1 messages").waitFor();
    await page.getByRole("link", { name: "Chat" }).click();
    await page.getByRole("button", { name: "Cancel" }).click();
    await isIdle(page);
  });

  test("an admin sees the state of the server", async () => {
    const page = await site.open();
    await page.getByRole("link", { name: "Status" }).click();
    await page.getByText("Agent processes").waitFor();
    await page.getByText("in order").waitFor();
  });
});

describe("faults", () => {
  test("a session outside of the list is known to end its turn", async () => {
    const page = await site.open();
    const id = await startSession(page);
    await prompt(page, "wait");
    await shown(page, "waiting");
    const archived = await page.request.post(`${site.server.origin}/api/sessions/${encodeURIComponent(id)}/archive`, { data: { archived: true }, headers: { Origin: site.server.origin } });
    assert.equal(archived.status(), 204);
    await page.reload();
    await shown(page, "waiting");
    await prompt(page, "next in line");
    await page.getByRole("button", { name: "Cancel" }).click();
    await shown(page, "echo: next in line");
    await isIdle(page);
  });

  test("a reload and a second tab say how each turn ended", async () => {
    const page = await site.open();
    const id = await startSession(page);
    const tab = await site.openWindow(page, `#/s/${id}`);
    const expected = [];
    const isShown = async (view, ...entries) => {
      await conversation(view).locator(".item").filter({ hasText: entries.at(-1) }).last().waitFor();
      assert.deepEqual(await conversation(view).locator(".item-user, .item-note").allInnerTexts(), entries);
    };
    for (const [text, note] of [["refuse", "The model refused to go on"], ["fail", "The model is not reachable"]]) {
      await prompt(page, text);
      expected.push(text, note);
      for (const view of [page, tab]) await isShown(view, ...expected);
      await page.reload();
      await isShown(page, ...expected);
    }
    await prompt(tab, "wait");
    await shown(page, "waiting");
    await page.getByRole("button", { name: "Cancel" }).click();
    expected.push("wait", "Cancelled");
    for (const view of [page, tab]) await isShown(view, ...expected);
    await prompt(tab, "and on");
    await shown(page, "echo: and on");
    expected.push("and on");
    for (const view of [page, tab]) await isShown(view, ...expected);
    await tab.reload();
    await isShown(tab, ...expected);
  });

  test("a session that was closed and is opened again shows the prompts of this page", async () => {
    const page = await site.open();
    const id = await startSession(page);
    await prompt(page, "refuse");
    await conversation(page).getByText("The model refused to go on").waitFor();
    // The page follows only so many sessions.
    for (let count = 0; count < 12; count += 1) await startSession(page);
    await page.goto(`${site.server.origin}/#/s/${id}`);
    await conversation(page).getByText("The model refused to go on").waitFor();
    assert.deepEqual(await conversation(page).locator(".item-user, .item-note").allInnerTexts(), ["refuse", "The model refused to go on"]);
  });

  test("a session that could not be opened is tried again", async () => {
    const page = await site.open();
    const id = await startSession(page);
    await prompt(page, "hi");
    await shown(page, "echo: hi");
    const archived = await page.request.post(`${site.server.origin}/api/sessions/${encodeURIComponent(id)}/archive`, { data: { archived: true }, headers: { Origin: site.server.origin } });
    assert.equal(archived.status(), 204);
    await page.route("**/api/overview?session=*", (route) => route.fulfill({ status: 503, json: { error: "the store is busy" } }));
    await page.reload();
    await page.getByText("This session cannot be opened").waitFor();
    await page.unrouteAll();
    await page.getByRole("button", { name: "Try again" }).click();
    await shown(page, "echo: hi");
  });

  test("a second tab and a reload show the same conversation", async () => {
    const page = await site.open();
    const id = await startSession(page);
    const tab = await site.openWindow(page, `#/s/${id}`);
    await tab.getByRole("combobox", { name: "Prompt" }).waitFor();
    await prompt(page, "both see this");
    await shown(tab, "echo: both see this");
    assert.equal(await conversation(tab).locator(".item-user").innerText(), "both see this");
    await tab.locator("select[data-setting=model]").selectOption("deep");
    await page.waitForFunction(() => document.querySelector("select[data-setting=model]").value === "deep");
    await prompt(page, "think");
    await prompt(page, "terminal");
    await prompt(page, "image");
    await shown(tab, "A picture:");
    await prompt(tab, "wait");
    await page.locator(".view-head .state-working").waitFor();
    await shown(page, "waiting");
    await page.reload();
    await shown(page, "waiting");
    const state = async (view) => ({
      items: await conversation(view).getByRole("article").evaluateAll((items) => items.map((item) => `${item.getAttribute("aria-label")}: ${item.innerText} ${item.querySelectorAll("img").length}`)),
      plan: await view.getByRole("region", { name: "Plan" }).innerText(),
      usage: await view.locator(".usage").innerText(),
      settings: await view.locator("select[data-setting]").evaluateAll((list) => list.map((select) => select.value)),
      title: await view.getByRole("heading", { level: 1 }).innerText(),
    });
    await shown(tab, "waiting");
    const [left, right] = await Promise.all([state(page), state(tab)]);
    assert.ok(left.items.length >= 10 && left.plan.includes("1 of 3"), JSON.stringify(left));
    assert.deepEqual(left, right);
    await page.getByRole("button", { name: "Cancel" }).click();
    await Promise.all([isIdle(page), isIdle(tab)]);
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

  test("an agent that does not start is named, and used once it does", async () => {
    const own = await Server.start({ agent: ["sh", "-c", 'exec "$HOME/agent"'] });
    try {
      const page = await openPage(site.browser, own, { viewport: PHONE });
      site.keep(page);
      await page.getByRole("alert").getByText("The agent of this server cannot be used: the agent did not start: ").waitFor();
      await writeFile(join(own.directory, "agent"), `#!/bin/sh\nexec ${AGENT.join(" ")}\n`, { mode: 0o755 });
      await page.getByRole("button", { name: "Retry" }).click();
      await page.getByRole("alert").waitFor({ state: "detached" });
      await startSession(page);
      await prompt(page, "at last");
      await shown(page, "echo: at last");
    } finally {
      await own.stop();
    }
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
    // The page may be back before the button is pressed, which nothing then waits for.
    page.getByRole("button", { name: "Retry" }).click().catch(() => undefined);
    await shown(page, "echo: typed offline");
    assert.deepEqual(await conversation(page).locator(".item-user").allInnerTexts(), ["before the drop", "typed offline"]);
  });

  test("a restarted server finds the page again", async () => {
    const own = await Server.start();
    try {
      const page = await openPage(site.browser, own);
      site.keep(page);
      await startSession(page);
      await prompt(page, "think");
      await shown(page, "I will bound it");
      await prompt(page, "fail");
      await shown(page, "The model is not reachable");
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
      // What the overview says of other sessions outlives the server, too.
      await page.goto(`${own.origin}/#/`);
      const row = page.getByRole("listitem").filter({ hasText: "think" });
      await row.getByText("Failed").waitFor();
      await row.getByText("8% · $0.06").waitFor();
      await row.getByRole("link").click();
      await page.getByRole("alert").getByText("The model is not reachable").waitFor();
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
    if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(await axeSource);
    return page.evaluate(async () => {
      const { violations } = await window.axe.run(document, { resultTypes: ["violations"] });
      return violations.filter(({ impact }) => impact === "serious" || impact === "critical").map(({ id, nodes }) => `${id}: ${nodes.map(({ target }) => target.join(" ")).slice(0, 4).join(", ")}`);
    });
  }

  /** Returns what scrolls sideways though only diffs, output and tables may, as lines. */
  const findWide = (page) => page.evaluate(() => [...document.querySelectorAll("html, .page, .page-body, .scroller, .approval-body, .bottom, .suggestions, .dialog-body, dialog, .login")]
    .filter((element) => element.scrollWidth > element.clientWidth).map((element) => `${element.className || element.tagName}: ${element.scrollWidth} > ${element.clientWidth}`));

  const countAnimations = (page) => page.evaluate(() => document.getAnimations().filter(({ playState }) => playState === "running").length);

  for (const [name, viewport, colorScheme] of [["a desktop in light", DESKTOP, "light"], ["a desktop in dark", DESKTOP, "dark"], ["a phone in light", PHONE, "light"], ["a phone in dark", PHONE, "dark"]]) {
    test(`every view is accessible and fits on ${name}`, async () => {
      const page = await site.open({ viewport, context: { colorScheme, reducedMotion: "reduce" } });
      const check = async (view, shownPage = page) => {
        assert.deepEqual(await audit(shownPage), [], view);
        assert.deepEqual(await findWide(shownPage), [], view);
        assert.equal(await countAnimations(shownPage), 0, view);
      };
      const stranger = await newPage(await site.browser.newContext({ viewport, colorScheme, reducedMotion: "reduce" }));
      site.keep(stranger);
      await stranger.goto(site.server.origin);
      await stranger.getByLabel("Token").fill("wrong");
      await stranger.getByRole("button", { name: "Sign in" }).click();
      await stranger.getByRole("alert").waitFor();
      await check("login", stranger);
      await page.getByRole("button", { name: "Keys" }).click();
      await page.getByRole("dialog", { name: "Keys" }).waitFor();
      await check("keys");
      await page.getByRole("dialog", { name: "Keys" }).getByRole("button", { name: "Close" }).click();
      await page.getByRole("main").getByRole("button", { name: "New session" }).click();
      await page.getByRole("dialog", { name: "New session" }).locator("button[type=submit]:enabled:not([aria-busy=true])").waitFor();
      await check("form of a new session");
      await page.getByRole("dialog", { name: "New session" }).getByRole("button", { name: "Cancel" }).click();
      const id = await startSession(page);
      await check("new session");
      await prompt(page, "hello");
      await shown(page, "Streaming");
      await prompt(page, "think");
      await shown(page, "I will bound it");
      await page.getByRole("button", { name: /Plan 1 of 3/ }).click();
      for (const [text, answer] of [["image", "A picture:"], ["terminal", "One test fails."]]) {
        await prompt(page, text);
        await shown(page, answer);
      }
      await conversation(page).getByRole("button", { name: /cargo test/ }).click();
      await page.locator(".terminal .xterm-rows").getByText("FAILED").waitFor();
      const input = page.getByRole("combobox", { name: "Prompt" });
      await input.fill("");
      await input.pressSequentially("see @");
      await page.getByRole("option", { name: "README.md" }).waitFor();
      await check("open plan, terminal, image and suggestions");
      await page.keyboard.press("Escape");
      await page.getByRole("button", { name: /Plan 1 of 3/ }).click();
      await prompt(page, "wait");
      await shown(page, "waiting");
      await prompt(page, "form");
      await page.getByRole("list", { name: "Queued prompts" }).waitFor();
      await check("queue while a turn works");
      await page.getByRole("button", { name: "Cancel", exact: true }).click();
      const form = page.getByRole("group", { name: "Question of the agent" });
      await form.getByRole("button", { name: "Send" }).click();
      await form.getByText("This is needed.").first().waitFor();
      await check("question of the agent");
      await form.getByRole("button", { name: "Decline" }).click();
      await shown(page, /^form: /);
      await prompt(page, "ends README.md");
      await approval(page).getByRole("region", { name: "Changes of README.md" }).waitFor();
      const sizes = await approval(page).locator(".answer").evaluateAll((list) => list.map((element) => element.getBoundingClientRect().height));
      assert.ok(sizes.length >= 4 && sizes.every((height) => height >= (viewport === PHONE ? 44 : 36)), `${sizes}`);
      if (viewport === PHONE) {
        // Within reach of a thumb, without scrolling.
        for (const name of ["Allow once", "Reject", "Reject with reason…"]) {
          const { y, height } = await approval(page).getByRole("button", { name, exact: true }).boundingBox();
          assert.ok(y > PHONE.height * 0.4 && y + height <= PHONE.height, `${name} at ${y}`);
        }
      }
      await check("approval");
      await answerWith(page, "Reject with reason…");
      await approval(page).getByLabel(/Why not/).waitFor();
      await check("rejection with a reason");
      await approval(page).getByRole("button", { name: "Back" }).click();
      await answerWith(page, "Allow once");
      await shown(page, "result: written");
      await isIdle(page);
      await conversation(page).getByRole("button", { name: /Sign README/ }).click();
      await conversation(page).getByRole("region", { name: "Changes of README.md" }).waitFor();
      await check("conversation");
      if (viewport === PHONE) await page.keyboard.press("Control+f");
      else await page.getByRole("button", { name: "Find in the conversation" }).click();
      await page.getByRole("searchbox", { name: "Find in the conversation" }).fill("bound it");
      await page.getByRole("search").getByRole("status").getByText("1 of 1").waitFor();
      await check("find");
      for (const [hash, ready] of [["#/", "hello"], [`#/s/${id}/changes`, "Undo turn"], [`#/s/${id}/wire`, "session/update"], ["#/audit", "README.md"], ["#/status", "in order"]]) {
        await page.goto(`${site.server.origin}/${hash}`);
        await page.getByRole("main").getByText(ready).first().waitFor();
        await check(hash);
      }
      await page.getByRole("link", { name: "Sessions", exact: true }).click();
      await page.getByRole("button", { name: /^Delete / }).first().click();
      await page.getByRole("dialog").waitFor();
      await check("confirmation");
      await page.keyboard.press("Escape");
      const changed = (await site.disk("README.md")).replace("// first", "// mine").replace(/\/\/ last\n$/, "// mine\n");
      await writeFile(join(site.server.project, "README.md"), changed);
      await page.goto(`${site.server.origin}/#/s/${id}/changes`);
      await page.getByRole("region", { name: "Turn: ends README.md" }).getByRole("button", { name: "Undo turn" }).click();
      await page.getByRole("alert", { name: "Conflicts" }).getByLabel(/README.md now/).first().waitFor();
      await check("conflicts");
    });
  }

  test("what moves does not if a person wants it so", async () => {
    for (const reducedMotion of ["no-preference", "reduce"]) {
      const page = await site.open({ context: { reducedMotion } });
      await startSession(page);
      await prompt(page, "wait");
      await page.locator(".progress .pulse").waitFor();
      assert.equal((await countAnimations(page)) > 0, reducedMotion === "no-preference");
      await page.getByRole("button", { name: "Cancel" }).click();
      await isIdle(page);
    }
  });

  test("the focus goes back to where it was, and stays in the view when a question goes", async () => {
    const page = await site.open();
    const isFocused = (name) => page.waitForFunction(
      (expected) => (document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.id) === expected,
      name,
    );
    const keys = page.getByRole("button", { name: "Keys" });
    await keys.focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", { name: "Keys" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog", { name: "Keys" }).waitFor({ state: "detached" });
    await isFocused("Keys");
    await startSession(page);
    await prompt(page, "propose");
    const once = approval(page).locator("[data-option=once]:enabled");
    await once.focus();
    await page.keyboard.press("Enter");
    await shown(page, "answer: once");
    await isFocused("main");
  });

  test("every single key does what the help says", async () => {
    const server = await Server.start();
    try {
      const own = await openPage(site.browser, server);
      site.keep(own);
      const waiting = await startSession(own);
      await prompt(own, "command one");
      await approval(own).locator("[data-option=once]:enabled").waitFor();
      const id = await startSession(own);
      await prompt(own, "propose");
      await approval(own).locator("[data-option=once]:enabled").waitFor();
      await own.keyboard.press("Escape");
      const heading = (name) => own.getByRole("heading", { name, exact: true, level: 1 }).waitFor();
      const isAt = (session) => own.waitForFunction((hash) => location.hash === hash, `#/s/${encodeURIComponent(session)}`);
      for (const [key, name] of [["a", "Audit log"], ["s", "Server status"], ["o", "Sessions"]]) {
        await own.keyboard.type(`g${key}`);
        await heading(name);
      }
      await own.goto(`${server.origin}/#/s/${encodeURIComponent(id)}`);
      await approval(own).locator("[data-option=once]:enabled").waitFor();
      await own.evaluate(() => document.activeElement instanceof HTMLElement && document.activeElement.blur());
      for (const [key, name] of [["d", "Changes"], ["w", "Wire"]]) {
        await own.keyboard.type(`g${key}`);
        await heading(name);
      }
      await own.keyboard.type("gc");
      const split = approval(own).locator("table.split").first();
      await approval(own).locator("table.diff").first().waitFor();
      const wasSplit = await split.isVisible();
      await own.keyboard.press("v");
      await split.waitFor({ state: wasSplit ? "detached" : "visible" });
      await own.keyboard.press("b");
      await approval(own).locator("input[type=checkbox]:checked").waitFor();
      await own.keyboard.press("w");
      await isAt(waiting);
      await own.keyboard.press("k");
      await isAt(id);
      await own.keyboard.press("j");
      await isAt(waiting);
      await own.keyboard.press("w");
      await isAt(id);
      for (const [key, answer] of [["y", "once"], ["s", "session"], ["p", "always"], ["n", "reject"]]) {
        await approval(own).locator("[data-option=once]:enabled").waitFor();
        await own.keyboard.press(key);
        await shown(own, new RegExp(`^answer: ${answer}$`));
        await isIdle(own);
        await own.keyboard.press("/");
        await own.keyboard.type("propose");
        await own.keyboard.press("Enter");
        await approval(own).waitFor();
        await own.keyboard.press("Escape");
      }
      await approval(own).locator("[data-option=once]:enabled").waitFor();
      await own.keyboard.press("r");
      await own.keyboard.type("no");
      await own.keyboard.press("Enter");
      await shown(own, "answer: reject: no");
    } finally {
      await server.stop();
    }
  });

  test("everything can be reached by keys", async () => {
    const page = await site.open();
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keys" }).getByText("reject with a reason").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog", { name: "Keys" }).waitFor({ state: "detached" });
    await page.keyboard.press("c");
    await page.getByRole("dialog", { name: "New session" }).locator("button[type=submit]:enabled").waitFor();
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
