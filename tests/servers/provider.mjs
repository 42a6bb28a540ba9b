// An identity provider: npm's `oidc-provider`, with keys that can be replaced.
//
// Usage: provider.mjs --port PORT
// The clients `ada` and `bob`, with the secret `secret`, get access tokens by client credentials, as JWTs for the resource
// that they name. One on this machine, such as a gateway, has the audience `urn:mooring`; tokens for
// https://brief.example/ are valid for 4 seconds. The client `gateway`, with the same secret, gets tokens for others too, in
// exchange for theirs (RFC 8693), but for https://refused.example/. With the client `page`, which has that secret too, people
// sign in by the authorization code flow: whoever names a user is that user.
//   POST /control/rotate   replaces the signing key; tokens of the one before stay as they are
//   POST /control/sign     {"header": {...}, "claims": {...}, "with": "key" | "public"}: a token of any content, signed
//                          with the current key, or with its public half as the secret of an HMAC
//   POST /control/prove    {"holder": "...", "token": "...", "header": {...}, "claims": {...}}: a proof of DPoP for the token,
//                          if there is one, signed with the key of this holder, which is made at first; header and claims
//                          replace its own
//   POST /control/redirects ["...", ...]: where `page` may lead people back to; replaces the signing key
//   GET /control/fetches   how often the key set was fetched, how many tokens, and how many of these by exchange

import crypto from "node:crypto";
import http from "node:http";
import { createRequire } from "node:module";
import { parseArgs } from "node:util";

const require = createRequire(new URL("../../.tools/package.json", import.meta.url));
const { default: Provider, errors } = await import(require.resolve("oidc-provider"));

const { values: options } = parseArgs({ options: { port: { type: "string" } } });
const issuer = `http://127.0.0.1:${options.port}`;
const groups = { ada: ["dev"], bob: ["ops"] };
const scopes = "read write";
const holders = new Map();
const exchange = "urn:ietf:params:oauth:grant-type:token-exchange";
const accessToken = "urn:ietf:params:oauth:token-type:access_token";
let key;
let handle;
let fetches = 0;
let tokens = 0;
let exchanges = 0;
let redirects = [];

function rotate() {
  const pair = crypto.generateKeyPairSync("rsa", { modulusLength: 2048 });
  const kid = crypto.randomUUID();
  key = { ...pair, kid };
  const provider = new Provider(issuer, {
    clients: [...Object.keys(groups), "gateway"].map((client_id) => ({
      client_id,
      client_secret: "secret",
      grant_types: client_id === "gateway" ? ["client_credentials", exchange] : ["client_credentials"],
      redirect_uris: [],
      response_types: [],
      scope: scopes,
    })).concat(redirects.length > 0 ? [pageClient()] : []),
    scopes: ["openid", "profile", "email", ...scopes.split(" ")],
    claims: { openid: ["sub", "groups"] },
    // The claims of the scopes are in ID tokens, too.
    conformIdTokenClaims: false,
    findAccount: (_context, sub) => ({ accountId: sub, claims: () => ({ sub, groups: groups[sub] }) }),
    interactions: { url: (_context, { uid }) => `/interaction/${uid}` },
    loadExistingGrant: (context) => grant(provider, context),
    jwks: { keys: [{ ...pair.privateKey.export({ format: "jwk" }), kid, use: "sig", alg: "RS256" }] },
    extraTokenClaims: (_context, token) => ({ groups: groups[token.clientId] }),
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      dPoP: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_context, resource) => resourceServer(resource),
      },
    },
  });
  const parameters = ["subject_token", "subject_token_type", "resource", "scope"];
  provider.registerGrantType(exchange, (context) => exchangeToken(provider, context), parameters);
  const callback = provider.callback();
  handle = (request, response) =>
    request.url.startsWith("/interaction/") ? signIn(provider, request, response) : callback(request, response);
}

function pageClient() {
  return {
    client_id: "page",
    client_secret: "secret",
    grant_types: ["authorization_code"],
    redirect_uris: redirects,
    response_types: ["code"],
    scope: "openid profile email",
  };
}

// Nobody is asked for consent.
async function grant(provider, { oidc: { client, session, params } }) {
  const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
  grant.addOIDCScope(params.scope);
  await grant.save();
  return grant;
}

async function signIn(provider, request, response) {
  if (request.method !== "POST") {
    response.setHeader("content-type", "text/html; charset=utf-8");
    const field = '<label>User <input name="user"></label>';
    return response.end(`<!DOCTYPE html><title>Provider</title><form method="post">${field}<button>Continue</button></form>`);
  }
  let body = "";
  for await (const chunk of request) body += chunk;
  const login = { accountId: new URLSearchParams(body).get("user") };
  return provider.interactionFinished(request, response, { login }, { mergeWithLastSubmission: false });
}

function resourceServer(resource) {
  return {
    scope: scopes,
    audience: resource.startsWith("http://127.0.0.1:") ? "urn:mooring" : resource,
    accessTokenFormat: "jwt",
    accessTokenTTL: resource === "https://brief.example/" ? 4 : 600,
  };
}

async function exchangeToken(provider, context) {
  exchanges += 1;
  const { client, params } = context.oidc;
  const subject = subjectOf(params.subject_token);
  if (!subject || params.subject_token_type !== accessToken) {
    throw new errors.InvalidRequest("subject_token is invalid");
  }
  if (params.resource === "https://refused.example/") throw new errors.InvalidTarget();
  const token = new provider.AccessToken({ accountId: subject, client, gty: "token_exchange", scope: params.scope });
  token.resourceServer = new provider.ResourceServer(params.resource, resourceServer(params.resource));
  context.body = {
    access_token: await token.save(),
    issued_token_type: accessToken,
    token_type: token.tokenType,
    expires_in: token.expiration,
    scope: token.scope,
  };
}

// Whose token for a resource on this machine it is; nothing if it is none.
function subjectOf(token) {
  const [header, claims, signature] = token.split(".");
  const signed = Buffer.from(`${header}.${claims}`);
  if (!crypto.verify("sha256", signed, key.publicKey, Buffer.from(signature, "base64url"))) return undefined;
  const { aud, exp, sub } = JSON.parse(Buffer.from(claims, "base64url"));
  return aud === "urn:mooring" && exp > Date.now() / 1000 ? sub : undefined;
}

function sign({ header, claims, with: signer }) {
  const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const message = `${encode({ kid: key.kid, ...header })}.${encode({ iss: issuer, ...claims })}`;
  const publicKey = key.publicKey.export({ type: "spki", format: "pem" });
  const signature =
    signer === "public"
      ? crypto.createHmac("sha256", publicKey).update(message).digest()
      : crypto.sign("sha256", Buffer.from(message), key.privateKey);
  return `${message}.${signature.toString("base64url")}`;
}

function prove({ holder, token, header, claims }) {
  if (!holders.has(holder)) holders.set(holder, crypto.generateKeyPairSync("ec", { namedCurve: "P-256" }));
  const { privateKey, publicKey } = holders.get(holder);
  const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const own = { jti: crypto.randomUUID(), iat: Math.floor(Date.now() / 1000) };
  if (token) own.ath = crypto.createHash("sha256").update(token).digest("base64url");
  const jwk = publicKey.export({ format: "jwk" });
  const message = `${encode({ typ: "dpop+jwt", alg: "ES256", jwk, ...header })}.${encode({ ...own, ...claims })}`;
  const signature = crypto.sign("sha256", Buffer.from(message), { key: privateKey, dsaEncoding: "ieee-p1363" });
  return `${message}.${signature.toString("base64url")}`;
}

async function control(path, body) {
  if (path === "/control/rotate") rotate();
  if (path === "/control/redirects") {
    redirects = JSON.parse(body);
    rotate();
  }
  if (path === "/control/prove") return { proof: prove(JSON.parse(body)) };
  if (path === "/control/sign") return { token: sign(JSON.parse(body)) };
  return { fetches, tokens, exchanges };
}

rotate();
http
  .createServer(async (request, response) => {
    if (request.url === "/jwks") fetches += 1;
    if (request.url === "/token") tokens += 1;
    if (!request.url.startsWith("/control/")) return handle(request, response);
    let body = "";
    for await (const chunk of request) body += chunk;
    response.end(JSON.stringify(await control(request.url, body)));
  })
  .listen(Number(options.port), "127.0.0.1");
