//! Memory of a runtime that reserves far more than it uses: each kind of it is given up to the limit and not beyond.

use mooring_sandbox::{Options, Outcome, Program, RunEnd, Sandbox, StopHandle, StopReason};

use crate::support::{Ground, Turn, has_group, limits, options, text};

/// A deno that is elsewhere than `make setup` puts it.
const DENO_VARIABLE: &str = "MOORING_TEST_DENO";

/// Ways to take memory, each in steps of a MiB that are written to.
const KINDS: &[(&str, &str)] = &[
    (
        "heap",
        "kept.push(Array.from({ length: 1 << 17 }, (_, at) => at + step + 0.5));",
    ),
    ("buffer", "kept.push(new Uint8Array(1 << 20).fill(1));"),
    (
        "web assembly",
        "memory.grow(16); new Uint8Array(memory.buffer).fill(1, -(1 << 20));",
    ),
];

/// `memory_bytes` of [`limits`], in MiB.
const ALLOWED: u32 = 256;

pub(crate) fn sandbox() -> Sandbox {
    let installed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/venv/bin/deno");
    let path = std::env::var_os(DENO_VARIABLE).unwrap_or_else(|| installed.into());
    Sandbox::probe(Options {
        deno: Some(path.into()),
        ..options()
    })
    .expect("a sandbox")
}

pub(crate) fn run(sandbox: &Sandbox, source: &str) -> Outcome {
    let program = Program::TypeScript {
        source: source.to_owned(),
    };
    sandbox
        .run(
            Ground::new().job(program, limits()),
            &StopHandle::new().expect("a handle"),
        )
        .expect("the run was made")
}

fn hog(take: &str, steps: u32) -> String {
    format!(
        "const kept: unknown[] = [];\n\
         const memory = new WebAssembly.Memory({{ initial: 0, maximum: 65536 }});\n\
         for (let step = 0; step < {steps}; step++) {{ {take} }}\n\
         console.log('had all', kept.length + memory.buffer.byteLength);"
    )
}

#[test]
fn each_kind_of_memory_is_given_to_the_limit_and_not_beyond() {
    let _turn = Turn::take();
    let sandbox = sandbox();
    for (kind, take) in KINDS {
        // An idle deno takes some of it.
        let within = run(&sandbox, &hog(take, ALLOWED / 4));
        assert_eq!(within.ended, RunEnd::Exited(0), "{kind}: {within:?}");
        let beyond = run(&sandbox, &hog(take, ALLOWED * 2));
        assert_ne!(beyond.ended, RunEnd::Exited(0), "{kind}: {beyond:?}");
        assert_eq!(text(&beyond.stdout.bytes), "", "{kind}");
    }
}

/// Starts workers of which each takes memory, and waits for all of them to have it.
fn workers(count: u32, each: u32) -> String {
    format!(
        "const source = `const kept = []; for (let step = 0; step < {each}; step++) \
         kept.push(new Uint8Array(1 << 20).fill(1)); postMessage(kept.length);`;\n\
         const url = 'data:application/javascript,' + encodeURIComponent(source);\n\
         const all = Array.from({{ length: {count} }}, () => new Promise((done, failed) => {{\n\
         const worker = new Worker(url, {{ type: 'module' }});\n\
         worker.onmessage = (event) => done(event.data); worker.onerror = failed; }}));\n\
         console.log((await Promise.all(all)).join(' ')); Deno.exit(0);"
    )
}

#[test]
fn workers_have_room_and_one_limit_together() {
    let _turn = Turn::take();
    let sandbox = sandbox();
    let few = run(&sandbox, &workers(3, 8));
    if !has_group() {
        // What is not counted as it is touched cannot be let reserved.
        assert_ne!(few.ended, RunEnd::Exited(0), "{few:?}");
        return;
    }
    assert_eq!(few.ended, RunEnd::Exited(0), "{few:?}");
    assert_eq!(text(&few.stdout.bytes), "8 8 8\n");
    let many = run(&sandbox, &workers(3, ALLOWED / 2));
    assert_eq!(many.ended, RunEnd::Stopped(StopReason::Memory), "{many:?}");
}
