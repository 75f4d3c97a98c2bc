// The audit log, with a filter and its verification.

import { html, useEffect, useState } from "../lib.js";
import { get, post } from "../api.js";
import { dateTime, sentence, shortPath, visible } from "../format.js";
import { Icon } from "../icons.js";
import { sessions } from "../overview-store.js";
import { Empty, Problem } from "../ui.js";

/** @typedef {{number: number, at: number, session: string, principal: string, operation: string, target: string, decision: string, by: string}} Entry */

export function Audit() {
  const [entries, setEntries] = useState(/** @type {Entry[]|null} */ (null));
  const [next, setNext] = useState(/** @type {number|null} */ (null));
  const [query, setQuery] = useState("");
  const [decision, setDecision] = useState("");
  const [cwd, setCwd] = useState("");
  const [workspace, setWorkspace] = useState("");
  const [error, setError] = useState("");
  const [check, setCheck] = useState(/** @type {{ok: boolean, text: string}|"running"|null} */ (null));

  const load = async (/** @type {number|null} */ before) => {
    try {
      const answer = await get("/api/audit", { query, decision, cwd, before });
      setEntries((old) => (before === null ? answer.entries : [...(old ?? []), ...answer.entries]));
      setNext(answer.next ?? null);
      setWorkspace(answer.workspace ?? "");
      setError("");
    } catch (failure) {
      // Without any session, there is no directory whose log could be shown.
      if (/** @type {any} */ (failure).status === 404 && !cwd) return setEntries([]);
      setError(failure instanceof Error ? failure.message : String(failure));
    }
  };
  useEffect(() => {
    const timer = setTimeout(() => void load(null), query ? 150 : 0);
    return () => clearTimeout(timer);
  }, [query, decision, cwd]);

  const verify = async () => {
    setCheck("running");
    setCheck(await post("/api/audit/verify", cwd ? { cwd } : {}).catch((failure) => ({ ok: false, text: failure.message })));
  };

  const directories = [...new Set((sessions.value ?? []).map((session) => session.cwd))];
  return html`<main class="page" id="main" tabindex="-1">
    <header class="page-head"><div><h1>Audit log</h1><p class="muted">Every operation that was decided, in a chain that shows later changes.${workspace && html` <span class="path">${workspace}</span>`}</p></div>
      <button type="button" onClick=${verify} disabled=${check === "running" || !workspace}>${check === "running" ? "Verifying…" : "Verify the chain"}</button></header>
    <div role="status">${check && check !== "running" && html`<p class=${check.ok ? "good" : "problem"}><${Icon} name=${check.ok ? "check" : "warning"} /> <span class="plain">${visible(sentence(check.text))}</span></p>`}</div>
    <div class="toolbar" role="search">
      <label class="search"><${Icon} name="search" /><span class="hidden">Search the audit log</span><input type="search" id="search" placeholder="Search operation, target or session" value=${query} onInput=${(/** @type {any} */ event) => setQuery(event.target.value)} /></label>
      <label class="setting"><span class="hidden">Decision</span><select value=${decision} onChange=${(/** @type {any} */ event) => setDecision(event.target.value)}>
        <option value="">All decisions</option><option value="allowed">Allowed</option><option value="denied">Denied</option><option value="failed">Failed</option><option value="cancelled">Cancelled</option></select></label>
      ${directories.length > 1 && html`<label class="setting"><span class="hidden">Workspace</span><select value=${cwd} onChange=${(/** @type {any} */ event) => { setCwd(event.target.value); setCheck(null); }}>
        <option value="">Workspace used last</option>${directories.map((directory) => html`<option value=${directory}>${shortPath(directory)}</option>`)}</select></label>`}
    </div>
    <${Problem} text=${error} />
    ${entries?.length === 0 && html`<${Empty} title=${query || decision ? "No entry matches" : "Nothing is recorded yet"} />`}
    ${entries && entries.length > 0 && html`<div class="table-scroll" tabindex="0" role="region" aria-label="Entries of the audit log"><table class="records">
      <thead><tr><th scope="col">No.</th><th scope="col">Time</th><th scope="col">Operation</th><th scope="col">Target</th><th scope="col">Decision</th><th scope="col">By</th><th scope="col">Session</th></tr></thead>
      <tbody>${entries.map((entry) => html`<tr key=${entry.number}><td class="number">${entry.number}</td><td class="nowrap at">${dateTime(entry.at)}</td><td class="operation">${visible(entry.operation ?? "")}</td>
        <td class="target"><bdi>${visible(entry.target ?? "")}</bdi></td><td class="outcome"><span class=${`decision decision-${isAllowed(entry.decision) ? "allowed" : "denied"}`}>${visible(entry.decision ?? "")}</span></td><td class="by">${entry.by === "nobody" ? "" : visible(entry.by ?? "")}</td><td class="muted mono session" title=${entry.session}>${visible((entry.session ?? "").slice(0, 12))}</td></tr>`)}</tbody>
    </table></div>`}
    ${next !== null && html`<button type="button" class="wide-button" onClick=${() => load(next)}>Show earlier entries</button>`}
  </main>`;
}

/** @param {string} decision */
function isAllowed(decision) {
  return /^(allow|approv|grant|done|ok)/i.test(decision ?? "");
}
