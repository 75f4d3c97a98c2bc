// The page's pure modules, its types, its vendored files, and the size of what a first visit loads.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, normalize } from "node:path";
import { describe, test } from "node:test";
import { gzipSync } from "node:zlib";
import { assetsDir, packagesDir, testsDir } from "./packages.mjs";
import { checkTypes } from "./types.mjs";
import { readVendored, vendoredFiles } from "./vendor.mjs";

const load = (name) => import(join(assetsDir, name));

const { addPrompt, applySetup, applyUpdate, createState, endTurn, hasPrompt, MAX_ITEMS, MAX_OUTPUT, settings } = await load("store.js");

/** Folds updates, and returns the conversation as lines. */
function fold(updates, state = createState()) {
  for (const update of updates) applyUpdate(state, update);
  return state.items.map((item) => {
    if (item.kind === "tool") return `tool ${item.call.status} ${item.call.title}`;
    if (item.kind === "note") return `${item.level} ${item.text}`;
    return `${item.kind} ${item.parts.map((part) => part.text ?? `[${part.type}]`).join("|")}`;
  });
}

const chunk = (kind, text, messageId) => ({ sessionUpdate: `${kind}_chunk`, content: { type: "text", text }, ...(messageId ? { messageId } : {}) });
const call = (fields) => ({ sessionUpdate: "tool_call_update", toolCallId: "t", ...fields });

describe("store", () => {
  test("chunks join until the kind, the message or the turn changes", () => {
    const state = createState();
    fold([chunk("agent_message", "a"), chunk("agent_message", "b"), chunk("agent_thought", "c"), chunk("agent_message", "d", "1"), chunk("agent_message", "e", "2")], state);
    endTurn(state, { stopReason: "end_turn" });
    assert.deepEqual(fold([chunk("agent_message", "f")], state), ["agent ab", "thought c", "agent d", "agent e", "agent f"]);
  });

  test("two prompts in a row are two items, and parts of one are one", () => {
    const state = createState();
    addPrompt(state, [{ type: "text", text: "one" }, { type: "resource_link", uri: "file:///a", name: "a" }]);
    addPrompt(state, [{ type: "text", text: "two" }]);
    assert.deepEqual(fold([], state), ["user one|[link]", "user two"]);
    assert.equal(hasPrompt(state, " two "), true);
    assert.equal(hasPrompt(state, "three"), false);
  });

  test("a finished call stays finished", () => {
    assert.deepEqual(fold([call({ title: "Run", status: "failed" }), call({ status: "in_progress" }), call({ title: "Ran" })]), ["tool failed Ran"]);
  });

  test("a change counts up the version of its item only", () => {
    const state = createState();
    fold([call({ title: "Run" }), chunk("agent_message", "a")], state);
    const before = state.items.map(({ version }) => version);
    fold([chunk("agent_message", "b")], state);
    assert.deepEqual(state.items.map(({ version }, index) => version - before[index]), [0, 1]);
  });

  test("the output of an agent's own terminal is appended and bounded", () => {
    const state = createState();
    const output = (data) => call({ _meta: { terminal_output: { terminal_id: "x", data } } });
    fold([output("a".repeat(MAX_OUTPUT)), output("bc"), call({ _meta: { terminal_exit: { terminal_id: "x", exit_code: 2 } } })], state);
    const terminal = state.tools.get("t").terminals.get("x");
    assert.equal(terminal.text.length, MAX_OUTPUT);
    assert.equal(terminal.text.endsWith("abc"), true);
    assert.deepEqual([terminal.dropped, terminal.exit], [2, { exitCode: 2, signal: null }]);
  });

  test("the oldest items are dropped", () => {
    const state = createState();
    for (let number = 0; number < MAX_ITEMS * 1.2; number += 1) applyUpdate(state, { sessionUpdate: "tool_call", toolCallId: `t${number}`, title: "x" });
    assert.ok(state.items.length <= MAX_ITEMS * 1.1);
    assert.equal(state.items.length + state.dropped, MAX_ITEMS * 1.2);
    assert.equal(state.tools.size, state.items.length);
  });

  test("updates that make no sense change nothing", () => {
    const updates = [null, {}, { sessionUpdate: "agent_message_chunk" }, { sessionUpdate: "tool_call" }, { sessionUpdate: "plan" }, { sessionUpdate: "usage_update", used: "x" }, { sessionUpdate: "unknown" }];
    assert.deepEqual(fold(updates), []);
  });

  test("settings come from options, modes and models", () => {
    const state = createState();
    applySetup(state, {
      configOptions: [{ id: "fast", name: "Fast", type: "boolean", currentValue: true }, { id: "m", name: "Model", category: "model", type: "select", currentValue: "a", options: [{ group: "g", name: "Group", options: [{ value: "a", name: "A" }] }] }],
      modes: { currentModeId: "ask", availableModes: [{ id: "ask", name: "Ask" }] },
    });
    assert.deepEqual(settings(state).map(({ id, source, current }) => [id, source, current]), [["m", "option", "a"], ["mode", "mode", "ask"], ["fast", "option", true]]);
    applyUpdate(state, { sessionUpdate: "current_mode_update", currentModeId: "code" });
    assert.equal(settings(state)[1].current, "code");
  });

  test("notices, compactions and plans are shown", () => {
    const state = createState();
    assert.deepEqual(fold([
      { sessionUpdate: "notice", severity: "warning", title: "Slow" },
      { sessionUpdate: "compaction_update", status: "in_progress" }, { sessionUpdate: "compaction_update", status: "completed", summary: [{ type: "text", text: "short" }] },
      { sessionUpdate: "plan", entries: [{ content: "do", status: "pending" }, null] },
    ], state), ["warning Slow", "info The conversation was compacted"]);
    assert.equal(state.plan.length, 1);
  });
});

describe("connection", () => {
  test("pauses grow up to eight seconds", async () => {
    const { pauseBefore } = await load("acp.js");
    assert.deepEqual([0, 1, 4, 20].map((attempt) => pauseBefore(attempt, 0.5)), [250, 500, 4000, 8000]);
  });

  test("the traffic that is kept is bounded", async () => {
    const { Connection } = await load("acp.js");
    const connection = new Connection("", { onTraffic: () => undefined });
    for (let number = 0; number < 20; number += 1) connection.record("in", "x".repeat(1 << 20));
    for (let number = 0; number < 5000; number += 1) connection.record("in", String(number));
    assert.ok(connection.traffic.length <= 2000);
    assert.ok(connection.trafficSize <= 8 << 20);
    assert.equal(connection.traffic.at(-1).text, "4999");
    // The rows of a view keep their numbers.
    assert.deepEqual([connection.traffic.at(-1).number - connection.traffic[0].number + 1, connection.traffic.at(-1).number], [connection.traffic.length, connection.trafficCount]);
  });
});

describe("text", () => {
  test("a growing text keeps its finished blocks", async () => {
    const { joinBlocks, tailStart } = await load("markdown.js");
    const blocks = [{ start: 0, end: 5, node: "a" }, { start: 5, end: 9, node: "b" }];
    const joined = joinBlocks(blocks, tailStart(blocks), [{ start: 0, end: 6, node: "B" }, { start: 6, end: 8, node: "c" }]);
    assert.equal(joined[0], blocks[0]);
    assert.deepEqual(joined.slice(1), [{ start: 5, end: 11, node: "B" }, { start: 11, end: 13, node: "c" }]);
  });

  test("invisible characters are written out", async () => {
    const { firstLine, plainOutput, visible, visibleProse } = await load("format.js");
    assert.equal(visibleProse("a\u202Eb\u2066c \u200Fשלום\u200D\r\n\u{E0041}"), "a\\u{202e}b\\u{2066}c \u200Fשלום\u200D\n\\u{e0041}");
    assert.equal(visible("a\u202Eb\u200Bc\td\n"), "a\\u{202e}b\\u{200b}c\td\n");
    assert.equal(firstLine("one\ntwo", 2), "on…");
    assert.equal(plainOutput("\u001b[31mred\u001b[0m \u001b]8;;http://x\u0007link\u001b]8;;\u0007 \u001b]52;c;eA==\u001b\\ 10%\r100%\r\nend"), "100%\nend");
  });

  test("ages, durations and counts are short", async () => {
    const { age, compact, duration, relativePath, usageText, withRelativePaths } = await load("format.js");
    const hour = 3_600_000;
    assert.deepEqual([0, 5 * 60_000, 3 * hour, 24 * hour, 80 * hour].map((past) => age(100 * hour - past, 100 * hour)), ["just now", "5 min", "3 h", "1 day", "3 days"]);
    assert.deepEqual([0, 59, 3600, 90_061].map(duration), ["0 s", "59 s", "1 h", "1 d 1 h"]);
    assert.deepEqual([12, 1234, 123_456, 2_000_000].map(compact), ["12", "1.2k", "123k", "2.0M"]);
    assert.deepEqual(["/a/b", "/ab"].map((path) => relativePath(path, "/a")), ["b", "/ab"]);
    assert.deepEqual(["write /a/b", "ls /"].map((text) => withRelativePaths(text, "/a")), ["write b", "ls /"]);
    assert.equal(usageText({ used: 50, size: 200, cost: { amount: 0.5, currency: "USD" } }), "25% · $0.50");
  });

  test("files and commands are completed where they begin", async () => {
    const { completeMention, findFileNames, findMention, toBlocks } = await load("mentions.js");
    const found = ["/rev", "see /rev", "look at @src/pa", "me@home", "@"].map((text) => findMention(text, text.length));
    assert.deepEqual(found.map((mention) => mention && `${mention.kind} ${mention.start} ${mention.query}`), ["command 0 rev", null, "file 8 src/pa", null, "file 0 "]);
    assert.deepEqual(completeMention("look at @s now", 10, findMention("look at @s now", 10), "src/a.rs"), { text: "look at @src/a.rs  now", cursor: 18 });
    assert.deepEqual(toBlocks("see @a b.rs", ["a b.rs", "gone.rs"], "/p", []), [{ type: "text", text: "see @a b.rs" }, { type: "resource_link", uri: "file:///p/a%20b.rs", name: "a b.rs" }]);
    assert.deepEqual(toBlocks("see @a.rs.bak, then (@b.rs).", ["a.rs", "b.rs"], "/p", []).slice(1).map(({ name }) => name), ["b.rs"]);
    // What is being written is not looked up, and a name may end a sentence.
    assert.deepEqual(findFileNames("@a.rs, me@home @b", 17), ["a.rs,", "a.rs"]);
    assert.deepEqual(findFileNames("@a.rs, me@home @b", -1), ["a.rs,", "a.rs", "b"]);
  });
});

describe("views", () => {
  test("lines of a hunk are paired side by side", async () => {
    const { pairLines } = await load("diff.js");
    const lines = [..."  --+ +"].map((kind, index) => ({ kind, old: index, new: index, parts: [] }));
    assert.deepEqual(pairLines(lines).map(({ left, right }) => `${left?.kind ?? "."}${right?.kind ?? "."}`), ["  ", "  ", "-+", "-.", "  ", ".+"]);
  });

  test("hunks without a gap between them are joined", async () => {
    const { joinHunks } = await load("diff.js");
    const hunk = (newStart, kinds) => ({ oldStart: newStart, newStart, lines: [...kinds].map((kind) => ({ kind })) });
    const joined = joinHunks([hunk(1, " -+"), hunk(3, "+ "), hunk(9, " +")]);
    assert.deepEqual(joined.map(({ newStart, lines }) => `${newStart}:${lines.map(({ kind }) => kind).join("")}`), ["1: -++ ", "9: +"]);
  });

  test("warnings of a question come apart from its operations and its reason", async () => {
    const { readRequestText } = await load("views/approval.js");
    assert.deepEqual(readRequestText("The agent asks: run it\n! reaches the network\n! removes /\nrun rm\n! not a warning\nAsked because no rule covers it\n"), {
      dangers: ["reaches the network", "removes /"], body: "run rm\n! not a warning", reason: "Asked because no rule covers it", isOwn: true,
    });
    assert.deepEqual(readRequestText("Careful: a\nCareful: b").dangers, ["a", "b"]);
    assert.deepEqual(readRequestText("# Any text"), { dangers: [], body: "# Any text", reason: "", isOwn: false });
  });

  test("the command that is shown is not repeated", async () => {
    const { besideCommand, shortName } = await load("views/approval.js");
    assert.equal(besideCommand("```\nrun make\nin /p\n```", "make"), "in /p");
    assert.equal(besideCommand("run make", "make"), "");
    assert.deepEqual([besideCommand("run makes", "make"), besideCommand("run make", null)], [null, null]);
    assert.equal(shortName("Always allow exactly `make` here", "make"), "Always allow exactly this command here");
    assert.equal(shortName("Allow `make`", null), "Allow `make`");
  });

  test("an option that cannot be chosen is left out", async () => {
    const { toOptions } = await load("views/approval.js");
    assert.deepEqual(toOptions([null, { optionId: 5 }, { optionId: "a" }]), [{ optionId: "a", name: "a", kind: "" }]);
    assert.deepEqual(toOptions("x"), []);
  });

  test("only rows in sight are rendered", async () => {
    const { visibleRange } = await load("virtual-list.js");
    const range = visibleRange(new Array(10_000).fill(100), 500_000, 800);
    assert.ok(range.start > 4900 && range.end < 5100 && range.start < range.end);
    assert.equal(range.before + range.after + (range.end - range.start) * 100, 1_000_000);
    assert.deepEqual(visibleRange([], 0, 800), { start: 0, end: 0, before: 0, after: 0 });
  });

  test("heights of rows are kept while the list grows", async () => {
    const { updateHeights } = await load("virtual-list.js");
    const list = { id: "", first: "", last: "", heights: [], known: new Map() };
    const rows = (/** @type {string} */ keys) => [...keys].map((key) => ({ key }));
    assert.deepEqual(updateHeights(list, "a", []), []);
    assert.deepEqual(updateHeights(list, "a", rows("pq")), [90, 90]);
    list.known.set("q", 40);
    const kept = list.heights;
    kept[1] = 40;
    assert.equal(updateHeights(list, "a", rows("pqr")), kept);
    assert.deepEqual(kept, [90, 40, 90]);
    assert.deepEqual(updateHeights(list, "a", rows("qr")), [40, 90], "the first was left out");
    assert.deepEqual(updateHeights(list, "a", rows("qxr")), [40, 90, 90], "one came in between");
    assert.deepEqual(updateHeights(list, "a", rows("q")), [40], "the last ones are gone");
    assert.deepEqual(updateHeights(list, "b", rows("q")), [90], "another list");
  });

  test("the workspace with a waiting session comes first", async () => {
    const { groupByWorkspace } = await load("views/overview.js");
    const session = (id, workspace, updatedAt, state = "idle") => ({ id, workspace, cwd: workspace, updatedAt, state });
    const groups = groupByWorkspace([session("a", "/x", 9), session("b", "/y", 1, "waiting"), session("c", "/y", 5)]);
    assert.deepEqual(groups.map((group) => `${group.workspace} ${group.sessions.map(({ id }) => id).join("")}`), ["/y bc", "/x a"]);
  });

  test("only a session that begins to wait is notified", async () => {
    const { newlyWaiting } = await load("notifications.js");
    const waits = (id) => ({ id, state: "waiting" });
    assert.deepEqual(newlyWaiting(null, [waits("a")]), []);
    assert.deepEqual(newlyWaiting([waits("a"), { id: "b", state: "idle" }], [waits("a"), waits("b")]), [waits("b")]);
  });

  test("each key answers with the option of its meaning", async () => {
    const { optionForKey } = await load("views/approval.js");
    const options = [["once", "Allow", "allow_once"], ["allow_session", "Allow", "allow_always"], ["always", "Always", "allow_always"], ["no", "No", "reject_once"]].map(([optionId, name, kind]) => ({ optionId, name, kind }));
    assert.deepEqual(["y", "s", "p", "n", "x", "Enter"].map((key) => optionForKey(options, key)?.optionId), ["once", "allow_session", "always", "no", undefined, undefined]);
    assert.equal(optionForKey(options.slice(1), "y"), undefined);
  });

  test("addresses name views, and back", async () => {
    const { parseRoute, routeHash } = await load("router.js");
    for (const hash of ["#/", "#/s/a%2Fb", "#/s/x/changes", "#/s/x/wire", "#/audit", "#/status"]) assert.equal(routeHash(parseRoute(hash)), hash);
    assert.deepEqual(["", "#ticket=1", "#/s/%", "#/nothing"].map((hash) => parseRoute(hash).view), ["overview", "overview", "session", "overview"]);
  });

  test("a form sends what its schema allows", async () => {
    const { initialValues, toContent, toFields } = await load("elicitation.js");
    const fields = toFields({
      required: ["name", "size"],
      properties: {
        name: { type: "string", minLength: 2 }, size: { type: "integer", minimum: 1, maximum: 5 }, mail: { type: "string", format: "email" }, kind: { type: "string", enum: ["a", "b"] },
        tags: { type: "array", items: { anyOf: [{ const: "x", title: "X" }] }, minItems: 1 }, on: { type: "boolean", default: true },
      },
    });
    const check = (values) => toContent(fields, { ...initialValues(fields), ...values });
    assert.deepEqual(check({}).errors, { name: "This is needed.", size: "This is needed." });
    assert.deepEqual(check({ name: "a", size: "9", mail: "no", kind: "c" }).errors, { name: "At least 2 characters are needed.", size: "The most is 5.", mail: "This is not an email address.", kind: "Choose one." });
    assert.deepEqual(check({ name: "ab", size: "1.5" }).errors, { size: "This is not a whole number." });
    assert.deepEqual(check({ name: "ab", size: "2", tags: ["x"] }), { content: { name: "ab", size: 2, tags: ["x"], on: true }, errors: {} });
    assert.equal(toFields({ properties: { deep: { type: "object" } } }), null);
  });

  test("messages on the wire have names", async () => {
    const { messageName } = await load("views/wire.js");
    const names = [{ method: "session/update", params: { update: { sessionUpdate: "plan" } } }, { id: 3, method: "session/prompt" }, { id: 3, result: {} }, { id: 3, error: { message: "no" } }, null].map((message) => messageName(message));
    assert.deepEqual(names.map(({ name, detail }) => `${name}: ${detail}`), ["session/update: plan", "session/prompt: request 3", "result: request 3", "error: request 3: no", "no message: "]);
  });

  test("messages of a session and of the page have a direction and a request", async () => {
    const { eventEntry, trafficEntries } = await load("views/wire.js");
    const describe = ({ key, direction, name, detail, missing }) => `${key} ${direction} ${name}: ${detail}${missing ? `; ${missing}` : ""}`;
    const update = (sessionUpdate) => ({ method: "session/update", params: { update: { sessionUpdate } } });
    const events = [
      { seq: 1, kind: "update", message: update("user_message_chunk") }, { seq: 2, kind: "update", message: update("agent_message_chunk") },
      { seq: 3, kind: "request", client: "a", message: null }, { seq: 4, kind: "response", client: "a", message: { id: 7, result: { stopReason: "end_turn" } } },
      { seq: 5, kind: "message", client: "b", message: { id: 7, method: "session/prompt" } }, { seq: 6, kind: "question", message: { id: "q", method: "elicitation/create" } },
      { seq: 7, kind: "answer", client: "b", message: { id: "q", result: { action: "accept" } } }, { seq: 8, kind: "response", client: "b", message: { id: 7, error: { message: "no" } } },
      { seq: 9, kind: "message", client: "b", message: { method: "session/cancel", params: {} } },
    ];
    const methods = new Map();
    assert.deepEqual(events.map((event) => describe(eventEntry(event, methods))), [
      "e1 in session/update: user_message_chunk", "e2 in session/update: agent_message_chunk",
      "e3 in request to one client: not kept; Requests for one client's files and terminals are not kept.", "e4 in result: request 7: end_turn",
      "e5 out session/prompt: request 7; Its parameters are not kept: they are long, or may be secret.", "e6 in elicitation/create: request q",
      "e7 out result: elicitation/create, request q; What was filled in is not kept.", "e8 in error: session/prompt, request 7: no", "e9 out session/cancel: ",
    ]);
    const traffic = [["out", { id: 1, method: "session/prompt" }], ["in", { id: 1, method: "session/request_permission" }], ["out", { id: 1, result: {} }], ["in", { id: 1, error: { message: "no" } }]];
    const rows = trafficEntries([...traffic.map(([direction, message], index) => ({ number: index + 5, at: 0, direction, text: JSON.stringify(message) })), { number: 9, at: 0, direction: "in", text: "{" }]);
    assert.deepEqual(rows.map(describe), [
      "p5 out session/prompt: request 1", "p6 in session/request_permission: request 1", "p7 out result: session/request_permission, request 1",
      "p8 in error: session/prompt, request 1: no", "p9 in not JSON: ",
    ]);
  });
});

describe("files", () => {
  /** Returns the modules that the page loads at first, by path. */
  async function eagerModules(path = "app.js", found = new Map()) {
    if (found.has(path)) return found;
    const text = await readFile(join(assetsDir, path), "utf8");
    found.set(path, text);
    for (const [, target] of text.matchAll(/(?:^|[;}\n])(?:import|export)\b[^;"'()]*?from\s*"(\.[^"]+)"/g)) await eagerModules(normalize(join(dirname(path), target)), found);
    return found;
  }

  test("types are right", async () => {
    assert.equal(await checkTypes(), "");
  });

  test("vendored files are those of their packages", async () => {
    for (const [name, text] of await vendoredFiles()) assert.ok((await readVendored(name)) === text, `${name} differs from its package: run node tests/web/vendor.mjs --write`);
  });

  test("the page preloads exactly the modules that it needs at first", async () => {
    const page = await readFile(join(assetsDir, "index.html"), "utf8");
    const preloaded = [...page.matchAll(/rel="modulepreload" href="\/assets\/([^"]+)"/g)].map(([, path]) => path);
    const needed = [...(await eagerModules()).keys()].filter((path) => path !== "app.js").sort();
    assert.deepEqual(preloaded, needed);
  });

  test("a first visit loads less than 150 KiB, compressed", async () => {
    const texts = [...(await eagerModules()).values(), await readFile(join(assetsDir, "index.html")), await readFile(join(assetsDir, "style.css")), await readFile(join(assetsDir, "socket-worker.js")), await readFile(join(assetsDir, "favicon.svg"))];
    const size = texts.reduce((sum, text) => sum + gzipSync(text).length, 0);
    assert.ok(size < 150 << 10, `${size} bytes`);
  });

  test("no module makes markup or code of text", async () => {
    for (const [path, text] of await eagerModules()) {
      if (path.startsWith("vendor/")) continue;
      assert.doesNotMatch(text, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySetInnerHTML|\beval\(|new Function/, path);
      assert.doesNotMatch(text, /https?:\/\/(?!example\.com)[a-z]/, `${path} names another host`);
    }
  });
});

describe("browser", () => {
  /** Returns what the check of the packaged browser says, if that is a program with this text. */
  async function check(text) {
    const directory = await mkdtemp(join(tmpdir(), "bowline-browser-"));
    try {
      const modules = join(packagesDir, "node_modules");
      const { version } = JSON.parse(await readFile(join(modules, "@sparticuz/chromium/package.json"), "utf8"));
      await symlink(modules, join(directory, "node_modules"));
      const [program, partial] = [join(directory, `browser-${version}`, "chromium"), join(directory, `browser-${version}.x1`)];
      await mkdir(dirname(program));
      await mkdir(partial);
      await writeFile(program, text, { mode: 0o755 });
      const env = { ...process.env, BOWLINE_WEB_PACKAGES: directory, BOWLINE_PACKAGED_CHROMIUM: "1" };
      const { status, stdout, stderr } = spawnSync(process.execPath, [join(testsDir, "browser.mjs")], { env, encoding: "utf8" });
      assert.equal(existsSync(partial), false, "one that was not unpacked to the end is removed");
      return `${status} ${stdout.trim()}${/Error: (.*)/.exec(stderr)?.[1].replace(directory, "") ?? ""}`;
    } finally {
      await rm(directory, { recursive: true });
    }
  }

  test("one that does not start is named with the reason", async () => {
    assert.equal(await check("#!/bin/sh\necho Chromium 1\n"), "0 Chromium 1");
    assert.match(await check("#!/bin/sh\necho no library >&2\nexit 127\n"), /^1 .*\/chromium does not start: no library$/);
    assert.match(await check("#!/missing/interpreter\n"), /^1 .*\/chromium does not start: spawnSync .* ENOENT$/);
  });
});
