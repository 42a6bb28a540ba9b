// The official TypeScript SDK client, used as its documentation shows, that keeps calling and tells what its user sees.
//
// Usage: keep_calling.mjs --sdk v1|v2 [--delay-ms T]
// Its input and output are those of keep_calling.py.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

// How often a client fails before it is taken for broken, and the pause after each failure.
const FAILURES_MAX = 20;
const PAUSE_MS = 100;

const MARK = "mooring/rebound";

const { values: options } = parseArgs({
  options: {
    sdk: { type: "string", default: "v2" },
    "delay-ms": { type: "string", default: "300" },
  },
});
const PACKAGE = { v1: "@modelcontextprotocol/sdk", v2: "@modelcontextprotocol/client" }[options.sdk];
const { Client, StreamableHTTPClientTransport } = loadSdk(options.sdk);

/** The packages lie under .tools, not beside this file. */
function loadSdk(version) {
  const require = createRequire(new URL("../../.tools/package.json", import.meta.url));
  if (version === "v2") return require(PACKAGE);
  return {
    ...require(`${PACKAGE}/client/index.js`),
    ...require(`${PACKAGE}/client/streamableHttp.js`),
  };
}

function say(session, began, what) {
  const seconds = Math.round(performance.now() - began) / 1000;
  console.log(JSON.stringify({ session, seconds, ...what }));
}

/** Calls until the client has failed a few times in a row. */
async function callUntilBroken(name, client, isOpen) {
  let failures = 0;
  while (failures < FAILURES_MAX && isOpen()) {
    const began = performance.now();
    try {
      const result = await client.callTool({
        name: "slow_increment",
        arguments: { delay_ms: Number(options["delay-ms"]) },
      });
      if (!isOpen()) return;
      const count = result.structuredContent?.count;
      if (count === undefined) throw new Error(`a result without a count: ${JSON.stringify(result)}`);
      say(name, began, { count, mark: result._meta?.[MARK] ?? null });
      failures = 0;
    } catch (error) {
      if (!isOpen()) return;
      say(name, began, { error: describe(error) });
      failures += 1;
      await sleep(PAUSE_MS);
    }
  }
}

function describe(error) {
  const cause = error.cause ? ` (${describe(error.cause)})` : "";
  return `${error.name}: ${error.message}${cause}`;
}

/** One session until it is closed, opened again where its client broke. */
async function keepCalling(name, url, isOpen) {
  while (isOpen()) {
    const client = new Client({ name: "keep-calling", version: "1.0.0" }, { capabilities: {} });
    try {
      await client.connect(new StreamableHTTPClientTransport(new URL(url)));
      await callUntilBroken(name, client, isOpen);
    } catch (error) {
      if (isOpen()) say(name, performance.now(), { error: describe(error) });
      await sleep(PAUSE_MS);
    }
    // Some clients wait for a server that is gone before they end.
    client.close().catch(() => {});
    if (isOpen()) say(name, performance.now(), { is_reopened: true });
  }
}

const packageFile = new URL(`../../.tools/node_modules/${PACKAGE}/package.json`, import.meta.url);
console.log(JSON.stringify({ version: JSON.parse(readFileSync(packageFile)).version }));
let generation = 0;
for await (const line of createInterface({ input: process.stdin })) {
  generation += 1;
  const own = generation;
  for (const [name, url] of Object.entries(JSON.parse(line))) {
    keepCalling(name, url, () => own === generation);
  }
}
process.exit(0);
