// A form that an agent asks to fill in: its fields, and whether what was filled in can be sent. Pure.

/** @typedef {import("./types.js").Json} Json */
/** @typedef {{name: string, title: string, description: string, required: boolean, type: "text"|"number"|"boolean"|"select"|"multiple", isInteger: boolean, format: string, choices: {value: string, name: string}[], initial: any, schema: Json}} Field */

/** The most fields and choices that are shown. */
const MAX_FIELDS = 100;

/** Returns the fields of a form; `null` if the page cannot show one of them. @param {Json} schema @returns {Field[]|null} */
export function toFields(schema) {
  const properties = Object.entries(schema?.properties ?? {});
  const required = new Set(Array.isArray(schema?.required) ? schema.required : []);
  if (properties.length > MAX_FIELDS) return null;
  const fields = properties.map(([name, property]) => toField(name, property ?? {}, required.has(name)));
  return fields.every((field) => field !== null) ? /** @type {Field[]} */ (fields) : null;
}

/** @param {string} name @param {Json} schema @param {boolean} required @returns {Field|null} */
function toField(name, schema, required) {
  const base = {
    name, required, schema, title: String(schema.title ?? name), description: String(schema.description ?? ""),
    isInteger: schema.type === "integer", format: String(schema.format ?? ""), initial: schema.default,
  };
  switch (schema.type) {
    case "string": {
      const choices = toChoices(schema);
      return choices.length > 0 ? { ...base, type: "select", choices } : { ...base, type: "text", choices };
    }
    case "number":
    case "integer":
      return { ...base, type: "number", choices: [] };
    case "boolean":
      return { ...base, type: "boolean", choices: [] };
    case "array": {
      const choices = toChoices(schema.items ?? {});
      return choices.length > 0 ? { ...base, type: "multiple", choices } : null;
    }
    default:
      return null;
  }
}

/** @param {Json} schema */
function toChoices(schema) {
  const titled = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(titled)) return titled.map((choice) => ({ value: String(choice.const), name: String(choice.title ?? choice.const) }));
  if (Array.isArray(schema.enum)) return schema.enum.map((value, index) => ({ value: String(value), name: String(schema.enumNames?.[index] ?? value) }));
  return [];
}

/** Returns the values that a form begins with. @param {Field[]} fields @returns {Json} */
export function initialValues(fields) {
  return Object.fromEntries(fields.map((field) => [field.name, field.initial ?? EMPTY[field.type]]));
}

/** @type {Record<string, any>} */
const EMPTY = { text: "", number: "", boolean: false, select: "", multiple: [] };

/** Returns the content to send, or what is wrong with each field. @param {Field[]} fields @param {Json} values */
export function toContent(fields, values) {
  /** @type {Json} */
  const content = {};
  /** @type {Record<string, string>} */
  const errors = {};
  for (const field of fields) {
    const value = values[field.name];
    const isEmpty = value === "" || value === undefined || (Array.isArray(value) && value.length === 0);
    if (isEmpty) {
      if (field.required) errors[field.name] = "This is needed.";
      continue;
    }
    const error = check(field, value);
    if (error) errors[field.name] = error;
    else content[field.name] = field.type === "number" ? Number(value) : value;
  }
  return { content, errors };
}

/** @param {Field} field @param {any} value @returns {string} */
function check({ type, isInteger, schema, format, choices }, value) {
  if (type === "number") {
    const number = Number(value);
    if (!Number.isFinite(number)) return "This is not a number.";
    if (isInteger && !Number.isInteger(number)) return "This is not a whole number.";
    if (Number.isFinite(schema.minimum) && number < schema.minimum) return `The least is ${schema.minimum}.`;
    if (Number.isFinite(schema.maximum) && number > schema.maximum) return `The most is ${schema.maximum}.`;
  }
  if (type === "text") {
    const length = [...String(value)].length;
    if (Number.isFinite(schema.minLength) && length < schema.minLength) return `At least ${schema.minLength} characters are needed.`;
    if (Number.isFinite(schema.maxLength) && length > schema.maxLength) return `At most ${schema.maxLength} characters fit.`;
    if (format === "email" && !/^[^\s@]+@[^\s@]+$/.test(value)) return "This is not an email address.";
    if (format === "uri" && !URL.canParse(value)) return "This is not an address such as https://example.com.";
    if (format === "date" && !/^\d{4}-\d{2}-\d{2}$/.test(value)) return "This is not a date such as 2026-01-31.";
  }
  if (type === "select" && !choices.some((choice) => choice.value === value)) return "Choose one.";
  if (type === "multiple") {
    if (Number.isFinite(schema.minItems) && value.length < schema.minItems) return `Choose at least ${schema.minItems}.`;
    if (Number.isFinite(schema.maxItems) && value.length > schema.maxItems) return `Choose at most ${schema.maxItems}.`;
  }
  return "";
}
