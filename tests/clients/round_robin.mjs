// The official TypeScript SDK client, each of whose HTTP requests goes to the next gateway in turn.
//
// Usage: round_robin.mjs --url URL [--url URL]... [--sdk v1|v2] [--sessions M] [--calls N] [--tool NAME]
//                        [--pause-ms T] [--header NAME=VALUE]... [--broken resend|tell]
// Opens M sessions at once, calls the tool N times in each, and prints one JSON object as its last act:
// {"sessions": {"0": [1, 2, ...]}, "retries": {"refused": 0, "broken": 0, "unknown": 0},
//  "errors": {"0": "..."}}
//
// It behaves as a client behind a load balancer: a request whose connection is refused, or breaks before
// the whole reply is there, goes to the next gateway. A `broken` one may have run, so it can leave a gap
// in a session's counts; a `refused` one cannot. The SDK itself knows of none of this.
// With `--broken tell` a broken call is not sent again as it is, but its caller is told that it may have
// run. A call of which nobody can tell is `unknown`, and is made anew, with a new id: fastmcp loses the
// answer to a request that has the id of one that still runs.

import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

// How long one request may take before it is an error of its session.
const REQUEST_WITHIN_MS = 30_000;
const LIMIT = { timeout: REQUEST_WITHIN_MS };
// What the gateway, and `--broken tell`, say where nobody can tell whether a call ran.
const MAY_HAVE_RUN = "may have run";

const { values: options } = parseArgs({
  options: {
    url: { type: "string", multiple: true },
    sdk: { type: "string", default: "v2" },
    sessions: { type: "string", default: "1" },
    calls: { type: "string", default: "10" },
    tool: { type: "string", default: "increment" },
    "pause-ms": { type: "string", default: "0" },
    header: { type: "string", multiple: true, default: [] },
    broken: { type: "string", default: "resend" },
  },
});
const report = { sessions: {}, retries: { refused: 0, broken: 0, unknown: 0 }, errors: {} };
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

/** A fetch that sends each request to the next of the endpoints' origins. */
function roundRobin(offset) {
  let turn = offset;
  return async (input, init) => {
    const method = init?.method ?? "GET";
    const first = turn;
    turn += 1;
    let failure;
    for (let attempt = 0; attempt < options.url.length; attempt += 1) {
      const endpoint = new URL(options.url[(first + attempt) % options.url.length]);
      const url = new URL(input);
      url.host = endpoint.host;
      try {
        const response = await fetch(url, init);
        return method === "POST" ? await whole(response) : response;
      } catch (error) {
        if (init?.signal?.aborted) throw error;
        failure = error;
        // The SDK comes back for a lost GET stream by itself; only calls and answers are counted.
        const refused = error.cause?.code === "ECONNREFUSED";
        if (method === "POST") report.retries[refused ? "refused" : "broken"] += 1;
        if (!refused && options.broken === "tell" && isCall(init)) return told(init);
      }
    }
    throw failure;
  };
}

/** Whether the request calls a tool. */
function isCall(init) {
  return init?.method === "POST" && JSON.parse(init.body).method === "tools/call";
}

/** The reply to a call whose connection broke. */
function told(init) {
  const error = { code: -32000, message: `the connection broke; the call ${MAY_HAVE_RUN}` };
  return Response.json({ jsonrpc: "2.0", id: JSON.parse(init.body).id, error });
}

/** Only a reply that is there as a whole is passed on, as a buffering proxy does. */
async function whole(response) {
  const body = await response.arrayBuffer();
  const empty = [202, 204].includes(response.status);
  return new Response(empty ? null : body, { status: response.status, headers: response.headers });
}

/** A number where the tool gives one, else its text; an error that a tool reports is an error. */
function valueOf(result) {
  const text = result.content?.[0]?.text ?? "";
  if (result.isError) throw new Error(text);
  return result.structuredContent?.count ?? text;
}

/** One call; made once more where nobody can tell whether it ran. */
async function callTool(client) {
  const request = { name: options.tool, arguments: {} };
  const call = () => options.sdk === "v2"
    ? client.callTool(request, LIMIT)
    : client.callTool(request, undefined, LIMIT);
  try {
    return await call();
  } catch (error) {
    if (!String(error?.message).includes(MAY_HAVE_RUN)) throw error;
    report.retries.unknown += 1;
    return call();
  }
}

/** One session from initialize to DELETE. */
async function runSession(index) {
  const seen = (report.sessions[index] = []);
  const headers = Object.fromEntries(options.header.map((header) => header.split(/=(.*)/s).slice(0, 2)));
  const transport = new StreamableHTTPClientTransport(new URL(options.url[0]), {
    fetch: roundRobin(index),
    requestInit: { headers },
  });
  const client = new Client({ name: "round-robin", version: "1.0.0" }, { capabilities: {} });
  try {
    await client.connect(transport, LIMIT);
    for (let call = 0; call < Number(options.calls); call += 1) {
      seen.push(valueOf(await callTool(client)));
      await sleep(Number(options["pause-ms"]));
    }
    await transport.terminateSession();
  } catch (error) {
    report.errors[index] = String(error?.stack ?? error);
  } finally {
    await client.close();
  }
}

await Promise.all(Array.from({ length: Number(options.sessions) }, (_, index) => runSession(index)));
console.log(JSON.stringify(report));
