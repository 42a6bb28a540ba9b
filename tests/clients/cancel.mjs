// The official TypeScript SDK client, which cancels calls and lets them time out, against a server that runs on and never
// answers a cancelled call.
//
// Usage: cancel.mjs --url URL [--url URL]... [--sdk v1|v2] [--sse] [--prefix PREFIX]
// Each HTTP request goes to the next URL's origin; with --sse, over HTTP+SSE of 2024-11-05. PREFIX stands before the names
// of the tools. Prints one JSON object as its last act: {"ends": ["aborted", ...], "answers": ["Echo: ...", ...]}, in turn
// how a call of trigger-long-running-operation ended, and what the next call, of echo, answered.

import { createRequire } from "node:module";
import { parseArgs } from "node:util";

// How long the call after a cancelled one may take before it is an error.
const LIMIT_MS = 30_000;

const { values: options } = parseArgs({
  options: {
    url: { type: "string", multiple: true },
    sdk: { type: "string", default: "v2" },
    sse: { type: "boolean", default: false },
    prefix: { type: "string", default: "" },
  },
});
const { Client, SSEClientTransport, StreamableHTTPClientTransport } = loadSdk(options.sdk);

/** The packages lie under .tools, not beside this file. */
function loadSdk(version) {
  const require = createRequire(new URL("../../.tools/package.json", import.meta.url));
  if (version === "v2") return require("@modelcontextprotocol/client");
  return {
    ...require("@modelcontextprotocol/sdk/client/index.js"),
    ...require("@modelcontextprotocol/sdk/client/sse.js"),
    ...require("@modelcontextprotocol/sdk/client/streamableHttp.js"),
  };
}

let turn = 0;
const nextGateway = (input, init) => {
  const url = new URL(input);
  url.host = new URL(options.url[turn % options.url.length]).host;
  turn += 1;
  return fetch(url, init);
};
const Transport = options.sse ? SSEClientTransport : StreamableHTTPClientTransport;
const transport = new Transport(new URL(options.url[0]), {
  fetch: nextGateway,
  eventSourceInit: { fetch: nextGateway },
});
const client = new Client({ name: "cancel", version: "1.0.0" }, { capabilities: {} });
await client.connect(transport, { timeout: LIMIT_MS });

const call = (name, args, limits) => {
  const params = { name: options.prefix + name, arguments: args };
  return options.sdk === "v2" ? client.callTool(params, limits) : client.callTool(params, undefined, limits);
};

/** Calls what runs for ever, and waits until the client gives up. */
async function giveUp(limits) {
  const runs = call("trigger-long-running-operation", { duration: 3600, steps: 1 }, limits);
  return runs.then(() => "answered", (error) => (limits.signal ? "aborted" : error.message));
}

const ends = [];
const answers = [];
for (const number of [1, 2]) {
  const aborting = new AbortController();
  setTimeout(() => aborting.abort("not wanted"), 300);
  ends.push(await giveUp({ signal: aborting.signal, timeout: LIMIT_MS }));
  answers.push((await call("echo", { message: `${number}a` }, { timeout: LIMIT_MS })).content[0].text);
  ends.push(await giveUp({ timeout: 300 }));
  answers.push((await call("echo", { message: `${number}b` }, { timeout: LIMIT_MS })).content[0].text);
}
console.log(JSON.stringify({ ends, answers }));
// What was cancelled keeps a stream open.
process.exit(0);
