// The form of a new session: directory, agent, model and mode.

import { html, signal, useEffect, useRef, useState } from "../lib.js";
import { agent, connectionState, createSession, me, PreparedSession } from "../client.js";
import { sessions } from "../overview-store.js";
import { knownSettings } from "../preferences.js";
import { go } from "../router.js";
import { Dialog } from "../ui.js";

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
  const known = [...new Set([...roots, ...(sessions.value ?? []).map((session) => session.cwd)])];
  const [cwd, setCwd] = useState(sessions.value?.[0]?.cwd ?? roots[0] ?? "");
  const [chosen, setChosen] = useState(/** @type {Record<string, string|boolean>} */ ({}));
  const [state, setState] = useState({ isBusy: false, error: "" });

  const [isAsking, setAsking] = useState(false);
  const preparing = useRef(/** @type {PreparedSession|null} */ (null));
  const isConnected = connectionState.value === "open";

  // Nothing is known of the agent's models and modes before its first session.
  useEffect(() => {
    if (!isConnected || !cwd.trim() || knownSettings.value.length > 0 || preparing.current) return;
    const session = new PreparedSession(cwd.trim());
    preparing.current = session;
    setAsking(true);
    session.opening.catch(() => undefined).finally(() => setAsking(false));
  }, [isConnected]);
  useEffect(() => () => void preparing.current?.discard(), []);

  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setState({ isBusy: true, error: "" });
    try {
      const ready = preparing.current;
      const isSame = ready?.cwd === cwd.trim();
      // A session that is started is not discarded with the form.
      if (isSame) preparing.current = null;
      const id = await (ready && isSame ? ready.start(chosen) : createSession(cwd.trim(), chosen));
      onClose();
      go({ view: "session", id });
    } catch (error) {
      setState({ isBusy: false, error: error instanceof Error ? error.message : String(error) });
    }
  };

  return html`<${Dialog} title="New session" onClose=${onClose}>
    <form class="form" onSubmit=${submit}>
      <label class="field"><span>Directory</span>
        <input name="cwd" list="directories" autofocus required autocomplete="off" spellcheck=${false} value=${cwd} onInput=${(/** @type {any} */ event) => setCwd(event.target.value)} />
        <datalist id="directories">${known.map((directory) => html`<option value=${directory} />`)}</datalist></label>
      <div class="field"><span>Agent</span><p class="static">${describeAgent(agent.value ?? me.value?.agent)}</p></div>
      ${knownSettings.value.filter(({ choices }) => choices.length > 0).map((setting) => html`<label class="field" key=${setting.id}><span>${setting.name}</span>
        <select name=${setting.id} value=${chosen[setting.id] ?? ""} onChange=${(/** @type {any} */ event) => setChosen({ ...chosen, [setting.id]: event.target.value || undefined })}>
          <option value="">The agent's default</option>
          ${setting.choices.map(({ group, choices }) => group
            ? html`<optgroup label=${group}>${choices.map((choice) => html`<option value=${choice.value}>${choice.name}</option>`)}</optgroup>`
            : choices.map((choice) => html`<option value=${choice.value}>${choice.name}</option>`))}
        </select></label>`)}
      ${isAsking && html`<p class="muted hint">Asking the agent for its models and modes…</p>`}
      ${state.error && html`<p class="problem" role="alert">${state.error}</p>`}
      <footer><button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="primary" disabled=${state.isBusy || !isConnected}>${state.isBusy ? "Starting…" : "Start session"}</button></footer>
    </form>
  <//>`;
}

/** @param {import("../types.js").Me["agent"]|undefined} info */
function describeAgent(info) {
  if (!info) return "The agent of this server";
  return `${info.title ?? info.name}${info.version ? ` ${info.version}` : ""}`;
}
