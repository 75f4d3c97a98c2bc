// A form or an address that an agent asks the user for. Nothing is sent or opened by itself.

import { html, useState } from "../lib.js";
import { answer } from "../client.js";
import { initialValues, toContent, toFields } from "../elicitation.js";
import { visible } from "../format.js";
import { Icon } from "../icons.js";

/** @typedef {import("../elicitation.js").Field} Field */

/** @param {{question: import("../types.js").Question, canAnswer: boolean, cancel: any}} props */
export function Elicitation({ question, canAnswer, cancel }) {
  const { params } = question;
  return html`<section class="approval elicitation" role="group" aria-label="Question of the agent" aria-live="polite">
    <header><span class="approval-mark"><${Icon} name="help" /></span><h2><bdi>${visible(String(params.message ?? "The agent has a question"))}</bdi></h2>${cancel}</header>
    ${params.mode === "url" ? html`<${Address} question=${question} canAnswer=${canAnswer} />` : html`<${Form} key=${question.id} question=${question} canAnswer=${canAnswer} />`}
  </section>`;
}

/** @param {{question: import("../types.js").Question, canAnswer: boolean}} props */
function Address({ question, canAnswer }) {
  const url = String(question.params.url ?? "");
  const isWeb = /^https?:\/\//i.test(url);
  return html`<div class="approval-body"><p class="muted">The agent asks you to visit this address. Check all of it before you open it.</p><p class="address"><bdi>${visible(url)}</bdi></p></div>
    <footer class="answers">
      ${isWeb && html`<a class="answer allow primary button" href=${url} target="_blank" rel="noopener noreferrer" onClick=${() => canAnswer && answer(question, { action: "accept" })}>Open</a>`}
      <button type="button" class="answer reject" disabled=${!canAnswer} onClick=${() => answer(question, { action: "decline" })}>Decline</button>
      <button type="button" class="answer reject" disabled=${!canAnswer} onClick=${() => answer(question, { action: "cancel" })}>Cancel</button>
    </footer>`;
}

/** @param {{question: import("../types.js").Question, canAnswer: boolean}} props */
function Form({ question, canAnswer }) {
  const fields = toFields(question.params.requestedSchema ?? {});
  const [values, setValues] = useState(() => initialValues(fields ?? []));
  const [errors, setErrors] = useState(/** @type {Record<string, string>} */ ({}));
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    if (!fields) return;
    const result = toContent(fields, values);
    setErrors(result.errors);
    const [wrong] = Object.keys(result.errors);
    if (wrong !== undefined) event.target.elements[wrong]?.focus?.();
    else answer(question, { action: "accept", content: result.content });
  };
  const set = (/** @type {string} */ name, /** @type {any} */ value) => setValues({ ...values, [name]: value });
  return html`<form class="form" onSubmit=${submit} novalidate>
    <div class="approval-body">
      ${fields === null && html`<p class="problem">This page cannot show the form that the agent asks for.</p>`}
      ${fields?.map((field) => html`<${FieldInput} key=${field.name} field=${field} value=${values[field.name]} error=${errors[field.name] ?? ""} onChange=${(/** @type {any} */ value) => set(field.name, value)} />`)}
    </div>
    <footer class="answers">
      <button type="submit" class="answer allow primary" disabled=${!canAnswer || fields === null}>Send</button>
      <button type="button" class="answer reject" disabled=${!canAnswer} onClick=${() => answer(question, { action: "decline" })}>Decline</button>
      <button type="button" class="answer reject" disabled=${!canAnswer} onClick=${() => answer(question, { action: "cancel" })}>Cancel</button>
    </footer>
  </form>`;
}

/** @type {Record<string, string>} */
const INPUT_TYPES = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

/** @param {{field: Field, value: any, error: string, onChange: (value: any) => void}} props */
function FieldInput({ field, value, error, onChange }) {
  const id = `field-${field.name}`;
  const help = `${id}-help`;
  const shared = { id, name: field.name, "aria-describedby": help, "aria-invalid": error ? "true" : undefined, "aria-required": field.required };
  const onInput = (/** @type {any} */ event) => onChange(event.target.value);
  const label = html`${visible(field.title)}${field.required ? "" : html` <span class="muted">optional</span>`}`;
  const helpText = html`<span id=${help} class=${error ? "problem" : "muted"}>${error || visible(field.description)}</span>`;
  if (field.type === "boolean") {
    return html`<div class="field"><label class="check"><input type="checkbox" ...${shared} checked=${value === true} onChange=${(/** @type {any} */ event) => onChange(event.target.checked)} /> ${visible(field.title)}</label>${helpText}</div>`;
  }
  if (field.type === "multiple") {
    const toggle = (/** @type {string} */ choice) => onChange(value.includes(choice) ? value.filter((/** @type {string} */ other) => other !== choice) : [...value, choice]);
    return html`<fieldset class="field" aria-describedby=${help}><legend>${label}</legend>
      ${field.choices.map((choice) => html`<label class="check"><input type="checkbox" name=${field.name} checked=${value.includes(choice.value)} onChange=${() => toggle(choice.value)} /> ${visible(choice.name)}</label>`)}${helpText}</fieldset>`;
  }
  return html`<div class="field"><label for=${id}>${label}</label>
    ${field.type === "select"
      ? html`<select ...${shared} value=${value} onChange=${onInput}><option value="">Choose…</option>${field.choices.map((choice) => html`<option value=${choice.value}>${visible(choice.name)}</option>`)}</select>`
      : html`<input ...${shared} type=${field.type === "number" ? "text" : INPUT_TYPES[field.format] ?? "text"} inputmode=${field.type === "number" ? "decimal" : undefined} value=${value} onInput=${onInput} autocomplete="off" />`}
    ${helpText}</div>`;
}
