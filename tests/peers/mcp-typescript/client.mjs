// An MCP client on the official TypeScript SDK: it runs the steps of a plan, and prints a line of JSON for each.
//
// client.mjs [--answer DECISION] --plan JSON (-- COMMAND ARG... | --url URL --token TOKEN)

import { existsSync, writeFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, ResourceUpdatedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    plan: { type: "string" },
    answer: { type: "string" },
    url: { type: "string" },
    token: { type: "string" },
  },
});

const show = (line) => console.log(JSON.stringify(line, Object.keys(line).sort()));
const showAll = (line) => {
  const sorted = (value) =>
    value && typeof value === "object" && !Array.isArray(value)
      ? Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]))
      : value;
  console.log(JSON.stringify(sorted(line)));
};

const told = (result) => ({
  error: result.isError ?? false,
  text: result.content.filter((block) => block.type === "text").map((block) => block.text).join(""),
  structured: result.structuredContent ?? null,
});

const capabilities = values.answer ? { elicitation: {} } : {};
const client = new Client({ name: "peer-mcp-typescript", version: "1.0.0" }, { capabilities });
if (values.answer) {
  client.setRequestHandler(ElicitRequestSchema, () => ({ action: "accept", content: { decision: values.answer } }));
}
const updated = [];
let heard = () => {};
client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
  updated.push(params.uri);
  heard();
});

const transport = values.url
  ? new StreamableHTTPClientTransport(new URL(values.url), {
      requestInit: { headers: { Authorization: `Bearer ${values.token}` } },
    })
  : new StdioClientTransport({ command: positionals[0], args: positionals.slice(1) });

async function take(step) {
  if ("tools" in step) {
    const { tools } = await client.listTools();
    showAll({ tools: Object.fromEntries(tools.map((tool) => [tool.name, tool.annotations.readOnlyHint])) });
  } else if ("call" in step) {
    let progressed = false;
    const onprogress = () => {
      progressed = true;
    };
    const params = { name: step.call, arguments: step.arguments ?? {} };
    const result = await client.callTool(params, undefined, { onprogress });
    showAll({ call: step.call, progressed, ...told(result) });
  } else if ("cancel" in step) {
    const controller = new AbortController();
    const params = { name: step.cancel, arguments: step.arguments ?? {} };
    const calling = client.callTool(params, undefined, { signal: controller.signal });
    const caught = calling.then(() => false, () => true);
    while (!existsSync(step.once)) {
      await pause(20);
    }
    controller.abort();
    show({ cancelled: await caught });
  } else if ("resources" in step) {
    const { resources } = await client.listResources();
    show({ resources: resources.map((resource) => resource.uri) });
  } else if ("read" in step) {
    const { contents } = await client.readResource({ uri: step.read });
    show({ read: step.read, text: contents[0].text });
  } else if ("subscribe" in step) {
    await client.subscribeResource({ uri: step.subscribe });
    show({ subscribed: step.subscribe });
  } else if ("updated" in step) {
    if (updated.length === 0) {
      await Promise.race([new Promise((resolve) => (heard = resolve)), pause(20_000)]);
    }
    show({ updated: updated.shift() ?? null });
  } else if ("put" in step) {
    writeFileSync(step.put, step.text);
  } else {
    throw new Error(`no such step: ${JSON.stringify(step)}`);
  }
}

await client.connect(transport);
show({ server: client.getServerVersion().name });
for (const step of JSON.parse(values.plan)) {
  try {
    await take(step);
  } catch (error) {
    show({ refused: String(error.message) });
  }
}
if (values.url) {
  await transport.terminateSession();
}
await client.close();
