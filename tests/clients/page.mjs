// A person with a browser at the operators' page: headless Chromium over Playwright, with axe-core in both themes.
//
// Usage: page.mjs --steps FILE [--images DIRECTORY]
// FILE has {"gateways": [URL, ...], "steps": [{...}, ...]}; each step has one of:
//   {"open": PATH, "gateway": N}            opens a page, of the first gateway if none is named
//   {"fill": LABEL, "with": TEXT}           writes into the field with this label
//   {"choose": LABEL, "option": TEXT}       chooses an option of the list with this label
//   {"click": TEXT, "role": ROLE}           clicks the button, link or other element of this name
//   {"expand": TEXT}                        opens the details with this summary
//   {"follow": SELECTOR}                    opens the link that the selector finds
//   {"forget": true}                        the browser loses its cookies
//   {"press": KEY}                          presses a key
//   {"see": TEXT}                           waits until the text is shown
//   {"row": [TEXT, ...], "in": TABLE, "reload": true}
//                                           waits until a row of a table has all these texts; loads the page again until then
//   {"at": PATH}                            waits until this is the path of the page
//   {"call": {...}}                         sends an MCP call as another client: gateway, server, key, tool, arguments
//   {"check": NAME, "picture": THEME}       runs axe in both themes, and makes a picture in one, if they are wanted:
//                                           incident-*.webp by its name, any other page-NAME.webp
//   {"headers": {...}}                      later requests have these headers
//   {"scripts": false}                      goes on in a browser without scripts, with the same cookies
// Prints one JSON object as its last act: {"violations": [...], "problems": [...], "checked": [...]}: what axe found, and
// errors of the console, of scripts and of the content security policy.

import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { parseArgs } from "node:util";

// The packages lie under .tools, not beside this file.
const require = createRequire(new URL("../../.tools/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const { values: options } = parseArgs({ options: { steps: { type: "string" }, images: { type: "string" } } });
const { gateways, steps } = JSON.parse(readFileSync(options.steps, "utf8"));
const shownWithin = 45_000;
const rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const report = { violations: [], problems: [], checked: [] };

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium-headless-shell",
  args: ["--no-sandbox"],
});
let context;
let page;

async function openBrowser(javaScriptEnabled, state) {
  context = await browser.newContext({
    javaScriptEnabled,
    storageState: state,
    viewport: { width: 1280, height: 800 },
    colorScheme: "light",
    reducedMotion: "reduce",
  });
  context.setDefaultTimeout(shownWithin);
  if (javaScriptEnabled) {
    await context.addInitScript(() => {
      document.addEventListener("securitypolicyviolation", (event) =>
        console.error(`content security policy: ${event.violatedDirective} ${event.blockedURI}`),
      );
    });
  }
  page = await context.newPage();
  page.on("console", (message) => {
    // A page that is refused on purpose is an error in the console, too.
    const isStatus = message.text().startsWith("Failed to load resource: the server responded with a status of 4");
    if (message.type() === "error" && !isStatus) report.problems.push(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => report.problems.push(`${page.url()}: ${error}`));
  page.on("dialog", (dialog) => {
    report.problems.push(`${page.url()}: a dialog of a script: ${dialog.message()}`);
    return dialog.dismiss();
  });
}

async function check(name, picture) {
  await page.evaluate(axe);
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    // The other rules do not depend on the theme.
    const runOnly =
      colorScheme === "light" ? { type: "tag", values: rules } : { type: "rule", values: ["color-contrast"] };
    const found = await page.evaluate((runOnly) => axe.run(document, { runOnly }), runOnly);
    for (const { id, help, nodes } of found.violations) {
      const where = nodes.slice(0, 3).map(({ html, failureSummary }) => ({ html, failureSummary }));
      report.violations.push({ page: name, colorScheme, id, help, where });
    }
    if (options.images && picture === colorScheme) await makePicture(`${name.startsWith("incident-") ? "" : "page-"}${name}.webp`);
  }
  await page.emulateMedia({ colorScheme: "light" });
  report.checked.push(name);
}

async function makePicture(name) {
  const devtools = await context.newCDPSession(page);
  const { data } = await devtools.send("Page.captureScreenshot", { format: "webp", quality: 80 });
  writeFileSync(path.join(options.images, name), Buffer.from(data, "base64"));
  await devtools.detach();
}

async function call({ gateway, server, key, tool, arguments: parameters }) {
  const url = `${gateways[gateway ?? 0]}/servers/${server}/mcp`;
  const headers = {
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    "x-api-key": key,
  };
  const send = async (message, session) => {
    const body = JSON.stringify({ jsonrpc: "2.0", ...message });
    const reply = await fetch(url, { method: "POST", headers: { ...headers, ...session }, body });
    await reply.text();
    if (!reply.ok) throw new Error(`${message.method}: ${reply.status}`);
    return reply;
  };
  const clientInfo = { name: "other", version: "1" };
  const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo };
  const opened = await send({ id: 1, method: "initialize", params });
  const id = opened.headers.get("mcp-session-id");
  const session = id ? { "mcp-session-id": id } : {};
  await send({ method: "notifications/initialized" }, session);
  await send({ id: 2, method: "tools/call", params: { name: tool, arguments: parameters } }, session);
}

async function seeRow(row, reloads) {
  if (!reloads) return row.waitFor();
  for (const end = Date.now() + shownWithin; Date.now() < end; ) {
    if (await row.isVisible()) return;
    await page.waitForTimeout(250);
    await page.reload();
  }
  return row.waitFor({ timeout: 1_000 });
}

async function perform(step) {
  if ("open" in step) return page.goto(gateways[step.gateway ?? 0] + step.open);
  if ("fill" in step) return page.getByLabel(step.fill, { exact: true }).fill(step.with);
  if ("choose" in step) return page.getByRole("combobox", { name: step.choose }).selectOption({ label: step.option });
  if ("click" in step) {
    return page.getByRole(step.role ?? "button", { name: step.click, exact: true }).first().click();
  }
  if ("follow" in step) return page.locator(step.follow).first().click();
  if ("forget" in step) return context.clearCookies();
  if ("expand" in step) return page.locator("summary").filter({ hasText: step.expand }).first().click();
  if ("press" in step) return page.keyboard.press(step.press);
  if ("see" in step) return page.getByText(step.see).filter({ visible: true }).first().waitFor();
  if ("row" in step) {
    const table = step.in ? page.getByRole("region", { name: step.in, exact: true }) : page;
    const rows = step.row.reduce((rows, text) => rows.filter({ hasText: text }), table.locator("tbody tr"));
    return seeRow(rows.first(), step.reload);
  }
  if ("at" in step) return page.waitForURL((url) => url.pathname === step.at);
  if ("call" in step) return call(step.call);
  if ("check" in step) return check(step.check, step.picture);
  if ("headers" in step) return context.setExtraHTTPHeaders(step.headers);
  if ("scripts" in step) {
    const state = await context.storageState();
    await context.close();
    return openBrowser(step.scripts, state);
  }
  throw new Error(`an unknown step: ${JSON.stringify(step)}`);
}

await openBrowser(true);
try {
  for (const [number, step] of steps.entries()) {
    try {
      await perform(step);
    } catch (error) {
      const text = await page.locator("body").innerText({ timeout: 1_000 }).catch(() => "");
      throw new Error(`step ${number + 1}, ${JSON.stringify(step)} at ${page.url()}: ${error}\n${text}`);
    }
  }
} finally {
  await browser.close();
}
console.log(JSON.stringify(report));
