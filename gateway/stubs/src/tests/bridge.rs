//! A host for programs that call tools: the other end of descriptor 3.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use super::*;

/// A program is started by way of a shell, which gives it its input as descriptor 3.
const TO_DESCRIPTOR_3: &str = "exec \"$@\" 3<&0 </dev/null";

/// What the host does with one frame that came whole.
pub(super) enum Deed {
    /// Answers it.
    Answer(Value),
    /// Keeps it; with the next that is answered all kept ones are too, the last first.
    Keep(Value),
    /// Writes these bytes as they are.
    Write(Vec<u8>),
    /// Closes the bridge.
    Close,
}

/// What a program did.
pub(super) struct Ran {
    pub(super) output: Output,
    /// Every frame that it sent.
    pub(super) calls: Vec<Value>,
}

impl Ran {
    /// What it printed, where it ended well.
    pub(super) fn printed(&self) -> String {
        assert!(self.output.status.success(), "{}", words(&self.output));
        String::from_utf8(self.output.stdout.clone()).unwrap()
    }
}

/// Runs a Python program beside the trees, as the sandbox does.
pub(super) fn python(trees: &Trees, text: &str, host: impl FnMut(&Value) -> Deed + Send) -> Ran {
    let program = trees.program("main.py", text);
    let mut command = shell(trees.path());
    command
        .env("PYTHONPATH", trees.path())
        .args(["/usr/bin/python3", "-P", "-s", "-S", "-B", "-u"])
        .arg(program);
    run(command, host)
}

/// Runs a TypeScript program beside the trees, as the sandbox does.
pub(super) fn deno(trees: &Trees, text: &str, host: impl FnMut(&Value) -> Deed + Send) -> Ran {
    let program = trees.program("main.ts", text);
    let mut command = shell(trees.path());
    command
        .arg(installed("deno"))
        .args([
            "run",
            "--quiet",
            "--no-prompt",
            "--no-remote",
            "--no-npm",
            "--no-config",
            "--no-lock",
            "--cached-only",
        ])
        .args([
            "--no-code-cache",
            "--allow-env=MOORING_TOOLS,MOORING_SKILLS,MOORING_SCRATCH,MOORING_RESULTS",
        ])
        .arg(format!("--allow-read={}", trees.path().display()))
        .arg(format!("--allow-write={}", trees.path().display()))
        .arg(format!(
            "--import-map={}",
            trees.path().join("tools/_import_map.json").display()
        ))
        .arg(program);
    run(command, host)
}

fn shell(home: &Path) -> Command {
    let mut command = clean(Path::new("/bin/sh"), home);
    for root in ["tools", "skills", "scratch", "results"] {
        command.env(format!("MOORING_{}", root.to_uppercase()), home.join(root));
    }
    command.args(["-c", TO_DESCRIPTOR_3, "sh"]);
    command
}

fn run(mut command: Command, host: impl FnMut(&Value) -> Deed + Send) -> Ran {
    let (near, far) = UnixStream::pair().unwrap();
    let child: Child = command
        .stdin(Stdio::from(OwnedFd::from(far)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The command holds the far end too.
    drop(command);
    thread::scope(|scope| {
        let serving = scope.spawn(|| serve(near, host));
        let output = child.wait_with_output().unwrap();
        Ran {
            output,
            calls: serving.join().unwrap(),
        }
    })
}

fn serve(mut stream: UnixStream, mut host: impl FnMut(&Value) -> Deed) -> Vec<Value> {
    let mut calls = Vec::new();
    let mut kept = Vec::new();
    while let Some(call) = read(&mut stream) {
        match host(&call) {
            Deed::Answer(answer) => {
                kept.push(answer);
                for answer in kept.drain(..).rev() {
                    // A program that has ended reads nothing any more.
                    let _ = stream.write_all(&frame(&answer));
                }
            }
            Deed::Keep(answer) => kept.push(answer),
            Deed::Write(bytes) => {
                let _ = stream.write_all(&bytes);
            }
            Deed::Close => {
                calls.push(call);
                let _ = stream.shutdown(std::net::Shutdown::Both);
                break;
            }
        }
        calls.push(call);
    }
    calls
}

fn read(stream: &mut UnixStream) -> Option<Value> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).ok()?;
    let mut body = vec![0; usize::try_from(u32::from_be_bytes(head)).unwrap()];
    stream.read_exact(&mut body).ok()?;
    Some(serde_json::from_slice(&body).unwrap())
}

/// An answer as bytes.
pub(super) fn frame(answer: &Value) -> Vec<u8> {
    let body = serde_json::to_vec(answer).unwrap();
    let mut frame = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(body);
    frame
}

/// The answer of a call: who was called with what.
pub(super) fn echo(call: &Value) -> Value {
    let result =
        json!({"server": call["server"], "tool": call["tool"], "arguments": call["arguments"]});
    json!({"id": call["id"], "result": result})
}

/// Programs print what they got, so that both languages are held against the same lines.
pub(super) fn print_lines(ran: &Ran) -> Vec<String> {
    ran.printed().lines().map(str::to_owned).collect()
}

/// A host that answers every call at once.
pub(super) fn answering(call: &Value) -> Deed {
    Deed::Answer(echo(call))
}

/// A host that answers only when this many calls are open, and the last first.
pub(super) fn together(count: usize) -> impl FnMut(&Value) -> Deed + Send {
    let mut open = 0;
    move |call| {
        open += 1;
        if open % count == 0 {
            Deed::Answer(echo(call))
        } else {
            Deed::Keep(echo(call))
        }
    }
}
