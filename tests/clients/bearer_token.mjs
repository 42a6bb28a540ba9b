// Preloaded into a Node program that has no option for a token: every request that it makes gets the one in
// MOORING_TEST_TOKEN, whether it is made by fetch or by undici.

import { createRequire } from "node:module";

// The packages lie under .tools, not beside this file.
const require = createRequire(new URL("../../.tools/package.json", import.meta.url));
const { Agent, setGlobalDispatcher } = require("undici");

const authorization = `Bearer ${process.env.MOORING_TEST_TOKEN}`;

/** The headers with the token; undici has them as a flat list or as an object. */
function authorized(headers) {
  return Array.isArray(headers)
    ? [...headers, "authorization", authorization]
    : { ...headers, authorization };
}

const withToken = (dispatch) => (options, handler) =>
  dispatch({ ...options, headers: authorized(options.headers) }, handler);
setGlobalDispatcher(new Agent().compose(withToken));
