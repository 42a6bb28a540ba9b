// The official TypeScript SDK client, which holds what tools answer against their output schemas.
//
// Usage: answers.mjs --url URL [--url URL]... [--sdk v1|v2] [--header NAME=VALUE]... --calls JSON
// Each HTTP request goes to the next URL's origin. Lists the tools, makes the calls of a JSON array of
// {"name": ..., "arguments": ...} one after the other, and prints one JSON object as its last act:
// {"tools": [NAME, ...], "answers": [{"is_error": false, "structured": {...}, "text": "..."}, ...]}
// An answer that the SDK refuses ends the script with its exception.

import { createRequire } from "node:module";
import { parseArgs } from "node:util";

// How long one request may take before it is an error.
const LIMIT = { timeout: 60_000 };

const { values: options } = parseArgs({
  options: {
    url: { type: "string", multiple: true },
    sdk: { type: "string", default: "v2" },
    header: { type: "string", multiple: true, default: [] },
    calls: { type: "string" },
  },
});
const { Client, StreamableHTTPClientTransport } = loadSdk(options.sdk);

/** The packages lie under .tools, not beside this file. */
function loadSdk(version) {
  const require = createRequire(new URL("../../.tools/package.json", import.meta.url));
  if (version === "v2") return require("@modelcontextprotocol/client");
  return {
    ...require("@modelcontextprotocol/sdk/client/index.js"),
    ...require("@modelcontextprotocol/sdk/client/streamableHttp.js"),
  };
}

let turn = 0;
const transport = new StreamableHTTPClientTransport(new URL(options.url[0]), {
  fetch: (input, init) => {
    const url = new URL(input);
    url.host = new URL(options.url[turn % options.url.length]).host;
    turn += 1;
    return fetch(url, init);
  },
  requestInit: {
    headers: Object.fromEntries(options.header.map((header) => header.split(/=(.*)/s).slice(0, 2))),
  },
});
const client = new Client({ name: "answers", version: "1.0.0" }, { capabilities: {} });
await client.connect(transport, LIMIT);
const { tools } = await client.listTools({}, LIMIT);
const answers = [];
for (const call of JSON.parse(options.calls)) {
  const result = options.sdk === "v2"
    ? await client.callTool(call, LIMIT)
    : await client.callTool(call, undefined, LIMIT);
  answers.push({
    is_error: result.isError ?? false,
    structured: result.structuredContent,
    text: result.content[0].text,
  });
}
await client.close();
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), answers }));
