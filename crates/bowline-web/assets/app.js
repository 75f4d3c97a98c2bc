// The page: login, then the view that the address names.

import { html, render, signal, useEffect, useState } from "./lib.js";
import { get, post } from "./api.js";
import { connectionError, connectionState, me, reconnect, startClient } from "./client.js";
import { Icon, Mark } from "./icons.js";
import { Keyboard, showHelp, startKeyboard } from "./keyboard.js";
import { startNotifications, toggleNotifications } from "./notifications.js";
import { sessions, startOverview } from "./overview-store.js";
import { isDark, startTheme, toggleTheme, wantsNotifications } from "./preferences.js";
import { route, startRouter } from "./router.js";
import { Boundary, Confirmation, keepDroppedFiles, Problem, Toasts } from "./ui.js";
import { Audit } from "./views/audit.js";
import { Changes } from "./views/changes.js";
import { Conversation } from "./views/conversation.js";
import { NewSession } from "./views/new-session.js";
import { Overview, Sidebar } from "./views/overview.js";
import { Status } from "./views/status.js";
import { Wire } from "./views/wire.js";

/** What is shown before there is a login. */
const login = signal(/** @type {"checking"|"needed"|"done"} */ ("checking"));
const loginError = signal("");

/** Exchanges the one-time link for a cookie, or uses the cookie. */
async function start() {
  const ticket = /^#ticket=([\w-]+)/.exec(location.hash)?.[1];
  if (ticket) {
    history.replaceState(null, "", location.pathname);
    await post("/login", { ticket }).catch((error) => {
      loginError.value = error.status === 401 ? "This link was used before, or has expired. For another one, press Enter in the terminal." : error.message;
    });
  }
  await enter();
}

async function enter() {
  try {
    me.value = await get("/api/me");
  } catch (error) {
    const status = /** @type {any} */ (error).status;
    if (status !== 401) loginError.value = error instanceof Error ? error.message : String(error);
    login.value = "needed";
    return;
  }
  if (login.value === "done") return;
  login.value = "done";
  loginError.value = "";
  startClient();
  startOverview(() => location.reload());
  startNotifications();
  startKeyboard();
}

function Login() {
  const [token, setToken] = useState("");
  const [isBusy, setBusy] = useState(false);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    loginError.value = "";
    await post("/login", { token: token.trim() }).then(enter, (error) => {
      loginError.value = error.status === 401 ? "This token is wrong, was removed or has expired." : error.message;
    });
    setBusy(false);
  };
  return html`<main class="login" id="main"><div class="login-card">
    <h1><${Mark} /> Bowline</h1>
    <p>Open the link that <code>bowline web</code> prints in your terminal. A link works once.</p>
    <p class="muted">For a server of your own or your team's, enter a token from <code>bowline serve token add</code>.</p>
    <form class="form" onSubmit=${submit}>
      <label class="field"><span>Token</span><input type="password" name="token" autocomplete="current-password" value=${token} onInput=${(/** @type {any} */ event) => setToken(event.target.value)} /></label>
      <${Problem} text=${loginError.value} />
      <button type="submit" class="primary" disabled=${isBusy || !token.trim()}>Sign in</button>
    </form>
  </div></main>`;
}

function Bar() {
  const { view } = route.value;
  const link = (/** @type {string} */ name, /** @type {string} */ text, /** @type {string} */ href) => html`<a href=${href} aria-current=${view === name ? "page" : undefined}>${text}</a>`;
  return html`<header class="bar">
    <a class="brand" href="#/" aria-label="Bowline, all sessions"><${Mark} /><span>Bowline</span></a>
    <nav aria-label="Pages">${link("overview", "Sessions", "#/")}${link("audit", "Audit", "#/audit")}${me.value?.role === "admin" && link("status", "Status", "#/status")}</nav>
    <span class="spacer"></span>
    <${ConnectionNote} />
    <button type="button" class="quiet icon-button" aria-label="Notifications" aria-pressed=${wantsNotifications.value} title="Notify me when a session waits" onClick=${() => void toggleNotifications()}><${Icon} name="bell" /></button>
    <button type="button" class="quiet icon-button" aria-label="Light or dark" title="Light or dark (t)" onClick=${toggleTheme}><${Icon} name=${isDark.value ? "sun" : "moon"} /></button>
    <button type="button" class="quiet icon-button" aria-label="Keys" title="Keys (?)" onClick=${showHelp}><${Icon} name="help" /></button>
  </header>`;
}

function ConnectionNote() {
  if (connectionState.value === "open") return html`<span role="status" class="hidden">Connected</span>`;
  if (connectionState.value === "connecting") return html`<span role="status" class="connection">Connecting…</span>`;
  return html`<span role="status" class="connection lost"><span>${connectionError.value ? "No agent" : "Connection lost"}</span><button type="button" class="small" onClick=${reconnect}>Retry</button></span>`;
}

function View() {
  const { view, id } = route.value;
  switch (view) {
    case "session":
      return html`<${Conversation} key=${id} id=${id} />`;
    case "changes":
      return html`<${Changes} key=${id} id=${id} />`;
    case "wire":
      return html`<${Wire} key=${id} id=${id} />`;
    case "audit":
      return html`<${Audit} />`;
    case "status":
      return html`<${Status} />`;
    default:
      return html`<${Overview} />`;
  }
}

function App() {
  const isReady = login.value === "done" && sessions.value !== null;
  useEffect(() => {
    if (isReady) performance.mark("interactive");
  }, [isReady]);
  if (login.value === "checking") return null;
  if (login.value === "needed") return html`<${Login} />`;
  const { id } = route.value;
  return html`<div class="app">
    <a class="skip" href="#main" onClick=${(/** @type {Event} */ event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to content</a>
    <${Bar} />
    ${connectionError.value && html`<div class="banner"><${Problem} text=${`The agent of this server cannot be used: ${connectionError.value}`} /></div>`}
    <div class=${id ? "body with-sidebar" : "body"}>${id && html`<${Sidebar} current=${id} />`}<${Boundary} of=${route.value}><${View} /><//></div>
    <${NewSession} /><${Confirmation} /><${Keyboard} /><${Toasts} />
  </div>`;
}

startTheme();
startRouter();
keepDroppedFiles();
const root = document.getElementById("app");
if (root) render(html`<${App} />`, root);
void start();
