// The page's connection, and the sessions that are open on it.

import { computed, effect, signal } from "./lib.js";
import { CONNECTION_LOST, Connection, RpcError } from "./acp.js";
import { addNote, addPrompt, applyNotification, applySetup, createState, endTurn, hasPrompt, settings, TURN_ENDED } from "./store.js";
import { fetchSession, findSession, patchSession, prepared, refreshOverview, sessions as summaries } from "./overview-store.js";
import { rememberSettings } from "./preferences.js";

/** @typedef {import("./types.js").Json} Json */
/** @typedef {import("./types.js").ContentBlock} ContentBlock */
/** @typedef {import("./types.js").Question} Question */
/** @typedef {{key: number, blocks: ContentBlock[]}} QueuedPrompt */
/** @typedef {{method: string, params: Json}} Notice */

/** The most sessions that are followed; those not used for longest are closed. */
const MAX_LIVE = 12;

/** The state of the connection. */
export const connectionState = signal(/** @type {import("./acp.js").ConnectionState} */ ("connecting"));

/** Why the server did not accept the connection: its agent does not start. */
export const connectionError = signal("");

/** What the agent can do. */
export const capabilities = signal(/** @type {Json} */ ({}));

/** The agent's name for itself. */
export const agent = signal(/** @type {{name: string, title?: string|null, version?: string|null}|null} */ (null));

/** Counts the messages of the page's own traffic. */
export const trafficCount = signal(0);

/** Who uses the page. */
export const me = signal(/** @type {import("./types.js").Me|null} */ (null));

/** Questions that belong to no session. */
const otherQuestions = signal(/** @type {Question[]} */ ([]));

/** @type {Map<string, LiveSession>} */
const live = new Map();

/** How many sessions are being created. */
let creating = 0;

/** Notifications about sessions that are being created: one can come together with the response that names its session. @type {Map<string, Notice[]>} */
const early = new Map();

const connection = new Connection(webSocketUrl(), {
  onNotification: receiveNotification,
  onRequest: receiveRequest,
  onOpen: initialize,
  onTraffic: () => {
    trafficCount.value += 1;
  },
  onState: (state) => {
    connectionState.value = state;
    for (const session of live.values()) {
      if (state === "open") void session.load();
      if (state === "lost") session.lose();
    }
    if (state === "lost") otherQuestions.value = [];
  },
});

function webSocketUrl() {
  if (typeof location === "undefined") return "";
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/acp`;
}

/** Connects, and keeps connected. */
export function startClient() {
  connection.connect();
  addEventListener("online", () => connection.retry());
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) void connection.check();
  });
}

/** Tries to connect now. */
export function reconnect() {
  connection.retry();
}

/** Returns the page's own messages, the oldest first. */
export function traffic() {
  return connection.traffic;
}

async function initialize() {
  const result = await connection.request("initialize", {
    protocolVersion: 1,
    clientCapabilities: { fs: { readTextFile: false, writeTextFile: false }, terminal: false, elicitation: { form: {}, url: {} }, _meta: { terminal_output: true, bowline: { turnEnds: {} } } },
    clientInfo: { name: "bowline-web", title: "Bowline web page", version: me.value?.version ?? "0" },
  }).catch((error) => {
    if (!(error instanceof RpcError && error.code === CONNECTION_LOST)) connectionError.value = error.message;
    throw error;
  });
  connectionError.value = "";
  capabilities.value = result.agentCapabilities ?? {};
  agent.value = result.agentInfo ?? null;
}

/** @param {string} method @param {Json} params */
function receiveNotification(method, params) {
  if (method === "session/update" || method === TURN_ENDED) {
    const session = live.get(params.sessionId);
    if (session) session.receive({ method, params });
    else if (creating > 0) early.set(params.sessionId, [...(early.get(params.sessionId) ?? []), { method, params }]);
  }
  if (method === "$/cancel_request") {
    const keep = (/** @type {Question} */ question) => question.id !== params.requestId;
    for (const session of live.values()) session.questions.value = session.questions.value.filter(keep);
    otherQuestions.value = otherQuestions.value.filter(keep);
  }
}

/** @param {string|number} id @param {string} method @param {Json} params */
function receiveRequest(id, method, params) {
  if (method !== "session/request_permission" && method !== "elicitation/create") {
    connection.respondError(id, -32601, `the web page does not serve ${method}`);
    return;
  }
  const sessionId = typeof params.sessionId === "string" ? params.sessionId : null;
  const session = sessionId === null ? undefined : live.get(sessionId);
  const target = session?.questions ?? otherQuestions;
  const question = { id, method, params, sessionId, at: performance.now() };
  target.value = [...target.value.filter((other) => other.id !== id), question];
}

/** Answers a question. @param {Question} question @param {Json} result */
export function answer(question, result) {
  if (!connection.respond(question.id, result)) return;
  const keep = (/** @type {Question} */ other) => other.id !== question.id;
  for (const session of live.values()) session.questions.value = session.questions.value.filter(keep);
  otherQuestions.value = otherQuestions.value.filter(keep);
}

/** Returns a session that is followed from here on. @param {string} id */
export function openSession(id) {
  let session = live.get(id);
  if (session) {
    // The last in the map is the one used last.
    live.delete(id);
    live.set(id, session);
    return session;
  }
  session = new LiveSession(id);
  live.set(id, session);
  if (connectionState.peek() === "open") void session.load();
  for (const other of live.values()) {
    if (live.size <= MAX_LIVE) break;
    if (other !== session && !other.isBusy.peek() && other.queue.peek().length === 0) other.close();
  }
  return session;
}

/** Opens a session of an agent, whose settings are then known. @param {string} cwd @param {string} name of the agent; empty for the usual one */
async function newSession(cwd, name) {
  creating += 1;
  /** @type {LiveSession} */
  let session;
  try {
    const setup = await connection.request("session/new", { cwd, mcpServers: [], ...(name ? { _meta: { bowline: { agent: name } } } : {}) });
    session = new LiveSession(setup.sessionId);
    session.cwd.value = cwd;
    live.set(session.id, session);
    applySetup(session.state, setup);
    for (const { method, params } of early.get(session.id) ?? []) applyNotification(session.state, method, params);
  } finally {
    creating -= 1;
    if (creating === 0) early.clear();
  }
  session.status.value = "ready";
  session.touch();
  session.rememberSettings();
  return session;
}

/** @param {LiveSession} session @param {Record<string, string|boolean|undefined>} chosen */
async function startSession(session, chosen) {
  for (const setting of settings(session.state)) {
    const value = chosen[setting.id];
    if (value !== undefined && value !== setting.current) await session.set(setting, value);
  }
  session.rememberSettings();
  refreshOverview();
  return session.id;
}

/**
 * A session that is opened before a person has chosen its settings: only an open session tells which there are. It is
 * started in the end, or deleted.
 */
export class PreparedSession {
  /** @param {string} cwd @param {string} agent its name; empty for the usual one */
  constructor(cwd, agent) {
    this.cwd = cwd;
    this.agent = agent;
    this.opening = newSession(cwd, agent).then((session) => {
      prepared.value = [...prepared.value, session.id];
      return session;
    });
  }

  /** Applies settings, and returns the session's id. @param {Record<string, string|boolean|undefined>} chosen */
  async start(chosen) {
    const session = await this.opening;
    prepared.value = prepared.value.filter((id) => id !== session.id);
    return startSession(session, chosen);
  }

  async discard() {
    const session = await this.opening.catch(() => null);
    if (!session) return;
    await deleteSession(session.id).catch(() => undefined);
    prepared.value = prepared.value.filter((id) => id !== session.id);
  }
}

/** Creates a session, applies settings to it, and returns its id. @param {string} cwd @param {string} agent @param {Record<string, string|boolean|undefined>} chosen */
export async function createSession(cwd, agent, chosen) {
  return startSession(await newSession(cwd, agent), chosen);
}

/** @param {string} id */
export async function deleteSession(id) {
  await connection.request("session/delete", { sessionId: id });
  live.get(id)?.dispose();
  refreshOverview();
}

/** A session that the page follows. */
export class LiveSession {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.state = createState();
    /** Counts up when `state` changed. */
    this.revision = signal(0);
    this.status = signal(/** @type {"loading"|"ready"|"failed"} */ ("loading"));
    this.error = signal("");
    this.cwd = signal("");
    this.questions = signal(/** @type {Question[]} */ ([]));
    this.allQuestions = computed(() => [...this.questions.value, ...otherQuestions.value]);
    this.queue = signal(/** @type {QueuedPrompt[]} */ (readQueue(id)));
    this.ownTurn = signal(false);
    this.found = signal(/** @type {import("./types.js").SessionSummary|null} */ (null));
    this.summary = computed(() => summaries.value?.find((summary) => summary.id === id) ?? this.found.value);
    this.isBusy = computed(() => this.ownTurn.value || ["working", "waiting"].includes(this.summary.value?.state ?? ""));
    this.loads = 0;
    this.lookUps = 0;
    /** Whether the history is on its way: a prompt that is sent meanwhile would be missing in it. */
    this.isLoading = signal(false);
    /** The prompt that was sent and not answered. @type {ContentBlock[]|null} */
    this.unconfirmed = null;
    /** @type {Notice[]|null} */
    this.replay = null;
    this.effects = [effect(() => {
      writeQueue(id, this.queue.value);
    }), effect(() => {
      const [next] = this.queue.value;
      if (next && !this.isBusy.value && this.status.value === "ready" && !this.isLoading.value && connectionState.value === "open" && summaries.value) {
        // Not in the effect itself, which must not depend on what sending reads.
        queueMicrotask(() => this.sendQueued(next));
      }
    }), effect(() => {
      // Of a session outside of the list, such as an archived one, only the server knows the state.
      if (summaries.value && !summaries.value.some((summary) => summary.id === id)) void this.lookUp();
    })];
  }

  /** Asks the server what the session is doing. */
  async lookUp() {
    this.lookUps += 1;
    const lookUp = this.lookUps;
    const summary = await fetchSession(this.id).catch(() => null);
    if (summary && lookUp === this.lookUps) this.found.value = summary;
  }

  /** Ends what the page does for the session. */
  dispose() {
    for (const end of this.effects) end();
    this.loads += 1;
    live.delete(this.id);
  }

  /** Stops to follow the session. */
  close() {
    this.dispose();
    connection.request("session/close", { sessionId: this.id }).catch(() => undefined);
  }

  /** Loads the history. What is shown remains until all of it is here. */
  async load() {
    this.loads += 1;
    const load = this.loads;
    this.isLoading.value = true;
    if (this.status.value !== "ready") this.status.value = "loading";
    try {
      const summary = await findSession(this.id);
      if (!summary) throw new RpcError(-32002, "there is no such session, or it is not yours");
      this.cwd.value = summary.cwd;
      this.found.value = summary;
      /** @type {Notice[]} */
      const history = [];
      this.replay = history;
      const setup = await connection.request("session/load", { sessionId: this.id, cwd: summary.cwd, mcpServers: [] });
      if (load !== this.loads) return;
      const state = createState();
      for (const { method, params } of history) applyNotification(state, method, params);
      applySetup(state, setup);
      this.state = state;
      this.restoreUnconfirmed();
      this.status.value = "ready";
      this.error.value = "";
    } catch (error) {
      if (load !== this.loads || (error instanceof RpcError && error.code === CONNECTION_LOST)) return;
      this.status.value = "failed";
      this.error.value = error instanceof Error ? error.message : String(error);
    } finally {
      if (load === this.loads) {
        this.replay = null;
        this.isLoading.value = false;
      }
    }
    this.touch();
  }

  /** The connection is gone: answers to what was asked on it will not come. */
  lose() {
    this.loads += 1;
    this.replay = null;
    this.isLoading.value = false;
    this.questions.value = [];
    this.ownTurn.value = false;
  }

  /** Queues a prompt again that the server never received. */
  restoreUnconfirmed() {
    const blocks = this.unconfirmed;
    this.unconfirmed = null;
    if (blocks && !hasPrompt(this.state, promptText(blocks))) {
      this.queue.value = [{ key: nextQueueKey(), blocks }, ...this.queue.value];
    }
  }

  /** @param {Notice} notice */
  receive(notice) {
    if (this.replay) {
      this.replay.push(notice);
      return;
    }
    applyNotification(this.state, notice.method, notice.params);
    this.touch();
  }

  /** Returns what the agent accepts in prompts. @returns {Json} */
  get accepts() {
    return (this.state.agent ?? capabilities.value).promptCapabilities ?? {};
  }

  /** Keeps the agent's settings for the form of a new session. */
  rememberSettings() {
    rememberSettings(this.state.agent?.name ?? "", settings(this.state));
  }

  /** Tells the views that the state changed. */
  touch() {
    this.revision.value += 1;
  }

  /** Sends a prompt, or queues it while a turn runs. @param {ContentBlock[]} blocks */
  prompt(blocks) {
    this.queue.value = [...this.queue.value, { key: nextQueueKey(), blocks }];
  }

  /** @param {QueuedPrompt} queued */
  sendQueued(queued) {
    if (this.queue.value[0] !== queued || this.isBusy.value || this.isLoading.value || connectionState.value !== "open") return;
    this.ownTurn.value = true;
    this.queue.value = this.queue.value.slice(1);
    void this.send(queued.blocks);
  }

  /** @param {ContentBlock[]} blocks */
  async send(blocks) {
    addPrompt(this.state, blocks);
    this.touch();
    this.unconfirmed = blocks;
    try {
      const { stopReason } = await connection.request("session/prompt", { sessionId: this.id, prompt: blocks });
      this.unconfirmed = null;
      this.patch({ state: "idle", failure: null });
      endTurn(this.state, { stopReason });
    } catch (error) {
      if (error instanceof RpcError && error.code === CONNECTION_LOST) return;
      this.unconfirmed = null;
      const failure = error instanceof Error ? error.message : String(error);
      this.patch({ state: "failed", failure });
      endTurn(this.state, { error: failure });
    }
    this.ownTurn.value = false;
    this.touch();
    refreshOverview();
  }

  /** Changes what is known of the session until the server's next answer. @param {Partial<import("./types.js").SessionSummary>} change */
  patch(change) {
    patchSession(this.id, change);
    if (this.found.value) this.found.value = { ...this.found.value, ...change };
  }

  /** Cancels the turn. Whoever cancels answers what the agent asks meanwhile. */
  cancel() {
    connection.notify("session/cancel", { sessionId: this.id });
    for (const question of this.questions.value) {
      answer(question, question.method === "session/request_permission" ? { outcome: { outcome: "cancelled" } } : { action: "cancel" });
    }
  }

  /** @param {import("./types.js").Setting} setting @param {string|boolean} value */
  async set(setting, value) {
    try {
      if (setting.source === "mode") {
        await connection.request("session/set_mode", { sessionId: this.id, modeId: value });
        this.state.modes = { ...this.state.modes, currentModeId: value };
      } else if (setting.source === "model") {
        await connection.request("session/set_model", { sessionId: this.id, modelId: value });
        this.state.models = { ...this.state.models, currentModelId: value };
      } else {
        const kind = typeof value === "boolean" ? { type: "boolean" } : {};
        applySetup(this.state, await connection.request("session/set_config_option", { sessionId: this.id, configId: setting.id, value, ...kind }));
      }
      this.rememberSettings();
    } catch (error) {
      addNote(this.state, "error", `${setting.name} was not changed: ${error instanceof Error ? error.message : error}`);
    }
    this.touch();
  }
}

let queueKey = 0;

function nextQueueKey() {
  queueKey += 1;
  return queueKey;
}

/** Returns the text of a prompt. @param {ContentBlock[]} blocks */
export function promptText(blocks) {
  return blocks.map((block) => (block.type === "text" ? block.text : "")).join("");
}

/** @param {string} id @returns {QueuedPrompt[]} */
function readQueue(id) {
  try {
    const found = JSON.parse(sessionStorage.getItem(`bowline.queue.${id}`) ?? "[]");
    return found.map((/** @type {ContentBlock[]} */ blocks) => ({ key: nextQueueKey(), blocks }));
  } catch {
    return [];
  }
}

/** @param {string} id @param {QueuedPrompt[]} queue */
function writeQueue(id, queue) {
  try {
    if (queue.length === 0) sessionStorage.removeItem(`bowline.queue.${id}`);
    else sessionStorage.setItem(`bowline.queue.${id}`, JSON.stringify(queue.map(({ blocks }) => blocks)));
  } catch {
    // Without storage, the queue ends with the page.
  }
}
