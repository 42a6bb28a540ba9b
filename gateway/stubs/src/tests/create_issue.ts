// Made from the schemas of a tool.
import { call as _call } from "../_runtime.ts";

export type User = {
  id?: number;
  login: string;
};

export type User2 = {
  login: string;
};

export type Args = {
  assignee?: User;
  body?: string | null;
  labels?: Array<string>;
  priority?: "low" | "high" | 3;
  /** What it is about. */
  title: string;
};

export type Result = {
  author: User2;
  number: number;
  state?: "open";
};

/**
 * Create an issue
 *
 * Makes an issue.
 *
 * It is open then.
 *
 * It may destroy something.
 */
export async function create_issue(args: Args): Promise<Result> {
  return await _call("github", "create-issue", args);
}
