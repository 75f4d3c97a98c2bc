// The agent of `tests/peers/README.md` on the official TypeScript SDK, used as its documentation shows:
// `agent()`, a handler per method, `ndJsonStream` over stdio. `--listen [PORT]` serves HTTP and WebSocket instead,
// with the SDK's own server: it prints its address, and ends when stdin closes.
// Run the copy that the installation puts next to `node_modules`: Node resolves the SDK from the file's own folder.

import { randomUUID } from "node:crypto";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const NAME = "peer-typescript";
const CALL = "call_1";
const EDIT = "call_edit";
const RUN = "call_run";
const { agent: agentMethods, client: clientMethods } = acp.methods;

/** One prompt turn: what the prompt's text asks for, done through the client. */
class Turn {
  constructor(client, sessionId, cancelled) {
    this.client = client;
    this.sessionId = sessionId;
    this.cancelled = cancelled;
  }

  async run(text) {
    const task = parse(text);
    switch (task?.do) {
      case "read":
        await this.readMany(task);
        return "end_turn";
      case "stream":
        for (let sent = 0; sent < task.count; sent++) await this.chunk("x".repeat(task.size));
        return "end_turn";
      case "flow":
        await this.flow(task);
        return "end_turn";
      case "edit":
        await this.edit(task);
        await this.runCommand(task);
        return "end_turn";
      case "files":
        await this.files(task);
        return "end_turn";
      case "wait":
        await this.chunk("waiting");
        await this.cancelled;
        return "cancelled";
      default:
        await this.chunk(text);
        return "end_turn";
    }
  }

  async readMany({ path, count, inflight }) {
    let started = 0;
    let bytes = 0;
    const reader = async () => {
      while (started < count) {
        started++;
        const content = await this.read({ path });
        bytes += Buffer.byteLength(content);
      }
    };
    await Promise.all(Array.from({ length: inflight }, reader));
    await this.chunk(JSON.stringify({ reads: count, bytes }));
  }

  async flow({ path, newPath }) {
    await this.update({
      sessionUpdate: "tool_call",
      toolCallId: CALL,
      title: "Update config",
      kind: "edit",
      status: "pending",
      locations: [{ path }],
      rawInput: { path },
    });
    const content = await this.read({ path });
    await this.chunk(`read:${JSON.stringify(content)}`);
    await this.chunk(`window:${JSON.stringify(await this.read({ path, line: 2, limit: 1 }))}`);

    const permission = await this.ask(CALL);
    await this.chunk(`permission:${permission}`);
    if (permission === "allow") await this.write(CALL, newPath, `${content}written by ${NAME}\n`);
    else await this.updateCall(CALL, { status: "failed" });

    await this.chunk(`missing:${await this.errorCode({ path: `${path}.missing` })}`);
    await this.runToEnd("echo", "hello");
    await this.killSleep();
    await this.update({
      sessionUpdate: "plan",
      entries: [
        { content: "Read the file", priority: "high", status: "completed" },
        { content: "Write the file", priority: "medium", status: "in_progress" },
      ],
    });
  }

  /** Uses Bowline's file extension, as far as the client advertises it. */
  async files({ directory }) {
    const offered = clientCapabilities?._meta?.bowline?.fs ?? {};
    await this.chunk(`offered:${Object.keys(offered).join()}`);
    const { entries } = await this.request("_bowline/fs/list", { path: directory });
    await this.chunk(`listed:${entries.map((entry) => entry.name).join()}`);
    const path = `${directory}/${entries[0].name}`;
    const { etag, dirty } = await this.request("_bowline/fs/stat", { path });
    await this.chunk(`dirty:${dirty}`);
    const { data } = await this.request("_bowline/fs/read", { path, encoding: "base64", offset: 4 });
    await this.chunk(`read:${JSON.stringify(Buffer.from(data, "base64").toString())}`);
    const { results } = await this.request("_bowline/fs/batch", {
      operations: [
        { op: "mkdir", path: `${directory}/docs` },
        { op: "copy", from: `${directory}/${entries[1].name}`, to: `${directory}/docs/copy.txt` },
        { op: "write", path, data: `written by ${NAME}\n`, mode: "append", ifMatch: etag },
      ],
    }).catch((error) => ({ results: [{ op: error.data.kind }] }));
    await this.chunk(`batch:${results.map((result) => result.op).join()}`);
    const stale = { path, data: "lost", ifMatch: etag };
    const kind = await this.request("_bowline/fs/write", stale).catch((error) => error.data.kind);
    await this.chunk(`stale:${kind}`);
    await this.watch(directory);
  }

  /** Watches a directory, writes a file there, and says what the client reports. */
  async watch(directory) {
    const { watchId } = await this.request("_bowline/fs/watch", { path: directory, glob: "watched.*" });
    const path = `${directory}/watched.txt`;
    const reported = new Promise((resolve) => watches.set(watchId, resolve));
    await this.request("_bowline/fs/write", { path, data: "watched\n", createOnly: true });
    const [{ kind, by }] = await reported;
    await this.request("_bowline/fs/unwatch", { watchId });
    await this.chunk(`watched:${kind},${by}`);
  }

  async edit({ path, old, new: replacement }) {
    const content = await this.read({ path });
    await this.chunk(`read:${JSON.stringify(content)}`);
    const text = content.replace(old, () => replacement);
    await this.update({
      sessionUpdate: "tool_call",
      toolCallId: EDIT,
      title: "Edit the file",
      kind: "edit",
      status: "pending",
      content: [{ type: "diff", path, oldText: content, newText: text }],
      locations: [{ path }],
    });
    const permission = await this.ask(EDIT);
    await this.chunk(`permission:${permission}`);
    if (permission === "allow") await this.write(EDIT, path, text);
    else await this.updateCall(EDIT, { status: "failed" });
  }

  async runCommand({ command }) {
    await this.update({
      sessionUpdate: "tool_call",
      toolCallId: RUN,
      title: command,
      kind: "execute",
      status: "pending",
      rawInput: { command },
    });
    const permission = await this.ask(RUN);
    await this.chunk(`permission:${permission}`);
    if (permission === "allow") await this.runToEnd(command);
    await this.updateCall(RUN, { status: permission === "allow" ? "completed" : "failed" });
  }

  async ask(call) {
    const { outcome } = await this.request(clientMethods.session.requestPermission, {
      toolCall: { toolCallId: call },
      options: [
        { optionId: "allow", name: "Allow", kind: "allow_once" },
        { optionId: "reject", name: "Reject", kind: "reject_once" },
      ],
    });
    return outcome.outcome === "selected" ? outcome.optionId : "cancelled";
  }

  async write(call, path, text) {
    await this.updateCall(call, { status: "in_progress" });
    await this.request(clientMethods.fs.writeTextFile, { path, content: text });
    await this.updateCall(call, { status: "completed", content: [{ type: "diff", path, newText: text }] });
    await this.chunk("wrote");
  }

  async errorCode(file) {
    try {
      await this.read(file);
    } catch (error) {
      return error.code;
    }
    throw new Error("the client read a missing file");
  }

  async runToEnd(command, ...args) {
    const terminal = await this.createTerminal(command, ...args);
    const { exitCode } = await terminal.waitForExit();
    const { output } = await terminal.currentOutput();
    await terminal.release();
    await this.chunk(`terminal:${exitCode ?? "none"}:${JSON.stringify(output)}`);
  }

  async killSleep() {
    const terminal = await this.createTerminal("sleep", "600");
    await terminal.kill();
    await terminal.waitForExit();
    await terminal.release();
    await this.chunk("killed");
  }

  createTerminal(command, ...args) {
    return this.client.createTerminal({ sessionId: this.sessionId, command, args });
  }

  async read(file) {
    const { content } = await this.request(clientMethods.fs.readTextFile, file);
    return content;
  }

  chunk(text) {
    return this.update({ sessionUpdate: "agent_message_chunk", content: { type: "text", text } });
  }

  updateCall(call, fields) {
    return this.update({ sessionUpdate: "tool_call_update", toolCallId: call, ...fields });
  }

  update(update) {
    return this.client.notify(clientMethods.session.update, { sessionId: this.sessionId, update });
  }

  request(method, params) {
    return this.client.request(method, { sessionId: this.sessionId, ...params });
  }
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** What the client can do. */
let clientCapabilities;

/** What ends the wait of each session's running turn. */
const cancels = new Map();

/** What receives the first report of each watch. */
const watches = new Map();

const createAgent = () => acp
  .agent({ name: NAME })
  .onRequest(agentMethods.initialize, ({ params }) => {
    clientCapabilities = params.clientCapabilities;
    return {
      protocolVersion: acp.PROTOCOL_VERSION,
      agentCapabilities: {},
      agentInfo: { name: NAME, version: "0.0.0" },
    };
  })
  .onRequest(agentMethods.session.new, () => ({ sessionId: randomUUID() }))
  .onRequest(agentMethods.session.prompt, async ({ params: { sessionId, prompt }, client }) => {
    const text = prompt.find((block) => block.type === "text")?.text ?? "";
    // Created before anything is sent, so that a cancellation in response to the first chunk is not lost.
    const cancelled = new Promise((resolve) => cancels.set(sessionId, resolve));
    return { stopReason: await new Turn(client, sessionId, cancelled).run(text) };
  })
  .onNotification("_bowline/fs/changed", (params) => params, ({ params }) => {
    watches.get(params.watchId)?.(params.changes);
  })
  .onNotification(agentMethods.session.cancel, ({ params }) => cancels.get(params.sessionId)?.());

/** Serves the agent over HTTP and WebSocket until stdin closes. */
async function listen(port) {
  const { AcpServer } = await import("@agentclientprotocol/sdk/experimental/server");
  const { createNodeHttpHandler, createNodeWebSocketUpgradeHandler } = await import(
    "@agentclientprotocol/sdk/experimental/node"
  );
  const { WebSocketServer } = await import("ws");
  const { createServer } = await import("node:http");
  const { once } = await import("node:events");
  const acpServer = new AcpServer({ createAgent });
  const server = createServer(createNodeHttpHandler(acpServer));
  server.on("upgrade", createNodeWebSocketUpgradeHandler(acpServer, new WebSocketServer({ noServer: true })));
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  console.log(`127.0.0.1:${server.address().port}`);
  process.stdin.resume();
  await once(process.stdin, "end");
  process.exit(0);
}

if (process.argv[2] === "--listen") {
  await listen(Number(process.argv[3] ?? 0));
} else {
  const stream = acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin));
  await createAgent().connect(stream).closed;
}
