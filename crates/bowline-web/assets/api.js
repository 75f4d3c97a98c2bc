// The server's JSON API.

/** @typedef {import("./types.js").Json} Json */

/** An answer that is not a success, with the server's text for people. */
export class ApiError extends Error {
  /** @param {number} status @param {string} text */
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** @param {Response} response @returns {Promise<any>} */
async function read(response) {
  if (response.status === 204) return null;
  const text = await response.text();
  /** @type {any} */
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // The status below says what went wrong.
  }
  // A proxy in front may answer with a page of its own.
  const plain = (response.headers.get("Content-Type") ?? "").startsWith("text/plain") ? text.trim().slice(0, 500) : "";
  if (!response.ok) throw new ApiError(response.status, body?.error || plain || `the server answered ${response.status}`);
  return body;
}

/** @param {string} path @param {Record<string, string|number|boolean|null|undefined>} [query] @returns {Promise<any>} */
export async function get(path, query = {}) {
  const entries = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(entries.map(([name, value]) => [name, String(value)])).toString();
  return read(await fetch(search ? `${path}?${search}` : path, { headers: { Accept: "application/json" } }));
}

/** @param {string} path @param {Json} body @returns {Promise<any>} */
export async function post(path, body) {
  return read(await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify(body),
  }));
}

/** @param {string} id @param {string} rest */
export function sessionPath(id, rest) {
  return `/api/sessions/${encodeURIComponent(id)}/${rest}`;
}
