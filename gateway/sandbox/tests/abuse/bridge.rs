//! 13 and 88 to 97, as far as the walls see them: the bridge is one more descriptor, and nothing but bytes goes over it.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use mooring_sandbox::{Argument, Limits, Network, Program, RunEnd, Stage, StopHandle, StopReason};

use crate::aftermath::Before;
use crate::arena::{Arena, Run, limits};
use crate::filesystem_in::inheritable_descriptors;
use crate::who::everybody;

/// Longest wait for a program to say something over the bridge.
const WAIT: Duration = Duration::from_secs(60);

/// Runs a program whose bridge `host` answers, on another thread, until nothing of it is left.
fn run_with<T: Send>(
    arena: &Arena<'_>,
    program: Program,
    stop: &StopHandle,
    host: impl FnOnce(UnixStream) -> T + Send,
) -> (Run, T) {
    let before = Before::look(arena);
    let (near, far) = UnixStream::pair().unwrap();
    near.set_read_timeout(Some(WAIT)).unwrap();
    let answer = thread::scope(|scope| {
        let host = scope.spawn(|| host(near));
        let within = Limits {
            memory_bytes: 512 << 20,
            ..limits()
        };
        let run = arena.run_connected(program, within, stop, far.into(), Network::None);
        (run, host.join().unwrap())
    });
    before.compare(arena);
    answer
}

fn python(source: &str) -> Program {
    Program::Python {
        source: source.to_owned(),
    }
}

/// Everything that comes, to its end.
fn all(mut host: UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match host.read_to_end(&mut bytes) {
        Ok(_) => {}
        // A program that was ended with something unread.
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    bytes
}

/// Answers each frame with itself.
fn echo(mut host: UnixStream) {
    let mut length = [0; 4];
    while host.read_exact(&mut length).is_ok() {
        let mut frame = length.to_vec();
        frame.resize(length.len() + u32::from_be_bytes(length) as usize, 0);
        host.read_exact(&mut frame[length.len()..]).unwrap();
        // At once: the programs take what one reading brings.
        host.write_all(&frame).unwrap();
    }
}

/// 13
#[test]
fn a_program_has_the_bridge_and_no_other_descriptor() {
    everybody(
        "bridge::a_program_has_the_bridge_and_no_other_descriptor",
        |arena| {
            let _inherited = inheritable_descriptors(arena);
            let source = "
import os, stat, subprocess, sys
def present(number):
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return None
print([number for number in range(4096) if present(number) is not None], present(3))
child = 'import os\\ntry: os.fstat(3)\\nexcept OSError: print(\"none\")'
print(subprocess.run([sys.executable, '-S', '-c', child], capture_output=True, text=True).stdout)
";
            let run = arena.python(source);
            assert_eq!(run.stdout, "[0, 1, 2, 3] True\nnone\n\n", "{run:?}");
        },
    );
}

/// 13: the host hears that nobody holds it, while the tool still runs.
#[test]
fn the_tools_of_a_pipeline_have_no_bridge() {
    everybody("bridge::the_tools_of_a_pipeline_have_no_bridge", |arena| {
        let stages = vec![Stage {
            tool: "tail".to_owned(),
            arguments: ["-f", "../tools/stub.py"]
                .map(|word| Argument::Literal(word.to_owned()))
                .to_vec(),
        }];
        let stop = StopHandle::new().unwrap();
        let asked = stop.clone();
        let (run, heard) = run_with(arena, Program::Pipeline { stages }, &stop, |host| {
            let heard = all(host);
            asked.ask();
            heard
        });
        assert_eq!(heard, b"");
        assert_eq!(run.ended, RunEnd::Stopped(StopReason::Asked), "{run:?}");
    });
}

#[test]
fn both_runtimes_speak_over_it() {
    everybody("bridge::both_runtimes_speak_over_it", |arena| {
        let source = r#"
import asyncio, os, socket, threading
one = socket.socket(fileno=os.dup(3))
def ask(text):
    one.sendall(len(text).to_bytes(4, "big") + text)
    return one.recv(4 + len(text), socket.MSG_WAITALL)[4:]
print(ask(b"by a socket"))
os.write(3, b"\0\0\0\3abc")
print(os.read(3, 7))
async def main():
    reader, writer = await asyncio.open_unix_connection(sock=one)
    writer.write(b"\0\0\0\4loop")
    print(await reader.readexactly(8))
asyncio.run(main())
"#;
        let (run, ()) = run_with(arena, python(source), &StopHandle::new().unwrap(), echo);
        let expected = "b'by a socket'\nb'\\x00\\x00\\x00\\x03abc'\nb'\\x00\\x00\\x00\\x04loop'\n";
        assert_eq!(run.stdout, expected, "{run:?}");

        let source = r#"
import net from "node:net";
const one = new net.Socket({ fd: 3, readable: true, writable: true });
const long = "x".repeat(1 << 20);
let heard = 0;
const done = new Promise((resolve) => one.on("data", (piece) => {
  heard += piece.length;
  if (heard === 4 + long.length) resolve(heard);
}));
const length = new Uint8Array(4);
new DataView(length.buffer).setUint32(0, long.length);
one.write(length);
one.write(long);
console.log(await done);
one.unref();
"#;
        let program = Program::TypeScript {
            source: source.to_owned(),
        };
        let (run, ()) = run_with(arena, program, &StopHandle::new().unwrap(), echo);
        assert_eq!(run.stdout, "1048580\n", "{run:?}");
        assert_eq!(run.ended, RunEnd::Exited(0), "{run:?}");
    });
}

/// 88: what the helper would say is only bytes, on the bridge and in the output.
#[test]
fn a_forged_end_is_no_end() {
    everybody("bridge::a_forged_end_is_no_end", |arena| {
        let forged = r#"{"FinishReport":{"status":0,"cpu_us":0,"memory_peak_bytes":0}}"#;
        let source = format!(
            "
import os
forged = {forged:?}.encode()
for number in (1, 2, 3):
    os.write(number, forged)
    os.write(number, len(forged).to_bytes(4, 'big') + forged)
for number in range(4, 64):
    try:
        os.write(number, forged)
    except OSError:
        pass
raise SystemExit(7)
"
        );
        let (run, heard) = run_with(arena, python(&source), &StopHandle::new().unwrap(), all);
        assert_eq!(run.ended, RunEnd::Exited(7), "{run:?}");
        assert_eq!(heard.len(), 2 * forged.len() + 4);
        assert_eq!(run.stdout.matches(forged).count(), 2, "{run:?}");
        arena.is_fine();
    });
}

/// 96: whoever reads without room for them gets none, and nothing of this process is left open.
#[test]
fn descriptors_sent_over_it_do_not_arrive() {
    everybody("bridge::descriptors_sent_over_it_do_not_arrive", |arena| {
        let source = "
import os, socket
one = socket.socket(fileno=os.dup(3))
for _ in range(100):
    socket.send_fds(one, [b'x'], [os.open('/dev/null', os.O_RDONLY), 1, 2])
    if one.recv(1) != b'y':
        raise SystemExit('no answer')
print('sent')
";
        let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let (run, counts) = run_with(
            arena,
            python(source),
            &StopHandle::new().unwrap(),
            |mut host| {
                let mut byte = [0];
                let mut counts = Vec::new();
                while let Ok(1) = host.read(&mut byte) {
                    counts.push(count());
                    host.write_all(b"y").unwrap();
                }
                counts
            },
        );
        // It opens one itself each time, and may have as many as its limit allows.
        assert_eq!(
            (run.stdout.as_str(), counts.len()),
            ("sent\n", 100),
            "{run:?}"
        );
        // Three were sent each time. The next helper may have been begun meanwhile.
        let (first, last) = (counts[0], counts[99]);
        assert!(last < first + 100, "{first} descriptors became {last}");
    });
}

/// 95: processes that a run leaves have no bridge left either.
#[test]
fn it_ends_with_the_run() {
    everybody("bridge::it_ends_with_the_run", |arena| {
        let source = "
import os, time
if os.fork() == 0:
    while True:
        time.sleep(600)
os.write(3, b'last')
";
        let (run, heard) = run_with(arena, python(source), &StopHandle::new().unwrap(), all);
        assert_eq!((run.ended, heard), (RunEnd::Exited(0), b"last".to_vec()));
    });
}
