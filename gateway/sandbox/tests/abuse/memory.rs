//! 36 to 42: memory of every kind, in one process and in many.

use mooring_sandbox::{Limits, RunEnd, StopReason};

use crate::arena::{Run, limits};
use crate::outside::Control;
use crate::who::everybody;

const MIB: u64 = 1 << 20;

/// A program that uses more memory than the run may, and says "done" if nobody stops it.
struct MemoryBomb {
    number: u16,
    name: &'static str,
    source: &'static str,
}

const PYTHON_MEMORY: &[MemoryBomb] = &[
    MemoryBomb {
        number: 36,
        name: "private memory",
        source: "
kept = []
for _ in range(75):
    kept.append(bytearray(b'x') * (4 << 20))
print('done')",
    },
    MemoryBomb {
        number: 37,
        name: "shared memory",
        source: "
import mmap
shared = mmap.mmap(-1, 300 << 20)
for at in range(0, 300 << 20, 4096):
    shared[at] = 1
print('done')",
    },
    MemoryBomb {
        number: 39,
        name: "many processes, each with a little",
        source: "
import os, time
children, (out, into) = [], os.pipe()
for _ in range(8):
    child = os.fork()
    if child == 0:
        kept = bytearray(b'x') * (40 << 20)
        os.write(into, b'x')
        time.sleep(60)
        os._exit(0)
    children.append(child)
os.close(into)
got = 0
while got < 8:
    more = len(os.read(out, 1))
    if more == 0:
        break
    got += more
for child in children:
    try:
        os.kill(child, 9)
    except OSError:
        pass
print('done' if got == 8 else 'stopped')",
    },
];

const DENO_MEMORY: &[MemoryBomb] = &[
    MemoryBomb {
        number: 40,
        name: "array buffers",
        source: "
const kept = [];
for (let n = 0; n < 150; n++) kept.push(new Uint8Array(4 << 20).fill(1));
console.log('done', kept.length);",
    },
    MemoryBomb {
        number: 41,
        name: "the heap",
        source: "
const kept = [];
for (let n = 0; n < 600; n++) kept.push(new Array(1 << 17).fill(n + 0.5));
console.log('done', kept.length);",
    },
    MemoryBomb {
        number: 42,
        name: "memory of WebAssembly",
        source: "
const memory = new WebAssembly.Memory({ initial: 1, maximum: 16384 });
for (let n = 0; n < 600; n++) {
  const before = memory.grow(16);
  new Uint8Array(memory.buffer, before * 65536).fill(1);
}
console.log('done');",
    },
];

#[test]
fn memory_is_bounded() {
    everybody("memory::memory_is_bounded", |arena| {
        let within = Limits {
            memory_bytes: 128 * MIB,
            ..limits()
        };
        for bomb in PYTHON_MEMORY {
            let control = arena.python_outside(bomb.source, Control::Plain);
            let run = arena.python_within(bomb.source, within.clone());
            is_stopped_by_memory(bomb, &control, &run);
        }
        let within = Limits {
            memory_bytes: 256 * MIB,
            ..limits()
        };
        for bomb in DENO_MEMORY {
            let control = arena.typescript_outside(bomb.source);
            let run = arena.typescript_within(bomb.source, within.clone());
            is_stopped_by_memory(bomb, &control, &run);
        }
        arena.is_fine();
    });
}

fn is_stopped_by_memory(bomb: &MemoryBomb, control: &str, run: &Run) {
    let MemoryBomb { number, name, .. } = bomb;
    assert!(
        control.contains("done"),
        "the control of {number} ({name}) has to work: {control}"
    );
    assert!(!run.stdout.contains("done"), "{number} {name}: {run:?}");
    let is_told = matches!(
        run.ended,
        RunEnd::Stopped(StopReason::Memory) | RunEnd::Signalled(_)
    ) || run.stderr.contains("Memory")
        || run.stderr.contains("memory")
        || run.stdout.contains("stopped");
    assert!(is_told, "{number} {name}: {run:?}");
}
