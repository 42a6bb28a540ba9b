//! Code in a real sandbox and the proxy together: what is allowed is reached by the clients of both languages, and
//! nothing else is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "a test fails by panicking"
)]

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mooring_code::proxy::{AddressPolicy, Proxy, Traffic};
use mooring_sandbox::tree::TreeAccess;
use mooring_sandbox::{
    Job, Limits, ListenerCallback, Network, Options, Program, RunEnd, Sandbox, SessionTrees,
    StopHandle, Tier,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const LIMITS: Limits = Limits {
    wall_time: Duration::from_secs(60),
    cpu_time: Duration::from_secs(60),
    cpu_percent: 100,
    memory_bytes: 512 << 20,
    file_bytes: 1 << 20,
    disk_bytes: 8 << 20,
    inodes: 256,
    processes: 64,
    output_bytes: 64 << 10,
    access: TreeAccess::WHOLE,
};

/// What a run came to.
struct Ran {
    output: String,
    traffic: Traffic,
}

async fn run(program: Program, policy: AddressPolicy) -> Ran {
    let (proxy, take) = Proxy::prepare(Arc::new(policy), 8);
    let network = Network::Proxy(ListenerCallback::new(take));
    let outcome = tokio::task::spawn_blocking(move || {
        let session = TempDir::new().unwrap();
        let tree = |name: &str| {
            let path = session.path().join(name);
            fs::create_dir(&path).unwrap();
            OwnedFd::from(File::open(path).unwrap())
        };
        let trees = SessionTrees {
            tools: tree("tools"),
            skills: tree("skills"),
            scratch: tree("scratch"),
            results: tree("results"),
        };
        fs::write(session.path().join("tools/_import_map.json"), "{}").unwrap();
        let job = Job {
            program,
            trees,
            limits: LIMITS,
            bridge: None,
            network,
        };
        sandbox().run(job, &StopHandle::new().unwrap()).unwrap()
    })
    .await
    .unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let errors = said(&outcome.stderr.bytes);
    assert_eq!(outcome.ended, RunEnd::Exited(0), "{errors}");
    Ran {
        output: said(&outcome.stdout.bytes),
        traffic: proxy.end().await,
    }
}

fn sandbox() -> Sandbox {
    let deno = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/bin/deno");
    Sandbox::probe(Options {
        launcher: env!("CARGO_BIN_EXE_mooring").into(),
        deno: Some(
            fs::canonicalize(deno).expect("deno is missing: run tests/tools/install.sh tools"),
        ),
        ..Options::new(Tier::Strict)
    })
    .expect("this machine has every wall of the tier")
}

/// A server of this machine that says `hello`, whatever it is asked.
async fn server() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    address
}

fn python(address: SocketAddr) -> Program {
    let source = format!(
        r#"
import socket, urllib.error, urllib.request
def ask(address):
    try:
        return urllib.request.urlopen(address, timeout=30).read().decode()
    except urllib.error.HTTPError as error:
        return f"{{error.code}} {{error.read().decode().strip()}}"
    except urllib.error.URLError as error:
        return error.reason
print(ask("http://{address}/"))
print(ask("http://{address}/again"))
print(ask("http://10.0.0.1/"))
print(ask("http://localhost/"))
print(ask("https://169.254.169.254/"))
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=30)
except OSError as error:
    print(type(error).__name__)
"#,
        port = address.port(),
    );
    Program::Python { source }
}

#[tokio::test(flavor = "multi_thread")]
async fn python_reaches_what_is_allowed() {
    let address = server().await;
    let ran = run(python(address), AddressPolicy::allowing([address])).await;
    let lines: Vec<&str> = ran.output.lines().collect();
    assert_eq!(lines[..2], ["hello", "hello"]);
    assert_eq!(
        lines[2],
        "403 mooring: the destination is not a public address"
    );
    assert!(lines[3].starts_with("403 mooring: "), "{lines:?}");
    assert_eq!(lines[4], "Tunnel connection failed: 403 Forbidden");
    assert!(
        ["PermissionError", "ConnectionRefusedError"].contains(&lines[5]),
        "{lines:?}"
    );
    let words: Vec<_> = ran
        .traffic
        .refused
        .iter()
        .map(|refused| refused.why.to_string())
        .collect();
    assert_eq!(words, ["the destination is not a public address"; 3]);
    assert_eq!((ran.traffic.connections, ran.traffic.refused.len()), (2, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn deno_reaches_what_is_allowed() {
    let address = server().await;
    let source = format!(
        r#"
for (const address of ["http://{address}/", "http://10.0.0.1/"]) {{
  const answer = await fetch(address);
  console.log(answer.status, (await answer.text()).trim());
}}
for (const address of ["https://10.0.0.1/", "ftp://{address}/"]) {{
  try {{ await fetch(address); console.log("done"); }} catch {{ console.log("refused"); }}
}}
"#
    );
    let ran = run(
        Program::TypeScript { source },
        AddressPolicy::allowing([address]),
    )
    .await;
    assert_eq!(
        ran.output,
        "200 hello\n403 mooring: the destination is not a public address\nrefused\nrefused\n"
    );
    assert_eq!((ran.traffic.connections, ran.traffic.refused.len()), (1, 2));
}

/// The same server, and a policy that allows what is public: nothing of this machine is.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_this_machine_is_not_public() {
    let address = server().await;
    let ran = run(python(address), AddressPolicy::public([])).await;
    assert!(!ran.output.contains("hello"), "{}", ran.output);
    assert_eq!((ran.traffic.connections, ran.traffic.refused.len()), (0, 5));
}
