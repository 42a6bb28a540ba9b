//! 87: with a way out over the host's proxy, everything else of the network stays out of reach.
//!
//! The proxy here answers every request with the same line. What a real one may reach is tested where it is.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use mooring_sandbox::{
    Job, Limits, ListenerCallback, Network, Program, RunEnd, RunError, StopHandle, Tier,
};
use rustix::net::{Shutdown, shutdown};

use crate::aftermath::Before;
use crate::arena::{Arena, Run, limits, trees};
use crate::network::Services;
use crate::who::{everybody, everybody_in};

const ANSWER: &str =
    "HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\nConnection: close\r\n\r\nthe proxy";

/// Answers what it is asked until it is ended, and notes the first line of each request.
#[derive(Clone, Default)]
struct Proxy(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    listener: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    asked: Vec<String>,
}

impl Proxy {
    fn network(&self) -> Network {
        let proxy = self.clone();
        Network::Proxy(ListenerCallback::new(move |listener| proxy.take(listener)))
    }

    fn take(&self, listener: OwnedFd) {
        let accepting = TcpListener::from(listener.try_clone().unwrap());
        let proxy = self.clone();
        let thread = thread::spawn(move || {
            while let Ok((mut stream, _)) = accepting.accept() {
                let mut head = [0; 4096];
                let read = stream.read(&mut head).unwrap_or(0);
                let text = String::from_utf8_lossy(&head[..read]).into_owned();
                let line = text.lines().next().unwrap_or_default().to_owned();
                proxy.0.lock().unwrap().asked.push(line);
                let _ = stream.write_all(ANSWER.as_bytes());
            }
        });
        let mut state = self.0.lock().unwrap();
        (state.listener, state.thread) = (Some(listener), Some(thread));
    }

    /// Ends it: what it was asked.
    fn end(&self) -> Vec<String> {
        let (listener, thread) = {
            let mut state = self.0.lock().unwrap();
            (state.listener.take(), state.thread.take())
        };
        if let Some(listener) = listener {
            shutdown(&listener, Shutdown::Both).unwrap();
        }
        if let Some(thread) = thread {
            thread.join().unwrap();
        }
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }
}

/// Runs a program that may ask the proxy: what it came to, and what the proxy was asked.
fn run_with_proxy(arena: &Arena<'_>, program: Program) -> (Run, Vec<String>) {
    let stop = StopHandle::new().unwrap();
    let before = Before::look(arena);
    let proxy = Proxy::default();
    let (host, bridge) = UnixStream::pair().unwrap();
    let within = Limits {
        memory_bytes: 512 << 20,
        ..limits()
    };
    let run = arena.run_connected(program, within, &stop, bridge.into(), proxy.network());
    drop(host);
    let asked = proxy.end();
    before.compare(arena);
    (run, asked)
}

/// What is tried directly, and what each attempt has to come to, whatever listens on the machine.
const DIRECT: &str = r#"
import errno, os, socket

def attempt(name, action):
    try:
        action()
        print(name, "done")
    except OSError as error:
        print(name, errno.errorcode.get(error.errno, error.errno))

def connect(address):
    one = socket.socket()
    one.settimeout(20)
    one.connect(address)

def send_at_once(address):
    one = socket.socket()
    one.sendto(b"x", 0x20000000, address)

def refused_options():
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, 25, b"lo\0")

attempt("machine", lambda: connect(("127.0.0.1", PORT)))
attempt("gateway", lambda: connect(("127.0.0.1", GATEWAY_PORT)))
attempt("metadata", lambda: connect(("169.254.169.254", 80)))
attempt("private", lambda: connect(("10.0.0.1", 80)))
attempt("public", lambda: connect(("93.184.215.14", 443)))
attempt("other port", lambda: connect(("127.0.0.1", 3129)))
attempt("any", lambda: connect(("0.0.0.0", PORT)))
attempt("fast open", lambda: send_at_once(("127.0.0.1", PORT)))
attempt("IPv6", lambda: socket.socket(socket.AF_INET6))
attempt("datagram", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW))
attempt("multipath", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM))
attempt("unix", lambda: socket.socket(socket.AF_UNIX))
attempt("vsock", lambda: socket.socket(socket.AF_VSOCK))
attempt("bind", lambda: socket.socket().bind(("127.0.0.1", 0)))
attempt("listen", lambda: socket.socket().listen())
attempt("option", refused_options)
attempt("name", lambda: socket.getaddrinfo("example.com", 80))
attempt("proxy", lambda: connect(("127.0.0.1", 3128)))
"#;

/// Names and the errors that they may come to.
const EXPECTED: &[(&str, &[&str])] = &[
    ("machine", REFUSED),
    ("gateway", REFUSED),
    ("metadata", NOWHERE),
    ("private", NOWHERE),
    ("public", NOWHERE),
    ("other port", REFUSED),
    ("any", REFUSED),
    ("fast open", &["ENOSYS"]),
    ("IPv6", &["ENOSYS"]),
    ("datagram", &["ENOSYS"]),
    ("raw", &["ENOSYS"]),
    ("multipath", &["ENOSYS"]),
    ("netlink", &["ENOSYS"]),
    ("packet", &["ENOSYS"]),
    ("unix", &["ENOSYS"]),
    ("vsock", &["ENOSYS"]),
    ("bind", &["ENOSYS"]),
    ("listen", &["ENOSYS"]),
    ("option", &["ENOSYS"]),
    // The numbers of the resolver's own errors are negative.
    ("name", &["-3", "-2"]),
    ("proxy", &["done"]),
];

/// By the access rules, or because nothing listens in the namespace.
const REFUSED: &[&str] = &["EACCES", "ECONNREFUSED"];

/// By the access rules, or because the namespace has no route.
const NOWHERE: &[&str] = &["EACCES", "ENETUNREACH"];

#[test]
fn python_reaches_the_proxy_and_nothing_else() {
    everybody_in(
        &[Tier::Strict],
        "raw_http::python_reaches_the_proxy_and_nothing_else",
        |arena| {
            let services = Services::start(arena);
            let come = services.noted();
            let names: String = services
                .names()
                .iter()
                .map(|(name, value)| format!("{name} = {value}\n"))
                .collect();
            let source = format!("{names}{DIRECT}");
            let program = Program::Python { source };
            let (run, asked) = run_with_proxy(arena, program);
            assert_eq!(run.ended, RunEnd::Exited(0), "{run:?}");
            for (line, (name, allowed)) in run.stdout.lines().zip(EXPECTED) {
                let found = line.strip_prefix(&format!("{name} "));
                let is_expected = found.is_some_and(|found| allowed.contains(&found));
                assert!(is_expected, "{name}: {}", run.stdout);
            }
            assert_eq!(run.stdout.lines().count(), EXPECTED.len(), "{run:?}");
            assert_eq!(asked, [""], "the one connection said nothing");
            services.were_reached_only_by(come, &[]);
            arena.is_fine();
        },
    );
}

#[test]
fn clients_of_both_languages_ask_the_proxy() {
    everybody_in(
        &[Tier::Strict],
        "raw_http::clients_of_both_languages_ask_the_proxy",
        |arena| {
            let source = r#"
import ssl, urllib.error, urllib.request
for address in ("http://example.com/page", "http://127.0.0.1/", "https://example.com/"):
    try:
        urllib.request.urlopen(address, timeout=20)
    except urllib.error.HTTPError as error:
        print(error.code, error.read())
    except urllib.error.URLError as error:
        print(error.reason)
print(ssl.create_default_context().cert_store_stats()["x509_ca"] > 0)
"#;
            let program = Program::Python {
                source: source.to_owned(),
            };
            let (run, asked) = run_with_proxy(arena, program);
            let expected = "403 b'the proxy'\n403 b'the proxy'\n\
                Tunnel connection failed: 403 Forbidden\nTrue\n";
            assert_eq!(run.stdout, expected, "{run:?}");
            let lines = [
                "GET http://example.com/page HTTP/1.1",
                "GET http://127.0.0.1/ HTTP/1.1",
            ];
            assert_eq!(asked[..2], lines);
            assert!(
                asked[2].starts_with("CONNECT example.com:443 "),
                "{asked:?}"
            );

            let source = r#"
const answer = await fetch("http://example.com/page");
console.log(answer.status, await answer.text());
try { await fetch("https://example.com/"); } catch (error) { console.log(error.name); }
for (const attempt of [
  () => Deno.connect({ hostname: "127.0.0.1", port: 3129 }),
  () => Deno.connect({ hostname: "example.com", port: 80 }),
  () => Deno.listen({ port: 0 }),
  () => Deno.connect({ transport: "unix", path: "/tmp/socket" }),
  () => Deno.resolveDns("example.com", "A"),
  () => import("http://example.com/module.js"),
]) {
  try { await attempt(); console.log("done"); } catch { console.log("refused"); }
}
"#;
            let program = Program::TypeScript {
                source: source.to_owned(),
            };
            let (run, asked) = run_with_proxy(arena, program);
            let expected = format!("403 the proxy\nTypeError\n{}", "refused\n".repeat(6));
            assert_eq!(run.stdout, expected, "{run:?}");
            assert_eq!(asked.len(), 2, "{asked:?}");
        },
    );
}

/// Nothing of it is there for a run that was not given it, in either tier.
#[test]
fn without_it_no_variable_names_it() {
    everybody("raw_http::without_it_no_variable_names_it", |arena| {
        let source = "import os\nprint([name for name in os.environ if 'proxy' in name.lower() or 'CERT' in name])";
        let run = arena.python(source);
        assert_eq!(run.stdout, "[]\n", "{run:?}");
    });
}

#[test]
fn the_degraded_tier_has_none() {
    everybody_in(
        &[Tier::Degraded],
        "raw_http::the_degraded_tier_has_none",
        |arena| {
            let proxy = Proxy::default();
            let job = Job {
                program: Program::Python {
                    source: "print('ran')".to_owned(),
                },
                trees: trees(arena.planted),
                limits: limits(),
                bridge: None,
                network: proxy.network(),
            };
            let refused = arena.sandbox.run(job, &StopHandle::new().unwrap());
            assert!(
                matches!(refused, Err(RunError::NetworkNeedsStrict)),
                "{refused:?}"
            );
            assert_eq!(proxy.end(), [""; 0]);
        },
    );
}
