// The WebSocket, in a worker of its own. A fast answer comes in thousands of messages, and each would hold up the page's
// drawing; the page gets them in batches.

/** The least time between two batches, in milliseconds. */
const PAUSE = 12;

/** @type {WebSocket|null} */
let socket = null;
let current = 0;
/** @type {string[]} */
let batch = [];
let sentAt = -Infinity;
let isScheduled = false;

function flush() {
  isScheduled = false;
  sentAt = performance.now();
  if (batch.length > 0) self.postMessage({ generation: current, messages: batch });
  batch = [];
}

/** @param {string} url @param {number} generation which socket of the page it is */
function open(url, generation) {
  socket?.close();
  const opened = new WebSocket(url);
  socket = opened;
  current = generation;
  batch = [];
  opened.addEventListener("open", () => self.postMessage({ generation, state: "open" }));
  opened.addEventListener("message", ({ data }) => {
    if (socket !== opened) return;
    batch.push(data);
    if (isScheduled) return;
    isScheduled = true;
    setTimeout(flush, Math.max(0, sentAt + PAUSE - performance.now()));
  });
  opened.addEventListener("close", () => {
    if (socket === opened) flush();
    self.postMessage({ generation, state: "closed" });
  });
}

self.addEventListener("message", ({ data }) => {
  if (data.url) open(data.url, data.generation);
  else if (data.text === undefined) socket?.close();
  else if (socket?.readyState === WebSocket.OPEN) socket.send(data.text);
});
