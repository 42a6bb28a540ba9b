//! 1 to 11 again, by deno: its own rules refuse most of it, and what is beneath them the rest.

use crate::attack::{Attack, attack, check_typescript};
use crate::who::everybody;

const DENO_FILES: &[Attack] = &[
    attack(
        1,
        "the machine's users",
        r#"return await Deno.readTextFile("/etc/passwd")"#,
    ),
    attack(
        1,
        "the same by node:fs",
        r#"return (await import("node:fs")).readFileSync("/etc/passwd")"#,
    ),
    attack(
        2,
        "a file of another session",
        "return await Deno.readTextFile(OTHER)",
    ),
    attack(
        2,
        "the same through a link left by an earlier run",
        r#"return await Deno.readTextFile(SCRATCH + "/link")"#,
    ),
    attack(
        2,
        "the same through a link of its own",
        r#"
await Deno.symlink(OTHER, SCRATCH + "/own-link");
return await Deno.readTextFile(SCRATCH + "/own-link");"#,
    ),
    attack(
        4,
        "the first process's environment",
        "return await Deno.readTextFile(`/proc/${PROCESS}/environ`)",
    ),
    attack(
        5,
        "an inherited environment",
        r#"
if (!Deno.env.get("GATEWAY_SECRET")) throw new Error("none");"#,
    ),
    attack(
        6,
        "its own memory in /proc",
        r#"return (await Deno.open("/proc/self/mem", { read: true })).close()"#,
    ),
    attack(
        8,
        "a new file in /tools",
        r#"
await Deno.writeTextFile(TOOLS + "/abuse-mark", "x");
await Deno.remove(TOOLS + "/abuse-mark");"#,
    ),
    attack(
        8,
        "a file of the system",
        r#"
await Deno.writeTextFile(SYSTEM + "/abuse-mark", "x");
await Deno.remove(SYSTEM + "/abuse-mark");"#,
    ),
    attack(
        10,
        "out by ..",
        r#"return await Deno.readTextFile("../".repeat(40) + "etc/passwd")"#,
    ),
    attack(
        11,
        "another program",
        r#"
const { success } = await new Deno.Command("/usr/bin/id").output();
if (!success) throw new Error("failed");"#,
    ),
    attack(
        11,
        "another program by node",
        r#"
return (await import("node:child_process")).execFileSync("/usr/bin/id")"#,
    ),
    attack(
        11,
        "native code",
        r#"
const library = Deno.dlopen("libc.so.6", { getpid: { parameters: [], result: "i32" } });
return library.symbols.getpid();"#,
    ),
];

#[test]
fn deno_reaches_no_file_of_others() {
    everybody("filesystem_deno::deno_reaches_no_file_of_others", |arena| {
        check_typescript(arena, &[], DENO_FILES);
    });
}
