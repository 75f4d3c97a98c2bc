// JSON-RPC over a WebSocket that is opened again when it drops.

import { batch } from "./lib.js";

/** @typedef {import("./types.js").Json} Json */
/** @typedef {"connecting"|"open"|"lost"|"closed"} ConnectionState */
/** @typedef {{number: number, at: number, direction: "in"|"out", text: string}} Traffic */

/** The most messages of this page's own traffic that are kept, and their size in characters; twice that for a while. */
const MAX_TRAFFIC = 1000;
const MAX_TRAFFIC_SIZE = 4 << 20;

/** How long messages may be handled at a time, in milliseconds; the rest waits for the next frame. */
const FRAME_BUDGET = 8;

/** How long to wait for a frame: a hidden page has none. */
const MAX_FRAME_PAUSE = 200;

/** How long an answer may take when the page looks whether the connection is alive, in milliseconds. */
const PROBE_TIMEOUT = 5000;

/** The pauses between attempts to connect, in milliseconds. */
const FIRST_PAUSE = 250;
const LAST_PAUSE = 8000;

/** The attempt from which the pause is the longest. */
const REFUSED_ATTEMPT = 5;

/** An error that the other side sent, or a lost connection. */
export class RpcError extends Error {
  /** @param {number} code @param {string} message @param {any} [data] */
  constructor(code, message, data) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

/** The code of a request whose connection was lost before its answer. */
export const CONNECTION_LOST = -1;

/** Returns the pause before an attempt, counted from 0. @param {number} attempt @param {number} random from 0 to 1 */
export function pauseBefore(attempt, random) {
  return Math.min(LAST_PAUSE, FIRST_PAUSE * 2 ** attempt) * (0.75 + random / 2);
}

/**
 * @typedef {object} Handlers
 * @property {(method: string, params: Json) => void} onNotification
 * @property {(id: string|number, method: string, params: Json) => void} onRequest
 * @property {(state: ConnectionState) => void} onState
 * @property {() => Promise<void>} onOpen called on each new connection before requests are sent
 * @property {() => void} onTraffic
 */

/** A connection that survives its sockets. */
export class Connection {
  /** @param {string} url @param {Handlers} handlers */
  constructor(url, handlers) {
    this.url = url;
    this.handlers = handlers;
    /** @type {ConnectionState} */
    this.state = "connecting";
    /** @type {Traffic[]} */
    this.traffic = [];
    this.trafficSize = 0;
    this.trafficCount = 0;
    this.attempt = 0;
    /** @type {string[]} */
    this.inbox = [];
    this.nextId = 1;
    /** @type {Map<number, {resolve: (result: any) => void, reject: (error: Error) => void}>} */
    this.pending = new Map();
    /** @type {Worker|null} */
    this.worker = null;
    // Counts the sockets: what comes from an earlier one is ignored.
    this.generation = 0;
    this.isOpen = false;
    this.isOpening = false;
    this.isDraining = false;
    /** @type {ReturnType<typeof setTimeout>|undefined} */
    this.timer = undefined;
  }

  connect() {
    if (this.state === "closed" || this.isOpen || this.isOpening) return;
    clearTimeout(this.timer);
    if (!this.worker) {
      this.worker = new Worker(new URL("./socket-worker.js", import.meta.url), { type: "module" });
      this.worker.addEventListener("message", ({ data }) => this.handle(data));
      // It could not be loaded: the next attempt starts another.
      this.worker.addEventListener("error", () => {
        this.worker = null;
        this.drop();
      });
    }
    this.generation += 1;
    this.isOpening = true;
    this.worker.postMessage({ url: this.url, generation: this.generation });
  }

  /** Handles what the worker says. @param {{generation: number, state?: "open"|"closed", messages?: string[]}} event */
  handle({ generation, state, messages }) {
    if (generation !== this.generation) return;
    if (messages) {
      for (const text of messages) this.inbox.push(text);
      if (!this.isDraining) this.scheduleDrain();
    } else if (state === "open") {
      this.isOpening = false;
      this.isOpen = true;
      this.handlers.onOpen().then(() => {
        if (this.generation !== generation || !this.isOpen) return;
        this.attempt = 0;
        this.setState("open");
      }, (error) => {
        // An agent that does not start is not started again at once.
        if (error.code !== CONNECTION_LOST) this.attempt = Math.max(this.attempt, REFUSED_ATTEMPT);
        this.worker?.postMessage({});
      });
    } else {
      // What came before the end counts.
      while (this.inbox.length > 0) this.drain();
      this.drop();
    }
  }

  /** Tries at once, for example because the machine is online again. */
  retry() {
    if (this.state === "lost") this.connect();
  }

  /**
   * Looks whether the connection is alive, and replaces it if not: a phone that slept or changed its network is not
   * always told.
   */
  async check() {
    if (!this.isOpen) return this.retry();
    const { generation } = this;
    const timer = setTimeout(() => {
      if (generation !== this.generation) return;
      this.generation += 1;
      this.worker?.postMessage({});
      this.drop();
      this.connect();
    }, PROBE_TIMEOUT);
    await this.request("session/list", {}).catch(() => undefined);
    clearTimeout(timer);
  }

  close() {
    this.setState("closed");
    clearTimeout(this.timer);
    this.worker?.terminate();
  }

  drop() {
    this.isOpen = false;
    this.isOpening = false;
    for (const { reject } of this.pending.values()) reject(new RpcError(CONNECTION_LOST, "the connection was lost"));
    this.pending.clear();
    if (this.state === "closed") return;
    this.setState("lost");
    this.timer = setTimeout(() => this.connect(), pauseBefore(this.attempt, Math.random()));
    this.attempt += 1;
  }

  /** @param {ConnectionState} state */
  setState(state) {
    if (this.state === state) return;
    this.state = state;
    this.handlers.onState(state);
  }

  /** @param {string} method @param {Json} params @returns {Promise<any>} */
  request(method, params) {
    const id = this.nextId;
    this.nextId += 1;
    return new Promise((resolve, reject) => {
      if (!this.send({ jsonrpc: "2.0", id, method, params })) {
        reject(new RpcError(CONNECTION_LOST, "there is no connection to the server"));
        return;
      }
      this.pending.set(id, { resolve, reject });
    });
  }

  /** @param {string} method @param {Json} params */
  notify(method, params) {
    return this.send({ jsonrpc: "2.0", method, params });
  }

  /** @param {string|number} id @param {Json} result */
  respond(id, result) {
    return this.send({ jsonrpc: "2.0", id, result });
  }

  /** @param {string|number} id @param {number} code @param {string} message */
  respondError(id, code, message) {
    return this.send({ jsonrpc: "2.0", id, error: { code, message } });
  }

  /** Sends a message, and returns whether there was a connection. @param {Json} message */
  send(message) {
    if (!this.isOpen) return false;
    const text = JSON.stringify(message);
    this.record("out", text);
    this.worker?.postMessage({ text });
    return true;
  }

  scheduleDrain() {
    this.isDraining = true;
    let isDone = false;
    const run = () => {
      if (isDone) return;
      isDone = true;
      this.isDraining = false;
      this.drain();
      if (this.inbox.length > 0) this.scheduleDrain();
    };
    requestAnimationFrame(run);
    setTimeout(run, MAX_FRAME_PAUSE);
  }

  /** Handles messages, as many as fit into a frame; views see what they add up to. */
  drain() {
    const end = performance.now() + FRAME_BUDGET;
    let count = 0;
    batch(() => {
      while (count < this.inbox.length && (count % 32 !== 0 || performance.now() < end || count === 0)) {
        this.receive(/** @type {string} */ (this.inbox[count]));
        count += 1;
      }
    });
    this.inbox.splice(0, count);
  }

  /** @param {string} text */
  receive(text) {
    this.record("in", text);
    /** @type {any} */
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      return;
    }
    if (typeof message !== "object" || message === null) return;
    const { id, method, params } = message;
    if (typeof method === "string") {
      if (id === undefined || id === null) this.handlers.onNotification(method, params ?? {});
      else this.handlers.onRequest(id, method, params ?? {});
      return;
    }
    const waiting = this.pending.get(id);
    this.pending.delete(id);
    if (!waiting) return;
    if (message.error) waiting.reject(new RpcError(message.error.code, String(message.error.message ?? "unknown error"), message.error.data));
    else waiting.resolve(message.result ?? {});
  }

  /** @param {"in"|"out"} direction @param {string} text */
  record(direction, text) {
    this.trafficCount += 1;
    this.traffic.push({ number: this.trafficCount, at: Date.now(), direction, text });
    this.trafficSize += text.length;
    // Half of them at once: the first entries of an array are costly to remove one by one.
    if (this.traffic.length > 2 * MAX_TRAFFIC || this.trafficSize > 2 * MAX_TRAFFIC_SIZE) {
      this.traffic = this.traffic.slice(-MAX_TRAFFIC);
      this.trafficSize = this.traffic.reduce((size, entry) => size + entry.text.length, 0);
      while (this.trafficSize > MAX_TRAFFIC_SIZE && this.traffic.length > 1) {
        this.trafficSize -= this.traffic.shift()?.text.length ?? 0;
      }
    }
    this.handlers.onTraffic();
  }
}
