// The vendored libraries, in one place.

import { h } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export { Component, Fragment, createPortal, h, render } from "./vendor/preact.js";
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-hooks.js";
export { batch, computed, effect, signal, useComputed, useSignal, useSignalEffect } from "./vendor/signals.js";

/** Makes nodes from a template. Values become text or attributes, never markup. */
export const html = htm.bind(/** @type {any} */ (h));
