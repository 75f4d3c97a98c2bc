// The client of `tests/peers/README.md` on the official TypeScript SDK, used as its documentation shows:
// `client()`, a handler per method, `ndJsonStream` over the agent's stdio, an `ActiveSession` for the updates.
// Instead of a command it takes the URL of a server, `http:` or `ws:`, with the token in BOWLINE_TOKEN.
// Run the copy that the installation puts next to `node_modules`: Node resolves the SDK from the file's own folder.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { Readable, Writable } from "node:stream";
import { parseArgs } from "node:util";
import * as acp from "@agentclientprotocol/sdk";

const BENCH = "/bench/";
const BENCH_LINE = '        if let Some(value) = map.get("key") { out.push(value); }\n';
const CHUNKS_KEPT = 50;
const SHUTDOWN_MILLISECONDS = 120_000;
const { agent: agentMethods, client: clientMethods } = acp.methods;

const benchTexts = new Map();
const terminals = new Map();
/** Files that are open, by path, with text that may not be saved. */
const documents = new Map();

function benchText(path) {
  if (!benchTexts.has(path)) {
    const size = Number(path.slice(BENCH.length));
    const text = BENCH_LINE.repeat(Math.floor(size / BENCH_LINE.length) + 1);
    benchTexts.set(path, text.slice(0, size));
  }
  return benchTexts.get(path);
}

async function readTextFile({ path, line, limit }) {
  if (path.startsWith(BENCH)) return benchText(path);
  const text = documents.get(path) ?? (await readFile(path, "utf8").catch((error) => {
    throw error.code === "ENOENT" ? acp.RequestError.resourceNotFound() : error;
  }));
  if (line == null && limit == null) return text;
  const start = Math.max((line ?? 1) - 1, 0);
  return text
    .split(/(?<=\n)/)
    .slice(start, limit == null ? undefined : start + limit)
    .join("");
}

async function writeTextFile({ path, content }) {
  if (documents.has(path)) documents.set(path, content);
  await writeFile(path, content);
}

/** One command and what it has printed. */
class Terminal {
  output = Buffer.alloc(0);
  truncated = false;
  exitStatus = null;

  constructor({ command, args = [], env = [], cwd, outputByteLimit }) {
    this.child = spawn(command, args, {
      cwd: cwd ?? undefined,
      env: { ...process.env, ...Object.fromEntries(env.map(({ name, value }) => [name, value])) },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.started = once(this.child, "spawn");
    // "close" comes after the end of the output, so that a later request sees all of it.
    this.exited = new Promise((resolve) => {
      this.child.on("close", (exitCode, signal) => resolve((this.exitStatus = { exitCode, signal })));
    });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream.on("data", (data) => this.append(data, outputByteLimit ?? Infinity));
    }
  }

  append(data, limit) {
    this.output = Buffer.concat([this.output, data]);
    if (this.output.length <= limit) return;
    let start = this.output.length - limit;
    // A cut inside a character moves to the next one.
    while ((this.output[start] & 0xc0) === 0x80) start++;
    this.output = this.output.subarray(start);
    this.truncated = true;
  }

  kill() {
    this.child.kill("SIGKILL");
  }
}

async function createTerminal(params) {
  const terminal = new Terminal(params);
  await terminal.started;
  const terminalId = `terminal_${terminal.child.pid}`;
  terminals.set(terminalId, terminal);
  return { terminalId };
}

function findTerminal({ terminalId }) {
  const terminal = terminals.get(terminalId);
  if (!terminal) throw acp.RequestError.resourceNotFound();
  return terminal;
}

function terminalOutput(params) {
  const { output, truncated, exitStatus } = findTerminal(params);
  return { output: output.toString(), truncated, exitStatus };
}

async function releaseTerminal(params) {
  const terminal = findTerminal(params);
  terminals.delete(params.terminalId);
  terminal.kill();
  await terminal.exited;
}

function choose(options, approve) {
  const option = options.find(({ kind }) => kind === `${approve}_once`);
  return { outcome: option ? { outcome: "selected", optionId: option.optionId } : { outcome: "cancelled" } };
}

/** Takes one step of the plan and returns its line. */
async function take(session, agent, step) {
  const chunks = [];
  const kinds = {};
  let updates = 0;
  let toCancel = step.cancelOnFirstChunk;
  const start = performance.now();
  // A failed prompt is also reported by `nextUpdate`.
  const prompt = typeof step.prompt === "string" ? step.prompt : JSON.stringify(step.prompt);
  session.prompt(prompt).catch(() => {});
  for (;;) {
    const message = await session.nextUpdate();
    if (message.kind === "stop") {
      const seconds = (performance.now() - start) / 1000;
      return { stop: message.stopReason, seconds, updates, chunks, kinds };
    }
    const { sessionUpdate, content } = message.update;
    updates++;
    kinds[sessionUpdate] = (kinds[sessionUpdate] ?? 0) + 1;
    if (sessionUpdate !== "agent_message_chunk") continue;
    if (content.type === "text" && chunks.length < CHUNKS_KEPT) chunks.push(content.text);
    if (toCancel) await agent.notify(agentMethods.session.cancel, { sessionId: session.sessionId });
    toCancel = false;
  }
}

async function runPlan(agent, plan) {
  const { agentInfo, protocolVersion } = await agent.request(agentMethods.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: true }, terminal: true },
    clientInfo: { name: "peer-typescript", version: "0.0.0" },
  });
  console.log(JSON.stringify({ agent: agentInfo?.name ?? null, protocolVersion }));
  const session = await agent.buildSession(process.cwd()).start();
  for (const step of plan) console.log(JSON.stringify(await take(session, agent, step)));
}

async function closeAgent(child, exited) {
  child.stdin.end();
  const timer = setTimeout(() => child.kill("SIGKILL"), SHUTDOWN_MILLISECONDS);
  const [code, signal] = await exited;
  clearTimeout(timer);
  if (code !== 0) throw new Error(`the agent ended with ${code ?? signal}`);
}

/** Connects to a server with the SDK's own transports. */
async function createStream(url) {
  const options = { headers: { authorization: `Bearer ${process.env.BOWLINE_TOKEN}` } };
  if (url.startsWith("http:")) {
    const { createHttpStream } = await import("@agentclientprotocol/sdk/experimental/http-client");
    return createHttpStream(url, options);
  }
  const { createWebSocketStream } = await import("@agentclientprotocol/sdk/experimental/ws-client");
  const { WebSocket } = await import("ws");
  return createWebSocketStream(url, { ...options, WebSocket });
}

async function main() {
  const { values, positionals } = parseArgs({
    options: { approve: { type: "string" }, plan: { type: "string" }, open: { type: "string" } },
    allowPositionals: true,
  });
  if (!["allow", "reject"].includes(values.approve)) throw new Error("--approve is allow or reject");
  const plan = JSON.parse(values.plan);
  for (const [path, text] of Object.entries(JSON.parse(values.open ?? "{}"))) documents.set(path, text);

  const app = acp
    .client({ name: "peer-typescript" })
    .onRequest(clientMethods.fs.readTextFile, async ({ params }) => ({ content: await readTextFile(params) }))
    .onRequest(clientMethods.fs.writeTextFile, ({ params }) => writeTextFile(params))
    .onRequest(clientMethods.session.requestPermission, ({ params }) => choose(params.options, values.approve))
    .onRequest(clientMethods.terminal.create, ({ params }) => createTerminal(params))
    .onRequest(clientMethods.terminal.output, ({ params }) => terminalOutput(params))
    .onRequest(clientMethods.terminal.waitForExit, ({ params }) => findTerminal(params).exited)
    .onRequest(clientMethods.terminal.kill, ({ params }) => findTerminal(params).kill())
    .onRequest(clientMethods.terminal.release, ({ params }) => releaseTerminal(params));

  const [command, ...args] = positionals;
  if (/^(http|ws):/.test(command)) {
    const connection = app.connect(await createStream(command));
    // Streams to the server stay open, so the end must be said.
    await runPlan(connection.agent, plan).then(() => process.exit(0), (error) => {
      console.error(`client: ${error.stack ?? error}`);
      process.exit(1);
    });
  }
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  const exited = once(child, "exit");
  try {
    // `connect`, not `connectWith`: the latter stops reading before the agent's stdin is closed.
    const { agent } = app.connect(acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)));
    await Promise.race([runPlan(agent, plan), exited.then(() => Promise.reject(new Error("the agent ended")))]);
    await closeAgent(child, exited);
  } finally {
    child.kill("SIGKILL");
    for (const terminal of terminals.values()) terminal.kill();
  }
}

await main().catch((error) => {
  console.error(`client: ${error.stack ?? error}`);
  process.exitCode = 1;
});
