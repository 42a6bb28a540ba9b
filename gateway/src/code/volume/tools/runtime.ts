/**
 * What a code session offers to TypeScript and JavaScript beside the language itself.
 *
 * The four roots are ordinary directories: the file functions of Deno work on them as anywhere.
 * No tools are mounted in this session: `call` says so.
 */

export const SCHEMA_VERSION = "2026-02-01";
export const ROOTS = ["/tools", "/skills", "/scratch", "/results"] as const;
export const WRITABLE_ROOTS = ["/scratch", "/results"] as const;

/** A call of a tool that failed. */
export class ToolError extends Error {
  override name = "ToolError";
}

/** A call of a tool that is not mounted in this session. */
export class ToolNotMountedError extends ToolError {
  override name = "ToolNotMountedError";

  constructor(readonly server: string, readonly tool: string) {
    super(`no tool "${tool}" of a server "${server}" is mounted in this session`);
  }
}

/** The text of a file, which must be UTF-8. */
export function readFile(path: string): string {
  return Deno.readTextFileSync(path);
}

/** Writes text to a file below a writable root, makes the directories above it, and returns its size in bytes. */
export function writeFile(path: string, content: string): number {
  const end = path.lastIndexOf("/");
  if (end > 0) {
    Deno.mkdirSync(path.slice(0, end), { recursive: true });
  }
  Deno.writeTextFileSync(path, content);
  return Deno.statSync(path).size;
}

/** The names in a directory, sorted. */
export function listDir(path = "/scratch"): string[] {
  return Array.from(Deno.readDirSync(path), (entry) => entry.name).sort();
}

/** Calls a mounted tool. Throws a ToolNotMountedError: none is. */
export function call(
  server: string,
  tool: string,
  _arguments?: unknown,
): Promise<never> {
  return Promise.reject(new ToolNotMountedError(server, tool));
}
