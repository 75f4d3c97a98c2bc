// The state of one session, folded from `session/update` notifications. Pure: no DOM, no network, no clock.
//
// Items keep their identity and count up a version when they change, so that a view compares two numbers instead of
// two conversations.

import { sentence } from "./format.js";

/** @typedef {import("./types.js").Json} Json */
/** @typedef {import("./types.js").Item} Item */
/** @typedef {import("./types.js").MessageItem} MessageItem */
/** @typedef {import("./types.js").ToolItem} ToolItem */
/** @typedef {import("./types.js").NoteItem} NoteItem */
/** @typedef {import("./types.js").MessagePart} MessagePart */
/** @typedef {import("./types.js").ContentBlock} ContentBlock */
/** @typedef {import("./types.js").Setting} Setting */

/** The most items that are kept; the oldest are dropped. */
export const MAX_ITEMS = 20_000;

/** The most characters of a terminal's output that are kept; the first are dropped. */
export const MAX_OUTPUT = 1 << 20;

/** The most characters of one part of a message. */
export const MAX_TEXT = 8 << 20;

/** The notification that tells how a turn of another client, or an earlier one, ended. */
export const TURN_ENDED = "_bowline/turn/ended";

/** Notes for turns that ended otherwise than by themselves. @type {Record<string, string>} */
const STOP_NOTES = {
  cancelled: "Cancelled",
  max_tokens: "The answer reached the model's limit of tokens",
  max_turn_requests: "The turn reached its limit of model requests",
  refusal: "The model refused to go on",
};

const FINISHED = new Set(["completed", "failed", "cancelled"]);

/**
 * @typedef {object} SessionState
 * @property {Item[]} items
 * @property {number} dropped how many items before the first are gone
 * @property {number} nextKey
 * @property {Map<string, ToolItem>} tools by tool call id
 * @property {import("./types.js").PlanEntry[]} plan
 * @property {import("./types.js").Usage|null} usage
 * @property {{name: string, description: string, hint: string}[]} commands
 * @property {Json|null} modes
 * @property {Json|null} models
 * @property {Json[]} options
 * @property {import("./types.js").SessionAgent|null} agent the agent, unless it is the server's usual one
 * @property {string|null} title
 * @property {boolean} closed whether the last message is complete, so that the next chunk starts another
 */

/** @returns {SessionState} */
export function createState() {
  return {
    items: [], dropped: 0, nextKey: 0, tools: new Map(), plan: [], usage: null, commands: [],
    modes: null, models: null, options: [], agent: null, title: null, closed: false,
  };
}

/** Applies what the answers to `session/new` and `session/load` say. @param {SessionState} state @param {Json} setup */
export function applySetup(state, setup) {
  if (setup.modes) state.modes = setup.modes;
  if (setup.models) state.models = setup.models;
  if (Array.isArray(setup.configOptions)) state.options = setup.configOptions;
  const agent = setup._meta?.bowline?.agent;
  if (typeof agent?.name === "string") state.agent = agent;
}

/** Applies a notification about the session. @param {SessionState} state @param {string} method @param {Json} params */
export function applyNotification(state, method, params) {
  if (method === "session/update") applyUpdate(state, params.update);
  if (method === TURN_ENDED) endTurn(state, params);
}

/** Applies an update. An update that makes no sense is ignored. @param {SessionState} state @param {Json} update */
export function applyUpdate(state, update) {
  switch (update?.sessionUpdate) {
    case "user_message_chunk":
      return addChunk(state, "user", update);
    case "agent_message_chunk":
      return addChunk(state, "agent", update);
    case "agent_thought_chunk":
      return addChunk(state, "thought", update);
    case "tool_call":
    case "tool_call_update":
      return applyToolCall(state, update);
    case "plan":
      state.plan = list(update.entries).filter((entry) => typeof entry?.content === "string")
        .map((entry) => ({ content: entry.content, priority: String(entry.priority ?? ""), status: String(entry.status ?? "pending") }));
      return;
    case "usage_update":
      if (Number.isFinite(update.used) && Number.isFinite(update.size)) {
        state.usage = { used: update.used, size: update.size, cost: toCost(update.cost) };
      }
      return;
    case "available_commands_update":
      state.commands = list(update.availableCommands)
        .filter((command) => typeof command?.name === "string")
        .map((command) => ({ name: command.name, description: String(command.description ?? ""), hint: String(command.input?.hint ?? "") }));
      return;
    case "current_mode_update":
      state.modes = { ...state.modes, currentModeId: update.currentModeId };
      return;
    case "config_option_update":
      state.options = list(update.configOptions);
      return;
    case "session_info_update":
      if (typeof update.title === "string") state.title = update.title;
      return;
    case "notice":
      addNote(state, toLevel(update.severity), String(update.title ?? ""), String(update.description ?? ""));
      return;
    case "compaction_update":
      if (update.status === "completed") addNote(state, "info", "The conversation was compacted", blocksText(update.summary));
      if (update.status === "failed") addNote(state, "error", "The conversation could not be compacted", String(update.error ?? ""));
      return;
    default:
      // Kinds that the page does not know show nothing; the wire view has them.
  }
}

/** Adds a prompt that was sent from this page: the server does not repeat it. @param {SessionState} state @param {ContentBlock[]} blocks */
export function addPrompt(state, blocks) {
  state.closed = true;
  for (const content of blocks) addChunk(state, "user", { content });
  state.closed = true;
}

/**
 * Ends a turn, with a note unless it ended by itself: the next chunk begins another message.
 * @param {SessionState} state @param {Json} outcome with its `stopReason`, or the `error` that ended it
 */
export function endTurn(state, { stopReason, error }) {
  if (typeof error === "string") addNote(state, "error", sentence(error));
  else if (Object.hasOwn(STOP_NOTES, stopReason)) addNote(state, stopReason === "cancelled" ? "info" : "warning", /** @type {string} */ (STOP_NOTES[stopReason]));
  state.closed = true;
}

/** @param {SessionState} state @param {"info"|"warning"|"error"} level @param {string} text @param {string} [detail] */
export function addNote(state, level, text, detail = "") {
  push(state, /** @type {NoteItem} */ ({ kind: "note", key: takeKey(state), version: 0, level, text, detail }));
}

/** Returns the text of a message. @param {Item} item */
export function messageText(item) {
  if (item.kind === "tool") return item.call.title;
  if (item.kind === "note") return item.text;
  return item.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** Returns what can be found of an item: of a tool call its title, paths and command. @param {Item} item */
export function itemText(item) {
  if (item.kind === "note") return `${item.text}\n${item.detail}`;
  if (item.kind !== "tool") return item.parts.map((part) => (part.type === "text" ? part.text : part.type === "link" ? part.name : "")).join("");
  const { title, locations, rawInput } = item.call;
  const command = rawInput?.command;
  return [title, ...locations.map(({ path }) => path), ...(Array.isArray(command) ? command : [command])].filter((text) => typeof text === "string").join("\n");
}

/** Returns whether a prompt is in the conversation, at its end or near it. @param {SessionState} state @param {string} text */
export function hasPrompt(state, text) {
  return state.items.slice(-500).some((item) => item.kind === "user" && messageText(item).trim() === text.trim());
}

/** Returns the settings that a person can change, the model and the mode first. @param {SessionState} state @returns {Setting[]} */
export function settings(state) {
  const found = state.options.flatMap(toSetting);
  const has = (/** @type {string} */ category) => found.some((setting) => setting.category === category);
  if (!has("mode") && list(state.modes?.availableModes).length > 0) {
    const choices = list(state.modes?.availableModes).map((mode) => ({ value: String(mode.id), name: String(mode.name ?? mode.id), description: mode.description }));
    found.push({ id: "mode", name: "Mode", category: "mode", current: state.modes?.currentModeId, choices: [{ group: "", choices }], source: "mode" });
  }
  if (!has("model") && list(state.models?.availableModels).length > 0) {
    const choices = list(state.models?.availableModels).map((model) => ({ value: String(model.modelId), name: String(model.name ?? model.modelId), description: model.description }));
    found.push({ id: "model", name: "Model", category: "model", current: state.models?.currentModelId, choices: [{ group: "", choices }], source: "model" });
  }
  const rank = (/** @type {Setting} */ { category }) => ["model", "mode"].indexOf(category) + (category === "model" || category === "mode" ? 0 : 3);
  return found.sort((a, b) => rank(a) - rank(b));
}

/** @param {Json} option @returns {Setting[]} */
function toSetting(option) {
  if (typeof option?.id !== "string") return [];
  const base = { id: option.id, name: String(option.name ?? option.id), category: String(option.category ?? "other"), source: /** @type {const} */ ("option") };
  if (option.type === "boolean") return [{ ...base, current: option.currentValue === true, choices: [] }];
  if (option.type !== "select" && !Array.isArray(option.options)) return [];
  const toChoice = (/** @type {Json} */ choice) => ({ value: String(choice.value), name: String(choice.name ?? choice.value), description: choice.description });
  const groups = list(option.options).some((entry) => Array.isArray(entry?.options))
    ? list(option.options).map((entry) => ({ group: String(entry.name ?? entry.group), choices: list(entry.options).map(toChoice) }))
    : [{ group: "", choices: list(option.options).map(toChoice) }];
  return [{ ...base, current: String(option.currentValue), choices: groups }];
}

/** @param {SessionState} state @param {"user"|"agent"|"thought"} kind @param {Json} update */
function addChunk(state, kind, update) {
  const content = /** @type {ContentBlock} */ (update.content);
  if (typeof content?.type !== "string") return;
  const messageId = typeof update.messageId === "string" ? update.messageId : null;
  const last = state.items[state.items.length - 1];
  const continues = last?.kind === kind && !state.closed && (messageId === null || last.messageId === null || last.messageId === messageId);
  /** @type {MessageItem} */
  const item = continues ? /** @type {MessageItem} */ (last) : { kind, key: takeKey(state), version: 0, messageId, parts: [] };
  if (!continues) push(state, item);
  state.closed = false;
  addPart(item, content);
  item.version += 1;
}

/** @param {MessageItem} item @param {ContentBlock} content */
function addPart(item, content) {
  const last = item.parts[item.parts.length - 1];
  if (content.type === "text") {
    const text = String(content.text ?? "");
    if (last?.type === "text") last.text = (last.text + text).slice(0, MAX_TEXT);
    else item.parts.push({ type: "text", text: text.slice(0, MAX_TEXT) });
  } else if (content.type === "image") {
    item.parts.push({ type: "image", mimeType: String(content.mimeType), data: String(content.data) });
  } else if (content.type === "resource_link" || content.type === "resource") {
    const uri = String(content.uri ?? content.resource?.uri ?? "");
    item.parts.push({ type: "link", uri, name: String(content.name ?? uri) });
  } else {
    item.parts.push({ type: "text", text: `[${content.type}]` });
  }
}

/** @param {SessionState} state @param {Json} update */
function applyToolCall(state, update) {
  const id = update.toolCallId;
  if (typeof id !== "string") return;
  let item = state.tools.get(id);
  if (!item) {
    item = {
      kind: "tool", key: takeKey(state), version: 0, terminals: new Map(),
      call: { toolCallId: id, title: "", kind: "other", status: "pending", content: [], locations: [], rawInput: null, rawOutput: null },
    };
    state.tools.set(id, item);
    push(state, item);
    state.closed = true;
  }
  const { call } = item;
  if (typeof update.title === "string") call.title = update.title;
  if (typeof update.kind === "string") call.kind = update.kind;
  // A finished call stays finished: an update that comes late cannot start it again.
  if (typeof update.status === "string" && !(FINISHED.has(call.status) && !FINISHED.has(update.status))) call.status = update.status;
  if (Array.isArray(update.content)) call.content = update.content.filter((content) => typeof content?.type === "string");
  if (Array.isArray(update.locations)) call.locations = update.locations.filter((location) => typeof location?.path === "string");
  if (update.rawInput !== undefined) call.rawInput = update.rawInput;
  if (update.rawOutput !== undefined) call.rawOutput = update.rawOutput;
  applyTerminal(item, update._meta ?? {});
  item.version += 1;
}

/** Applies the output of a command that an agent runs itself. @param {ToolItem} item @param {Json} meta */
function applyTerminal(item, meta) {
  const { terminal_info: info, terminal_output: output, terminal_exit: exit } = meta;
  if (typeof info?.terminal_id === "string") terminal(item, info.terminal_id);
  if (typeof output?.terminal_id === "string") appendOutput(terminal(item, output.terminal_id), String(output.data ?? ""));
  if (typeof exit?.terminal_id === "string") {
    terminal(item, exit.terminal_id).exit = { exitCode: exit.exit_code ?? null, signal: exit.signal ?? null };
  }
}

/** @param {ToolItem} item @param {string} id */
function terminal(item, id) {
  let found = item.terminals.get(id);
  if (!found) {
    found = { text: "", dropped: 0, exit: null };
    item.terminals.set(id, found);
  }
  return found;
}

/** Appends to a terminal's output. @param {import("./types.js").TerminalOutput} output @param {string} text */
export function appendOutput(output, text) {
  output.text += text;
  const excess = output.text.length - MAX_OUTPUT;
  if (excess > 0) {
    output.text = output.text.slice(excess);
    output.dropped += excess;
  }
}

/** @param {SessionState} state @param {Item} item */
function push(state, item) {
  state.items.push(item);
  if (state.items.length <= MAX_ITEMS + MAX_ITEMS / 10) return;
  const gone = state.items.splice(0, state.items.length - MAX_ITEMS);
  state.dropped += gone.length;
  for (const old of gone) if (old.kind === "tool") state.tools.delete(old.call.toolCallId);
}

/** @param {SessionState} state */
function takeKey(state) {
  const key = `i${state.nextKey}`;
  state.nextKey += 1;
  return key;
}

/** Returns a list's entries that have members. @param {any} value @returns {any[]} */
function list(value) {
  return Array.isArray(value) ? value.filter((entry) => typeof entry === "object" && entry !== null) : [];
}

/** @param {any} cost */
function toCost(cost) {
  return Number.isFinite(cost?.amount) ? { amount: cost.amount, currency: String(cost.currency) } : null;
}

/** @param {any} severity @returns {"info"|"warning"|"error"} */
function toLevel(severity) {
  return severity === "error" || severity === "warning" ? severity : "info";
}

/** @param {any} blocks */
function blocksText(blocks) {
  return list(blocks).map((block) => String(block?.text ?? "")).join("\n");
}
