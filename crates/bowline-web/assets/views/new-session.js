// The form of a new session: directory, agent, model and mode.

import { html, signal, useEffect, useRef, useState } from "../lib.js";
import { agent, connectionState, createSession, me, PreparedSession } from "../client.js";
import { sessions } from "../overview-store.js";
import { settingsOf } from "../preferences.js";
import { go } from "../router.js";
import { Dialog, Problem } from "../ui.js";

const isShown = signal(false);

export function showNewSession() {
  isShown.value = true;
}

export function NewSession() {
  return isShown.value ? html`<${Form} onClose=${() => (isShown.value = false)} />` : null;
}

/** @param {{onClose: () => void}} props */
function Form({ onClose }) {
  const roots = me.value?.roots ?? [];
  const others = me.value?.agents ?? [];
  const known = [...new Set([...roots, ...(sessions.value ?? []).map((session) => session.cwd)])];
  const [cwd, setCwd] = useState(sessions.value?.[0]?.cwd ?? roots[0] ?? "");
  const [name, setName] = useState("");
  const [chosen, setChosen] = useState(/** @type {Record<string, string|boolean|undefined>} */ ({}));
  const [state, setState] = useState({ isBusy: false, error: "" });
  const [isAsking, setAsking] = useState(settingsOf("").length === 0 && cwd.trim() !== "");
  const preparing = useRef(/** @type {PreparedSession|null} */ (null));
  // Whether a session is being started, so that no other is prepared.
  const isStarting = useRef(false);
  const isConnected = connectionState.value === "open";

  // Nothing is known of an agent's models and modes before its first session.
  useEffect(() => {
    if (!isConnected || !cwd.trim() || settingsOf(name).length > 0 || preparing.current?.agent === name || isStarting.current) return;
    void preparing.current?.discard();
    const session = new PreparedSession(cwd.trim(), name);
    preparing.current = session;
    setAsking(true);
    session.opening.catch((error) => {
      if (preparing.current !== session) return;
      preparing.current = null;
      if (!isStarting.current) setState({ isBusy: false, error: error.message });
    }).finally(() => {
      if (preparing.current === session || preparing.current === null) setAsking(false);
    });
  }, [isConnected, name]);
  useEffect(() => () => void preparing.current?.discard(), []);

  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setState({ isBusy: true, error: "" });
    isStarting.current = true;
    try {
      const ready = preparing.current;
      const isSame = ready?.cwd === cwd.trim() && ready.agent === name;
      // A session that is started is not discarded with the form.
      if (isSame) preparing.current = null;
      const id = await (ready && isSame ? ready.start(chosen) : createSession(cwd.trim(), name, chosen));
      onClose();
      go({ view: "session", id });
    } catch (error) {
      isStarting.current = false;
      setState({ isBusy: false, error: error instanceof Error ? error.message : String(error) });
    }
  };

  return html`<${Dialog} title="New session" onClose=${onClose}>
    <form class="form" onSubmit=${submit}>
      <label class="field"><span>Directory</span>
        <input name="cwd" list="directories" autofocus required autocomplete="off" spellcheck=${false} value=${cwd} onInput=${(/** @type {any} */ event) => setCwd(event.target.value)} />
        <datalist id="directories">${known.map((directory) => html`<option value=${directory} />`)}</datalist></label>
      ${others.length === 0
        ? html`<div class="field"><span>Agent</span><p class="static">${describeAgent(agent.value ?? me.value?.agent)}</p></div>`
        : html`<label class="field"><span>Agent</span>
          <select name="agent" value=${name} onChange=${(/** @type {any} */ event) => { setName(event.target.value); setChosen({}); setState({ isBusy: false, error: "" }); }}>
            <option value="">${describeAgent(agent.value ?? me.value?.agent)}</option>
            ${others.map((other) => html`<option value=${other}>${other}</option>`)}
          </select></label>`}
      ${settingsOf(name).map((setting) => html`<label class="field" key=${setting.id}><span>${setting.name}</span>
        <select name=${setting.id} value=${String(chosen[setting.id] ?? "")} onChange=${(/** @type {any} */ event) => setChosen({ ...chosen, [setting.id]: toValue(setting, event.target.value) })}>
          <option value="">The agent's default</option>
          ${typeof setting.current === "boolean" && html`<option value="true">On</option><option value="false">Off</option>`}
          ${setting.choices.map(({ group, choices }) => group
            ? html`<optgroup label=${group}>${choices.map((choice) => html`<option value=${choice.value}>${choice.name}</option>`)}</optgroup>`
            : choices.map((choice) => html`<option value=${choice.value}>${choice.name}</option>`))}
        </select></label>`)}
      ${isAsking && isConnected && html`<p class="muted hint">Asking the agent for its models and modes…</p>`}
      <${Problem} text=${state.error} />
      <footer><button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="primary" aria-busy=${isAsking} disabled=${state.isBusy || !isConnected}>${state.isBusy ? "Starting…" : "Start session"}</button></footer>
    </form>
  <//>`;
}

/** @param {import("../types.js").Setting} setting @param {string} text that was chosen */
function toValue(setting, text) {
  if (!text) return undefined;
  return typeof setting.current === "boolean" ? text === "true" : text;
}

/** @param {import("../types.js").Me["agent"]|undefined} info */
function describeAgent(info) {
  if (!info) return "The agent of this server";
  return `${info.title ?? info.name}${info.version ? ` ${info.version}` : ""}`;
}
