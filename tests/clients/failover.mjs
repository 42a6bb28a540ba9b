// The official TypeScript SDK client, whose gateway dies during a call.
//
// Usage: failover.mjs --url URL [--url URL]... --begun FILE [--sdk v1|v2]
// Each HTTP request goes to the first URL that accepts connections. Calls `increment`, `slow`, which makes FILE once it
// runs, and `increment` again, and prints one JSON object as its last act: {"counts": [1, 2], "ended": "how slow ended"}.

import { createRequire } from "node:module";
import { parseArgs } from "node:util";

// How long one request may take before it is an error.
const LIMIT = { timeout: 40_000 };

const { values: options } = parseArgs({
  options: {
    url: { type: "string", multiple: true },
    begun: { type: "string" },
    sdk: { type: "string", default: "v2" },
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

/** Sends a request to the first of the endpoints' origins that accepts connections. */
async function firstThatAccepts(input, init) {
  let failure;
  for (const endpoint of options.url) {
    const url = new URL(input);
    url.host = new URL(endpoint).host;
    try {
      return await fetch(url, init);
    } catch (error) {
      if (error.cause?.code !== "ECONNREFUSED") throw error;
      failure = error;
    }
  }
  throw failure;
}

const transport = new StreamableHTTPClientTransport(new URL(options.url[0]), { fetch: firstThatAccepts });
const client = new Client({ name: "failover", version: "1.0.0" }, { capabilities: {} });
await client.connect(transport, LIMIT);

const call = (name, args) => {
  const params = { name, arguments: args };
  return options.sdk === "v2" ? client.callTool(params, LIMIT) : client.callTool(params, undefined, LIMIT);
};
const increment = async () => (await call("increment", {})).structuredContent.count;

const counts = [await increment()];
const ended = await call("slow", { begun: options.begun }).then(() => "with a result", (error) => error.message);
counts.push(await increment());
console.log(JSON.stringify({ counts, ended }));
process.exit(0);
