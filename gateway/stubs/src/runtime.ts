/**
 * What a code session offers to TypeScript and JavaScript beside the language itself: the mounted tools, and a few words
 * for files.
 *
 * Calls go through descriptor 3, which the program was started with: frames of a length, four bytes with the highest
 * first, and JSON. Answers come in any order. While no call is open, the bridge does not keep the program from ending.
 *
 * The roots are ordinary directories: the file functions of Deno work on them as anywhere.
 */

// deno-lint-ignore-file no-explicit-any

import type { Socket } from "node:net";

export const SCHEMA_VERSION = "2026-02-01";

const TOOLS = place("MOORING_TOOLS", "/tools");
const SKILLS = place("MOORING_SKILLS", "/skills");
const SCRATCH = place("MOORING_SCRATCH", "/scratch");
const RESULTS = place("MOORING_RESULTS", "/results");
export const ROOTS: readonly string[] = [TOOLS, SKILLS, SCRATCH, RESULTS];
export const READ_ONLY_ROOTS: readonly string[] = [TOOLS, SKILLS];
export const WRITABLE_ROOTS: readonly string[] = [SCRATCH, RESULTS];

const DESCRIPTOR = 3;
const REQUEST_BYTES_MAX = 1024 * 1024;
const RESULT_BYTES_MAX = 8 * 1024 * 1024;
const HEAD_BYTES = 4;

/** A call of a tool that failed. Its message is what the tool, or whoever refused the call, says. */
export class ToolError extends Error {
  override name = "ToolError";

  constructor(
    message: string,
    readonly server = "",
    readonly tool = "",
    readonly kind = "tool_error",
  ) {
    super(message);
  }
}

/** No such tool is mounted in this session. */
export class ToolNotMountedError extends ToolError {
  override name = "ToolNotMountedError";
}

/** The policy of this server forbids the tool. */
export class ToolDeniedError extends ToolError {
  override name = "ToolDeniedError";
}

/** Too many calls, or one whose arguments or result are too large. */
export class ToolLimitError extends ToolError {
  override name = "ToolLimitError";
}

/** What was sent is no call. */
export class ToolInvalidError extends ToolError {
  override name = "ToolInvalidError";
}

/** The tool took longer than it may. */
export class ToolTimeoutError extends ToolError {
  override name = "ToolTimeoutError";
}

/** The tool cannot be reached now. Nothing ran. */
export class ToolUnavailableError extends ToolError {
  override name = "ToolUnavailableError";
}

/** The connection broke: the tool may have run, or not. */
export class ToolOutcomeUnknownError extends ToolError {
  override name = "ToolOutcomeUnknownError";
}

/** It is a tool that runs code itself. */
export class ToolRecursionError extends ToolError {
  override name = "ToolRecursionError";
}

/** A replay came to a call that the record does not have at this place. */
export class ToolDivergedError extends ToolError {
  override name = "ToolDivergedError";
}

/** A defect of the gateway's. */
export class ToolInternalError extends ToolError {
  override name = "ToolInternalError";
}

const ERRORS = new Map<string, typeof ToolError>([
  ["not_mounted", ToolNotMountedError],
  ["denied", ToolDeniedError],
  ["limit", ToolLimitError],
  ["invalid", ToolInvalidError],
  ["timeout", ToolTimeoutError],
  ["unavailable", ToolUnavailableError],
  ["outcome_unknown", ToolOutcomeUnknownError],
  ["recursion", ToolRecursionError],
  ["diverged", ToolDivergedError],
  ["internal", ToolInternalError],
]);

/** Calls a mounted tool by its own names. Rejects with a ToolError where it fails. */
export async function call(server: string, tool: string, args: object = {}): Promise<any> {
  bridge ??= Bridge.open();
  return await (await bridge).call(server, tool, args);
}

/** The tools of one server as an object of functions: their names here, and their own. */
export function server(id: string, names: [string, string][]): any {
  const functions = Object.create(null);
  for (const [name, tool] of names) {
    functions[name] = (args: object = {}) => call(id, tool, args);
  }
  return Object.freeze(functions);
}

interface Open {
  server: string;
  tool: string;
  resolve(result: unknown): void;
  reject(error: Error): void;
}

let bridge: Promise<Bridge> | undefined;

/** The program's end of the bridge. */
class Bridge {
  #socket: Socket;
  #open = new Map<number, Open>();
  #last = 0;
  #closed = "";
  #chunks: Uint8Array[] = [];
  #bytes = 0;
  /** How many bytes there must be before there is something to be read. */
  #needed = HEAD_BYTES;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("data", (chunk: Uint8Array) => this.#receive(chunk));
    socket.on("error", (error: Error) => this.#close(`the bridge to the tools is closed: ${error.message}`));
    socket.on("end", () => this.#close("the bridge to the tools is closed"));
    socket.on("close", () => this.#close("the bridge to the tools is closed"));
    socket.unref();
  }

  static async open(): Promise<Bridge> {
    const net = await import("node:net");
    try {
      return new Bridge(new net.Socket({ fd: DESCRIPTOR, readable: true, writable: true }));
    } catch {
      throw new ToolUnavailableError(
        "tools cannot be called here: this process was started without descriptor 3",
        "",
        "",
        "unavailable",
      );
    }
  }

  call(server: string, tool: string, args: object): Promise<unknown> {
    if (this.#closed !== "") {
      return Promise.reject(new ToolUnavailableError(this.#closed, server, tool, "unavailable"));
    }
    const id = ++this.#last;
    const body = new TextEncoder().encode(JSON.stringify({ id, server, tool, arguments: args }));
    if (body.length > REQUEST_BYTES_MAX) {
      const message = `the arguments are ${body.length} bytes long; at most ${REQUEST_BYTES_MAX} can be sent`;
      return Promise.reject(new ToolLimitError(message, server, tool, "limit"));
    }
    const frame = new Uint8Array(HEAD_BYTES + body.length);
    new DataView(frame.buffer).setUint32(0, body.length);
    frame.set(body, HEAD_BYTES);
    return new Promise((resolve, reject) => {
      this.#open.set(id, { server, tool, resolve, reject });
      this.#socket.ref();
      this.#socket.write(frame);
    });
  }

  #receive(chunk: Uint8Array) {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    while (this.#closed === "" && this.#bytes >= this.#needed) {
      const data = this.#joined();
      const length = new DataView(data.buffer, data.byteOffset).getUint32(0);
      if (length > RESULT_BYTES_MAX) {
        return this.#fail(`an answer is ${length} bytes long`);
      }
      const end = HEAD_BYTES + length;
      if (data.length < end) {
        this.#needed = end;
        continue;
      }
      const rest = data.subarray(end);
      this.#chunks = rest.length > 0 ? [rest] : [];
      this.#bytes = rest.length;
      this.#needed = HEAD_BYTES;
      try {
        this.#settle(JSON.parse(new TextDecoder().decode(data.subarray(HEAD_BYTES, end))));
      } catch (error) {
        return this.#fail(`an answer could not be read: ${(error as Error).message}`);
      }
    }
  }

  /** All that has come and was not read, as one piece. */
  #joined(): Uint8Array {
    const [only] = this.#chunks;
    if (this.#chunks.length === 1) {
      return only;
    }
    const data = new Uint8Array(this.#bytes);
    let at = 0;
    for (const chunk of this.#chunks) {
      data.set(chunk, at);
      at += chunk.length;
    }
    this.#chunks = [data];
    return data;
  }

  /** Hands an answer to whoever waits for it. */
  #settle(answer: any) {
    const open = this.#open.get(answer?.id);
    if (open === undefined) {
      return;
    }
    this.#open.delete(answer.id);
    if (this.#open.size === 0) {
      this.#socket.unref();
    }
    const error = answer.error;
    if (error !== null && typeof error === "object") {
      const kind = String(error.kind ?? "internal");
      const Kind = ERRORS.get(kind) ?? ToolError;
      open.reject(new Kind(String(error.message ?? ""), open.server, open.tool, kind));
    } else {
      open.resolve(answer.result ?? null);
    }
  }

  #fail(reason: string) {
    this.#close(`the bridge to the tools is closed: ${reason}`);
    this.#socket.destroy();
  }

  #close(reason: string) {
    if (this.#closed !== "") {
      return;
    }
    this.#closed = reason;
    this.#chunks = [];
    this.#bytes = 0;
    const waiting = [...this.#open.values()];
    this.#open.clear();
    for (const open of waiting) {
      const message = `${reason}; the tool may have run`;
      open.reject(new ToolOutcomeUnknownError(message, open.server, open.tool, "outcome_unknown"));
    }
    this.#socket.unref();
  }
}

function place(variable: string, otherwise: string): string {
  try {
    return Deno.env.get(variable) ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** A path below a root, where the root is here. */
function placed(path: string): string {
  for (const [index, name] of ["/tools", "/skills", "/scratch", "/results"].entries()) {
    const root = ROOTS[index];
    if (root !== name && (path === name || path.startsWith(`${name}/`))) {
      return root + path.slice(name.length);
    }
  }
  return path;
}

/** The text of a file, which must be UTF-8. */
export function readFile(path: string): string {
  return Deno.readTextFileSync(placed(path));
}

/** Writes text to a file below a writable root, makes the directories above it, and returns its size in bytes. */
export function writeFile(path: string, content: string): number {
  path = placed(path);
  const end = path.lastIndexOf("/");
  if (end > 0) {
    Deno.mkdirSync(path.slice(0, end), { recursive: true });
  }
  Deno.writeTextFileSync(path, content);
  return Deno.statSync(path).size;
}

/** The names in a directory, sorted. */
export function listDir(path: string = SCRATCH): string[] {
  return Array.from(Deno.readDirSync(placed(path)), (entry) => entry.name).sort();
}
