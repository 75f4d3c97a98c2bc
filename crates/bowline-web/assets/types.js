// Types shared by the modules: messages of the protocol as far as the page reads them, and answers of the API.

/** @template T @typedef {import("./vendor/signals.js").Signal<T>} Signal */

/** @typedef {Record<string, any>} Json */

/**
 * @typedef {object} ContentBlock
 * @property {string} type
 * @property {string} [text]
 * @property {string} [data]
 * @property {string} [mimeType]
 * @property {string} [uri]
 * @property {string} [name]
 * @property {{uri?: string, text?: string, mimeType?: string}} [resource]
 */

/**
 * @typedef {object} ToolContent
 * @property {string} type
 * @property {ContentBlock} [content]
 * @property {string} [path]
 * @property {string|null} [oldText]
 * @property {string|null} [newText]
 * @property {string} [terminalId]
 */

/**
 * @typedef {object} ToolCall
 * @property {string} toolCallId
 * @property {string} title
 * @property {string} kind
 * @property {string} status
 * @property {ToolContent[]} content
 * @property {{path: string, line?: number|null}[]} locations
 * @property {any} rawInput
 * @property {any} rawOutput
 */

/**
 * @typedef {object} TerminalOutput
 * @property {string} text
 * @property {number} dropped how many characters before `text` are gone
 * @property {{exitCode: number|null, signal: string|null}|null} exit
 */

/** @typedef {{type: "text", text: string}|{type: "image", mimeType: string, data: string}|{type: "link", uri: string, name: string}} MessagePart */

/**
 * @typedef {object} MessageItem
 * @property {"user"|"agent"|"thought"} kind
 * @property {string} key
 * @property {number} version
 * @property {string|null} messageId
 * @property {MessagePart[]} parts
 */
/** @typedef {{kind: "tool", key: string, version: number, call: ToolCall, terminals: Map<string, TerminalOutput>}} ToolItem */
/** @typedef {{kind: "note", key: string, version: number, level: "info"|"warning"|"error", text: string, detail: string}} NoteItem */
/** @typedef {MessageItem|ToolItem|NoteItem} Item */

/** @typedef {{content: string, priority: string, status: string}} PlanEntry */
/** @typedef {{used: number, size: number, cost?: {amount: number, currency: string}|null}} Usage */
/** @typedef {{value: string, name: string, description?: string|null}} Choice */
/** @typedef {{id: string, name: string, category: string, current: string|boolean, choices: {group: string, choices: Choice[]}[], source: "option"|"mode"|"model"}} Setting */

/** @typedef {{name: string, info?: {name?: string, title?: string|null, version?: string|null}|null, promptCapabilities?: Json|null}} SessionAgent */

/** @typedef {{id: string|number, method: string, params: Json, sessionId: string|null, at: number}} Question */

/** @typedef {{text: string, changed: boolean}} DiffPart */
/** @typedef {{kind: " "|"-"|"+", old: number|null, new: number|null, parts: DiffPart[], noNewline?: boolean}} DiffLine */
/** @typedef {{oldStart: number, newStart: number, lines: DiffLine[], id?: string|null, undone?: boolean}} Hunk */
/** @typedef {{path: string, added: number, removed: number, hunks: Hunk[], truncated?: boolean, omittedLines?: number}} FileDiff */

/** @typedef {string|{t: string, a?: Record<string, any>, c?: MarkdownNode[]}} MarkdownNode */
/** @typedef {{start: number, end: number, node: MarkdownNode}} MarkdownBlock */

/**
 * @typedef {object} SessionSummary
 * @property {string} id
 * @property {string} cwd
 * @property {string} workspace
 * @property {string|null} title
 * @property {string} principal
 * @property {string|null} agent its name; `null` for the server's usual agent
 * @property {"working"|"waiting"|"idle"|"failed"} state
 * @property {string|null} waitingFor
 * @property {string|null} failure why the last turn failed
 * @property {number} createdAt
 * @property {number} updatedAt
 * @property {boolean} archived
 * @property {number|null} changedFiles
 * @property {Usage|null} usage
 */

/** @typedef {{name: string, role: "admin"|"user"|"observer", version: string, roots: string[], agent: {name: string, title?: string|null, version?: string|null}|null, agents: string[], isLocal: boolean}} Me */

/** @typedef {{changeId: number, path: string, change: string, by: string, command?: string|null, undone: boolean, binary: boolean, pruned?: boolean, added: number, removed: number, hunks: Hunk[], at: number, truncated?: boolean, omittedLines?: number}} ChangedFile */
/** @typedef {{id: number, label: string|null, at: number, by: string, files: ChangedFile[]}} ChangedTurn */
/** @typedef {{path: string, reason: string, line?: number|null, ours?: string|null, theirs?: string|null, base?: string|null}} Conflict */

export {};
