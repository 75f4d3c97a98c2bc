// The page's service worker: phones show notifications only from here. It handles no requests.

/** The worker's scope: the types of the page's modules know only windows. @type {any} */
const scope = self;

scope.addEventListener("install", () => scope.skipWaiting());
scope.addEventListener("activate", (/** @type {any} */ event) => event.waitUntil(scope.clients.claim()));
scope.addEventListener("notificationclick", (/** @type {any} */ event) => {
  event.notification.close();
  event.waitUntil(showSession(String(event.notification.data ?? "#/")));
});

/** Brings a session to the front, in a page that is open or in a new one. @param {string} hash */
async function showSession(hash) {
  const pages = await scope.clients.matchAll({ type: "window", includeUncontrolled: true });
  const page = pages.find((/** @type {any} */ { url }) => new URL(url).hash === hash) ?? pages[0];
  if (!page) {
    await scope.clients.openWindow(`/${hash}`);
    return;
  }
  page.postMessage({ hash });
  await page.focus();
}
