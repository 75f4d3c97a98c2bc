// An agent for the tests of the web page: ACP on stdin and stdout, without dependencies. The first word of a prompt says
// what it does; see `TASKS`. Files and commands go through the client, so that Bowline records them.

import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";

let nextId = 1;
const waiting = new Map();
const sessions = new Map();

const IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAYAAACNMs+9AAAAFUlEQVR42mNk+M9Qz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC";

const MARKDOWN = `## Streaming

It should **never block**, but it holds the buffer while the reader is slow. Three steps change that:

1. Chunks are appended to a buffer
2. A frame takes what it needs with \`take()\`
3. The rest *stays*

| step | cost |
|------|-----:|
| read | 12 µs |
| parse | 40 µs |

\`\`\`rust
fn take(&mut self, count: usize) -> &[u8] {
    &self.buffer[..count]
}
\`\`\`

See [the notes](https://example.com/notes) for the rest.`;

const HOSTILE = [
  "<img src=x onerror=\"window.pwned=1\"><script>window.pwned=1</script>",
  "[click](javascript:window.pwned=1) [data](data:text/html,<script>window.pwned=1</script>)",
  "![image](x\" onerror=\"window.pwned=1)",
  "\u202Egnp.exe\u202C invoice \u2066reversed\u2069",
  "run `rm\u200b -rf \u202e/tmp`",
  "```\u202esh onerror=\"x\"\necho \u2066hidden\u2069\n```",
  `long ${"x".repeat(20_000)}`,
  "<style>body{display:none}</style>",
].join("\n\n");

const HOSTILE_OUTPUT = "\u001b[31mred\u001b[0m \u001b]8;;https://evil.example/\u0007link\u001b]8;;\u0007 \u001b]52;c;ZXZpbA==\u0007 \u001b]0;evil title\u0007done\r\n<b>bold</b>\r\n";

/** What the agent is called: a server can have several. The second has other settings. */
const TITLE = process.env.AGENT_TITLE ?? "Scripted agent";
const MODELS = process.env.AGENT_TITLE ? [{ value: "calm", name: "Calm 1" }] : [{ value: "swift", name: "Swift 2" }, { value: "deep", name: "Deep 2" }];
const MORE_OPTIONS = process.env.AGENT_TITLE ? ["careful"] : [];

/** Whether the agent has modes and models, as before there were options. */
const IS_OLD = process.env.AGENT_IS_OLD !== undefined;
const MODES = [{ value: "ask", name: "Ask" }, { value: "edits", name: "Accept edits" }];

const COMMANDS = [
  { name: "review", description: "Review the changes of this branch", input: { hint: "what to look at" } },
  { name: "compact", description: "Summarise the conversation" },
];

function send(message) {
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
}

function call(method, params) {
  const id = nextId++;
  send({ id, method, params });
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

function options(session) {
  return [
    { id: "model", name: "Model", category: "model", type: "select", currentValue: session.model, options: MODELS },
    { id: "mode", name: "Mode", category: "mode", type: "select", currentValue: session.mode, options: MODES },
    ...MORE_OPTIONS.map((id) => ({ id, name: "Careful", type: "boolean", currentValue: session[id] === true })),
  ];
}

/** Returns what a client learns when it opens a session. */
function setup(session) {
  if (!IS_OLD) return { configOptions: options(session) };
  return {
    modes: { currentModeId: session.mode, availableModes: MODES.map(({ value, name }) => ({ id: value, name })) },
    models: { currentModelId: session.model, availableModels: MODELS.map(({ value, name }) => ({ modelId: value, name })) },
  };
}

function openSession(id, cwd) {
  const session = { id, cwd, model: MODELS[0].value, mode: "ask", used: 12_000, calls: 0, cancel: () => undefined };
  sessions.set(id, session);
  return session;
}

/** One turn of a session. */
class Turn {
  constructor(session, cancelled) {
    this.session = session;
    this.cancelled = cancelled;
  }

  update(update) {
    send({ method: "session/update", params: { sessionId: this.session.id, update } });
  }

  say(text, messageId) {
    this.update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text }, ...(messageId ? { messageId } : {}) });
  }

  usage(tokens) {
    this.session.used += tokens;
    this.update({ sessionUpdate: "usage_update", used: this.session.used, size: 200_000, cost: { amount: this.session.used / 250_000, currency: "USD" } });
  }

  /** Announces a tool call, and returns its id. */
  tool(fields) {
    this.session.calls += 1;
    const toolCallId = `call-${process.pid}-${this.session.calls}`;
    this.update({ sessionUpdate: "tool_call", toolCallId, status: "pending", ...fields });
    return toolCallId;
  }

  change(toolCallId, fields) {
    this.update({ sessionUpdate: "tool_call_update", toolCallId, ...fields });
  }

  async ask(toolCallId, fields = {}, more = []) {
    const { outcome, _meta } = await call("session/request_permission", {
      sessionId: this.session.id,
      toolCall: { toolCallId, ...fields },
      options: [
        { optionId: "once", name: "Allow once", kind: "allow_once" },
        ...more,
        { optionId: "reject", name: "Reject", kind: "reject_once" },
      ],
    });
    if (outcome.outcome === "cancelled") return "cancelled";
    const reason = _meta?.bowline?.reason;
    return reason ? `${outcome.optionId}: ${reason}` : outcome.optionId;
  }

  path(name) {
    return `${this.session.cwd}/${name}`;
  }

  async read(name) {
    return call("fs/read_text_file", { sessionId: this.session.id, path: this.path(name) }).then(({ content }) => content, () => null);
  }

  async write(name, content) {
    await call("fs/write_text_file", { sessionId: this.session.id, path: this.path(name), content });
  }

  /** Asks about changes of files without making them, and returns the answer. */
  async propose(title, changes) {
    const content = await this.diffs(changes);
    const id = this.tool({ title, kind: "edit", content, locations: content.map(({ path }) => ({ path })) });
    const answer = await this.ask(id, { title, kind: "edit", content }, [
      { optionId: "session", name: "Allow edits in this session", kind: "allow_always" },
      { optionId: "always", name: `Always allow edits of ${changes[0][0]}`, kind: "allow_always" },
    ]);
    this.change(id, { status: answer.startsWith("reject") ? "failed" : "completed" });
    return answer;
  }

  async diffs(changes) {
    const content = [];
    for (const [name, change] of changes) {
      const oldText = await this.read(name);
      content.push({ type: "diff", path: this.path(name), oldText, newText: change(oldText ?? "") });
    }
    return content;
  }

  /** Writes files through the client, which asks about each, and returns what came of it. */
  async edit(title, changes) {
    const content = await this.diffs(changes);
    const id = this.tool({ title, kind: "edit", content, locations: content.map(({ path }) => ({ path })) });
    this.change(id, { status: "in_progress" });
    try {
      for (const { path, newText } of content) await this.write(path.slice(this.session.cwd.length + 1), newText);
    } catch (error) {
      this.change(id, { status: "failed" });
      return error.message;
    }
    this.change(id, { status: "completed" });
    return "written";
  }

  /** Runs a command in a terminal of the client, which asks about it. */
  async run(command) {
    const id = this.tool({ title: `Run ${command}`, kind: "execute", rawInput: { command } });
    const sessionId = this.session.id;
    let terminalId;
    try {
      ({ terminalId } = await call("terminal/create", { sessionId, command: "sh", args: ["-c", command], cwd: this.session.cwd }));
    } catch (error) {
      this.change(id, { status: "failed" });
      return error.message;
    }
    this.change(id, { status: "in_progress", content: [{ type: "terminal", terminalId }] });
    const exit = await call("terminal/wait_for_exit", { sessionId, terminalId });
    const { output } = await call("terminal/output", { sessionId, terminalId });
    this.change(id, { status: exit.exitCode ? "failed" : "completed", content: [{ type: "terminal", terminalId }, { type: "content", content: { type: "text", text: output } }], rawOutput: { exitCode: exit.exitCode } });
    await call("terminal/release", { sessionId, terminalId });
    return `exit ${exit.exitCode}`;
  }
}

const TASKS = {
  async hello(turn) {
    for (const part of MARKDOWN.match(/[\s\S]{1,24}/g)) turn.say(part);
    turn.usage(4200);
  },

  async think(turn) {
    for (const text of ["**Looking** at the parser", " first, then at the tests.\n\nThe buffer grows without a limit."]) {
      turn.update({ sessionUpdate: "agent_thought_chunk", content: { type: "text", text } });
    }
    const entries = [["Read the parser", "completed"], ["Bound its buffer", "in_progress"], ["Run the tests", "pending"]];
    turn.update({ sessionUpdate: "plan", entries: entries.map(([content, status]) => ({ content, status, priority: "medium" })) });
    turn.say("The buffer has no limit. I will bound it.");
    turn.usage(3100);
  },

  /** `stream COUNT [SIZE]`: an answer of that many chunks, as fast as they are read. */
  async stream(turn, [count = "100"]) {
    for (let chunk = 0; chunk < Number(count); chunk += 1) {
      turn.say(chunk % 40 === 39 ? `end of paragraph ${chunk}.\n\n` : chunk % 200 === 17 ? "`code` and **bold** " : `word${chunk} `);
      if (chunk % 50 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
  },

  /** `many COUNT`: that many messages. */
  async many(turn, [count = "100"]) {
    for (let number = 0; number < Number(count); number += 1) {
      turn.say(`Message **${number}** ${"of many words ".repeat(number % 7)}`, `m${number}`);
      if (number % 100 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
  },

  /** Asks about two files, with answers of its own. */
  async propose(turn) {
    const answer = await turn.propose("Bound the buffer", [
      ["src/parser.rs", (text) => text.replace("let mut buffer = Vec::new();", "let mut buffer = Vec::with_capacity(LIMIT);").replace("    for &byte in input {\n        buffer.push(byte);", "    for &byte in input {\n\n        if buffer.len() < LIMIT {\n            buffer.push(byte);\n        }")],
      ["src/limits.rs", () => "//! Limits.\n\n/// The most bytes of a buffer.\npub const LIMIT: usize = 4096;\n"],
    ]);
    turn.say(`answer: ${answer}`);
    turn.usage(1500);
  },

  /** Asks about a command, with answers of its own, and does not run it. */
  async command(turn, words) {
    const fields = { title: "Run a command", kind: "execute", rawInput: { command: words.join(" ") } };
    const id = turn.tool(fields);
    const answer = await turn.ask(id, fields);
    turn.change(id, { status: answer === "once" ? "completed" : "failed" });
    turn.say(`answer: ${answer}`);
  },

  /** `write NAME TEXT`: writes a file. A line ends with `\n`. */
  async write(turn, [name = "note.txt", ...words]) {
    turn.say(`result: ${await turn.edit(`Write ${name}`, [[name, () => `${words.join(" ").replaceAll("\\n", "\n")}\n`]])}`);
    turn.usage(900);
  },

  /** `apply NAME TEXT`: asks about a change of a file, and then makes it. */
  async apply(turn, [name = "note.txt", ...words]) {
    const content = await turn.diffs([[name, () => `${words.join(" ")}\n`]]);
    const fields = { title: `Write ${name}`, kind: "edit", content, locations: content.map(({ path }) => ({ path })) };
    const id = turn.tool(fields);
    const answer = await turn.ask(id, fields);
    if (answer === "once") await turn.write(name, content[0].newText);
    turn.change(id, { status: answer === "once" ? "completed" : "failed" });
    turn.say(`applied: ${answer}`);
  },

  /** Adds a line at both ends of a file, which makes two hunks. */
  async ends(turn, [name = "src/parser.rs"]) {
    turn.say(`result: ${await turn.edit(`Sign ${name}`, [[name, (text) => `// first\n${text}// last\n`]])}`);
    turn.usage(1100);
  },

  async run(turn, words) {
    turn.say(`result: ${await turn.run(words.join(" ") || "cargo test")}`);
    turn.usage(700);
  },

  /** Output of a command that the agent runs itself, in pieces. */
  async terminal(turn) {
    const id = turn.tool({ title: "cargo test", kind: "execute", rawInput: { command: "cargo test" }, content: [{ type: "terminal", terminalId: "own" }], _meta: { terminal_info: { terminal_id: "own", cwd: turn.session.cwd } } });
    const output = (data) => turn.change(id, { _meta: { terminal_output: { terminal_id: "own", data } } });
    output("   \u001b[32mCompiling\u001b[0m parser v0.3.1\r\n");
    output("running 3 tests\r\ntest buffer::bounded ... \u001b[32mok\u001b[0m\r\ntest buffer::grows ... \u001b[38;2;20;140;60mok\u001b[0m\r\n");
    output("test reader::slow ... \u001b[31mFAILED\u001b[0m\r\n");
    turn.change(id, { status: "failed", _meta: { terminal_exit: { terminal_id: "own", exit_code: 101, signal: null } } });
    turn.say("One test fails.");
  },

  async form(turn) {
    const answer = await call("elicitation/create", {
      sessionId: turn.session.id, mode: "form", message: "How should the release be named?",
      requestedSchema: {
        type: "object", required: ["name", "channel"],
        properties: {
          name: { type: "string", title: "Name", minLength: 3 },
          channel: { type: "string", title: "Channel", oneOf: [{ const: "stable", title: "Stable" }, { const: "beta", title: "Beta" }] },
          copies: { type: "integer", title: "Copies", minimum: 1, maximum: 9, default: 1 },
          signed: { type: "boolean", title: "Sign it", default: true },
          targets: { type: "array", title: "Targets", items: { type: "string", enum: ["linux", "mac"] } },
        },
      },
    });
    turn.say(`form: ${JSON.stringify(answer)}`);
  },

  async visit(turn) {
    const answer = await call("elicitation/create", { sessionId: turn.session.id, mode: "url", message: "Sign in to the registry", elicitationId: "e1", url: "https://login.example/start?state=abc" });
    turn.say(`visit: ${answer.action}`);
  },

  async image(turn) {
    turn.say("A picture:");
    turn.update({ sessionUpdate: "agent_message_chunk", content: { type: "image", mimeType: "image/png", data: IMAGE } });
  },

  async hostile(turn) {
    turn.say(HOSTILE);
    const id = turn.tool({ title: "<b>Title</b> \u202Ereversed", kind: "execute", rawInput: { command: "echo \u202Ehidden" }, content: [{ type: "terminal", terminalId: "evil" }] });
    turn.change(id, { status: "completed", _meta: { terminal_output: { terminal_id: "evil", data: HOSTILE_OUTPUT } } });
    turn.change(id, { _meta: { terminal_exit: { terminal_id: "evil", exit_code: 0 } } });
  },

  async who(turn) {
    const { model, mode, careful } = turn.session;
    turn.say([`I am the ${TITLE}.`, `model ${model}, mode ${mode}`, ...(careful ? ["careful"] : [])].join("\n\n"));
  },

  async refuse() {
    return "refusal";
  },

  /** Sends a chunk from time to time until it is cancelled. */
  async drip(turn) {
    let isCancelled = false;
    turn.cancelled.then(() => {
      isCancelled = true;
    });
    for (let count = 0; !isCancelled; count += 1) {
      turn.say(`drip ${count} `);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return "cancelled";
  },

  /** Sends what is no message of the protocol, or hardly one. */
  async garbage(turn) {
    const values = [null, 5, "text", {}, [null, 5, {}, { type: 5 }, { type: "diff" }, { type: "content", content: { type: "text", text: 5 } }, { type: "content", content: { type: "image" } }, { type: "terminal" }]];
    for (const [index, value] of values.entries()) {
      const toolCallId = `garbage-${process.pid}-${turn.session.calls}-${index}`;
      turn.update({ sessionUpdate: "tool_call", toolCallId, title: value, kind: value, status: value, content: value, locations: value, rawInput: value, rawOutput: value });
      turn.update({ sessionUpdate: "plan", entries: value });
      turn.update({ sessionUpdate: "plan", entries: [value, { content: "a step", status: value }] });
      turn.update({ sessionUpdate: "usage_update", used: value, size: value });
      turn.update({ sessionUpdate: "agent_message_chunk", content: value });
      turn.update({ sessionUpdate: "available_commands_update", availableCommands: value });
      turn.update({ sessionUpdate: "config_option_update", configOptions: [...options(turn.session), value] });
      turn.update({ sessionUpdate: "session_info_update", title: value });
      turn.update({ sessionUpdate: value });
    }
    const { outcome } = await call("session/request_permission", {
      sessionId: turn.session.id, toolCall: { toolCallId: "garbage", title: { text: 5 }, content: [{ type: "diff", path: 5 }, null], locations: [null] },
      options: [null, { optionId: 5 }, { optionId: "bare" }],
    }).catch((error) => ({ outcome: { optionId: error.message } }));
    turn.say(`garbage: ${outcome.optionId}`);
  },

  async wait(turn) {
    turn.say("waiting");
    await turn.cancelled;
    return "cancelled";
  },

  async fail() {
    throw new Error("the model is not reachable");
  },

  async die() {
    process.exit(1);
  },
};

/** Prompts as people write them, for pictures. */
const SENTENCES = {
  "Why does the parser block when a reader is slow?": "hello",
  "Find out why memory grows with large inputs": "think",
  "Bound the parser's buffer": "propose",
  "Run the tests": "terminal",
  "Sign the parser's source": "ends",
  "Add a changelog": "write CHANGELOG.md Bound the buffer.",
  "Show the release page again when the feed is empty": "wait",
  "Translate the footer": "echo",
};

async function prompt(session, blocks) {
  const text = blocks.find((block) => block.type === "text")?.text ?? "";
  const [name, ...words] = (SENTENCES[text] ?? text).split(/\s+/);
  let cancel = () => undefined;
  const cancelled = new Promise((resolve) => {
    cancel = resolve;
  });
  session.cancel = cancel;
  const turn = new Turn(session, cancelled);
  const task = Object.hasOwn(TASKS, name) ? TASKS[name] : null;
  if (!task) {
    const others = blocks.filter((block) => block.type !== "text").map((block) => `${block.type} ${block.name ?? block.mimeType ?? block.resource?.uri}`);
    turn.say([`echo: ${text}`, ...others].join("; "));
    return "end_turn";
  }
  return (await task(turn, words)) ?? "end_turn";
}

const METHODS = {
  initialize: () => ({
    protocolVersion: 1,
    agentInfo: { name: "scripted", title: TITLE, version: "1.0.0" },
    agentCapabilities: { loadSession: true, promptCapabilities: { image: !process.env.AGENT_TITLE, embeddedContext: true }, sessionCapabilities: { resume: {} } },
    authMethods: [],
  }),
  "session/new": ({ cwd }) => {
    const session = openSession(randomUUID(), cwd);
    setImmediate(() => new Turn(session).update({ sessionUpdate: "available_commands_update", availableCommands: COMMANDS }));
    return { sessionId: session.id, ...setup(session) };
  },
  "session/load": ({ sessionId, cwd }) => setup(openSession(sessionId, cwd)),
  "session/resume": ({ sessionId, cwd }) => setup(openSession(sessionId, cwd)),
  "session/prompt": async ({ sessionId, prompt: blocks }) => ({ stopReason: await prompt(sessions.get(sessionId), blocks) }),
  "session/set_config_option": ({ sessionId, configId, value }) => {
    const session = sessions.get(sessionId);
    session[configId] = value;
    return { configOptions: options(session) };
  },
  "session/set_mode": ({ sessionId, modeId }) => {
    sessions.get(sessionId).mode = modeId;
    return {};
  },
  "session/set_model": ({ sessionId, modelId }) => {
    sessions.get(sessionId).model = modelId;
    return {};
  },
};

createInterface({ input: process.stdin }).on("line", async (line) => {
  const { id, method, params, result, error } = JSON.parse(line);
  if (method === undefined) {
    const open = waiting.get(id);
    waiting.delete(id);
    if (error) open?.reject(new Error(error.message));
    else open?.resolve(result);
    return;
  }
  if (method === "session/cancel") return sessions.get(params.sessionId)?.cancel();
  if (id === undefined) return;
  if (!METHODS[method]) return send({ id, error: { code: -32601, message: `no such method: ${method}` } });
  try {
    send({ id, result: await METHODS[method](params) });
  } catch (failure) {
    send({ id, error: { code: -32603, message: failure.message } });
  }
}).on("close", () => process.exit(0));
