// What a person chose in this browser: colours, diff layout, and the last settings of new sessions.

import { computed, effect, signal } from "./lib.js";

/** @template T @param {string} name @param {T} initial @param {(value: any) => boolean} isValid @returns {import("./types.js").Signal<T>} */
function stored(name, initial, isValid) {
  const key = `bowline.${name}`;
  let value = initial;
  try {
    const found = JSON.parse(localStorage.getItem(key) ?? "null");
    if (isValid(found)) value = found;
  } catch {
    // A value that is not ours is the same as none.
  }
  const result = signal(value);
  effect(() => {
    const text = JSON.stringify(result.value);
    try {
      localStorage.setItem(key, text);
    } catch {
      // Without storage, the choice holds until the page is closed.
    }
  });
  return result;
}

const isBoolean = (/** @type {any} */ value) => typeof value === "boolean";

/** The colours: those of the system unless chosen. */
export const theme = stored("theme", /** @type {"system"|"light"|"dark"} */ ("system"), (value) => ["system", "light", "dark"].includes(value));

/** How diffs are laid out; `auto` is by width. */
export const diffLayout = stored("diffLayout", /** @type {"auto"|"unified"|"split"} */ ("auto"), (value) => ["auto", "unified", "split"].includes(value));

/** Whether diffs leave out changes of white space. */
export const ignoreWhitespace = stored("ignoreWhitespace", false, isBoolean);

/** Whether to notify when a session waits. */
export const wantsNotifications = stored("notifications", false, isBoolean);

/** The settings that each agent of this server offered last, for the form of a new session. The usual agent has no name. */
const knownSettings = stored("settings", /** @type {Record<string, import("./types.js").Setting[]>} */ ({}), (value) => typeof value === "object" && value !== null && Object.values(value).every(Array.isArray) && !Array.isArray(value));

/** Returns the settings that an agent offered last. @param {string} agent */
export function settingsOf(agent) {
  return Object.hasOwn(knownSettings.value, agent) ? knownSettings.value[agent] ?? [] : [];
}

/** @param {string} agent @param {import("./types.js").Setting[]} settings */
export function rememberSettings(agent, settings) {
  knownSettings.value = { ...knownSettings.value, [agent]: settings };
}

/** Applies the colours to the page. */
export function startTheme() {
  effect(() => {
    if (theme.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
  });
}

/** Whether the system's colours are dark. */
const isSystemDark = signal(false);
if (typeof window !== "undefined") {
  const query = matchMedia("(prefers-color-scheme: dark)");
  isSystemDark.value = query.matches;
  query.addEventListener("change", () => (isSystemDark.value = query.matches));
}

/** Whether the colours are dark. */
export const isDark = computed(() => (theme.value === "system" ? isSystemDark.value : theme.value === "dark"));

/** Switches to the colours that are not shown now. If those are the system's, the page follows the system again. */
export function toggleTheme() {
  const wanted = !isDark.value;
  theme.value = wanted === isSystemDark.value ? "system" : wanted ? "dark" : "light";
}
