// The official TypeScript SDK client, which knows only the URL of a server, and its own secret at an identity provider:
// it finds the provider by the server's challenge and metadata, gets a token for the server, and calls a tool.
//
// Usage: authorized.mjs --url URL --user USER --secret SECRET --tool TOOL
// Prints one JSON object as its last act: {"text": "..."}, the tool's answer.

import { createRequire } from "node:module";
import { parseArgs } from "node:util";

// The packages lie under .tools, not beside this file.
const require = createRequire(new URL("../../.tools/package.json", import.meta.url));
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { ClientCredentialsProvider } = require("@modelcontextprotocol/sdk/client/auth-extensions.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");

const { values: options } = parseArgs({
  options: {
    url: { type: "string" },
    user: { type: "string" },
    secret: { type: "string" },
    tool: { type: "string" },
  },
});
const authProvider = new ClientCredentialsProvider({ clientId: options.user, clientSecret: options.secret });
const client = new Client({ name: "authorized", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(options.url), { authProvider }));
const { content } = await client.callTool({ name: options.tool, arguments: {} });
console.log(JSON.stringify({ text: content[0].text }));
await client.close();
