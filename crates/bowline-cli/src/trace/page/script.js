"use strict";
// Everything that was recorded is shown as text: nothing here makes markup of it.
const { about, rows } = JSON.parse(document.getElementById("data").textContent);
const BLOCK = 200; // rows that are drawn or left out together
const ROW = 28; // the height of a row that is not drawn yet, about
const MOST = 200000; // characters of one message that are drawn
const RANK = { client: 0, proxy: 1, agent: 2 };
const find = (id) => document.getElementById(id);
const make = (tag, name, text) => {
  const node = document.createElement(tag);
  if (name) node.className = name;
  if (text !== undefined) node.textContent = text;
  return node;
};
const seconds = (us) => (us / 1e6).toFixed(3);
const took = (us) => (us < 1000 ? us + " µs" : us < 1e6 ? (us / 1000).toFixed(us < 10000 ? 1 : 0) + " ms" : (us / 1e6).toFixed(1) + " s");
const open = new Set();
let call = null;
let shown = [];

function drawn(index) {
  const row = rows[index];
  const back = row.from && RANK[row.from] > RANK[row.to];
  const node = make("div", "row " + row.kind + (back ? " back" : ""));
  node.append(make("span", "time", row.us === undefined ? "" : seconds(row.us)));
  const message = make("div", "message");
  const head = make("div", "head");
  if (row.from) head.append(make("span", "way", row.from + " → " + row.to + "  "));
  head.append(make("span", "method", (row.kind === "answer" ? "✓ " : row.kind === "error" ? "✗ " : "") + (row.method || row.kind)));
  if (row.id !== null && row.id !== undefined) head.append(make("span", "id", " #" + row.id));
  head.append(make("span", "gist", "  " + row.gist));
  if (row.took !== null && row.took !== undefined) head.append(make("span", "took", "  " + took(row.took)));
  message.append(head);
  if (row.raw !== undefined) {
    head.tabIndex = 0;
    head.setAttribute("role", "button");
    const toggle = () => {
      if (open.delete(index)) message.lastChild.remove();
      else { open.add(index); message.append(whole(row.raw)); }
      head.setAttribute("aria-expanded", String(open.has(index)));
    };
    head.setAttribute("aria-expanded", String(open.has(index)));
    head.addEventListener("click", toggle);
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); }
    });
    if (open.has(index)) message.append(whole(row.raw));
  }
  node.append(message);
  return node;
}

function whole(raw) {
  let text = raw;
  try { text = JSON.stringify(JSON.parse(raw), null, 2); } catch { /* it is shown as it came */ }
  const cut = text.length > MOST;
  return make("pre", "", cut ? text.slice(0, MOST) + "\n… " + (text.length - MOST) + " more characters" : text);
}

// Blocks near the window are drawn, others are empty and as high as they were.
const near = new IntersectionObserver((seen) => {
  for (const { target, isIntersecting } of seen) {
    if (isIntersecting && !target.firstChild) {
      const from = Number(target.dataset.from);
      const fragment = document.createDocumentFragment();
      for (const index of shown.slice(from, from + BLOCK)) fragment.append(drawn(index));
      target.append(fragment);
      target.style.height = "";
    } else if (!isIntersecting && target.firstChild) {
      target.style.height = target.offsetHeight + "px";
      target.replaceChildren();
    }
  }
}, { root: find("rows"), rootMargin: "1500px" });

function lay() {
  const text = find("text").value.toLowerCase();
  const method = find("method").value;
  const session = find("session").value;
  const errors = find("errors").checked;
  shown = [];
  rows.forEach((row, index) => {
    if (method && row.method !== method) return;
    if (session && row.session !== session) return;
    if (errors && !["error", "other", "lost"].includes(row.kind)) return;
    if (call && (row.call !== call.id || row.session !== call.session)) return;
    if (text && !(row.gist + " " + (row.raw || "")).toLowerCase().includes(text)) return;
    shown.push(index);
  });
  near.disconnect();
  const place = find("rows");
  place.replaceChildren();
  place.scrollTop = 0;
  for (let from = 0; from < shown.length; from += BLOCK) {
    const block = make("div", "block");
    block.dataset.from = from;
    block.style.height = Math.min(BLOCK, shown.length - from) * ROW + "px";
    place.append(block);
    near.observe(block);
  }
  find("count").textContent = shown.length + " of " + rows.length + " messages";
}

function choices(id, values) {
  for (const value of [...new Set(values)].filter(Boolean).sort()) {
    const option = make("option", "", value);
    option.value = value;
    find(id).append(option);
  }
}

find("name").textContent = about.name;
const errors = rows.filter((row) => row.kind === "error").length;
const began = about.began === null ? "" : new Date(about.began).toISOString().replace("T", " ").slice(0, 19) + "Z · ";
find("about").textContent = began + rows.length + " messages · " + errors + " errors · " + about.calls.length + " tool calls";
choices("method", rows.map((row) => row.method));
choices("session", rows.map((row) => row.session));
for (const it of about.calls) {
  const button = make("button", "", it.title || it.id);
  button.append(make("small", "", (it.status || "no status") + " · " + it.messages + " messages · " + took(it.last - it.first)));
  button.addEventListener("click", () => {
    const on = call === it;
    call = on ? null : it;
    for (const other of find("calls").children) other.classList.toggle("on", other === button && !on);
    lay();
  });
  find("calls").append(button);
}
if (about.open.length) {
  find("open").append(make("h2", "", "Without an answer"));
  for (const it of about.open) find("open").append(make("div", "", it.from + ": " + it.method + " #" + it.id));
}
for (const id of ["method", "session", "errors"]) find(id).addEventListener("change", lay);
let typing;
find("text").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(lay, 200); });
lay();
