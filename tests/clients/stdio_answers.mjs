// The official TypeScript SDK client, which starts its server itself and speaks to it over standard input and output.
//
// Usage: stdio_answers.mjs [--sdk v1|v2] [--env NAME=VALUE]... --calls JSON -- COMMAND [ARGUMENT]...
// Lists the tools, makes the calls of a JSON array of {"name": ..., "arguments": ...} one after the other, closes, and
// prints one JSON object as its last act:
// {"tools": [NAME, ...], "answers": [{"is_error": false, "structured": {...}}, ...], "ended": [STATUS, ...]}
// `ended` holds the exit status of the process that was started, or the name of the signal that ended it.
// An answer that the SDK refuses ends the script with its exception.

import { once } from "node:events";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";

// How long one request may take before it is an error.
const LIMIT = { timeout: 60_000 };

const { values: options, positionals } = parseArgs({
  options: {
    sdk: { type: "string", default: "v2" },
    env: { type: "string", multiple: true, default: [] },
    calls: { type: "string" },
  },
  allowPositionals: true,
});
const { Client, StdioClientTransport } = loadSdk(options.sdk);

/** The packages lie under .tools, not beside this file. */
function loadSdk(version) {
  const require = createRequire(new URL("../../.tools/package.json", import.meta.url));
  if (version === "v2") {
    return {
      ...require("@modelcontextprotocol/client"),
      ...require("@modelcontextprotocol/client/stdio"),
    };
  }
  return {
    ...require("@modelcontextprotocol/sdk/client/index.js"),
    ...require("@modelcontextprotocol/sdk/client/stdio.js"),
  };
}

const [command, ...args] = positionals;
const transport = new StdioClientTransport({
  command,
  args,
  env: Object.fromEntries(options.env.map((variable) => variable.split(/=(.*)/s).slice(0, 2))),
});
const client = new Client({ name: "stdio-answers", version: "1.0.0" }, { capabilities: {} });
await client.connect(transport, LIMIT);
// The SDK says nothing of how its process ended.
const exited = once(transport._process, "exit");
const { tools } = await client.listTools({}, LIMIT);
const answers = [];
for (const call of JSON.parse(options.calls)) {
  const result = options.sdk === "v2"
    ? await client.callTool(call, LIMIT)
    : await client.callTool(call, undefined, LIMIT);
  answers.push({ is_error: result.isError ?? false, structured: result.structuredContent });
}
await client.close();
const [code, signal] = await exited;
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), answers, ended: [signal ?? code] }));
