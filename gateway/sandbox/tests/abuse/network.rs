//! 78 to 86: what code reaches of the network, and of the sockets of the machine.
//!
//! Everything it may try to reach listens here: a service that tells a secret over every kind of socket, and notes who
//! came. Controls have to come through; from inside, nobody may even have come.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::arena::{Arena, limits};
use crate::attack::{Attack, attack, check_python, check_typescript};
use crate::outside::Control;
use crate::planted::random;
use crate::who::everybody;

/// `ask` connects, says which attack it is, and returns what it was told.
const SOCKETS: &[Attack] = &[
    attack(
        78,
        "a service of the machine",
        r#"return ask(2, ("127.0.0.1", PORT), "78")"#,
    ),
    attack(
        79,
        "the gateway's own port",
        r#"return ask(2, ("127.0.0.1", GATEWAY_PORT), "79")"#,
    ),
    attack(
        78,
        "the same by its name",
        r#"return ask(2, ("localhost", PORT), "78-name")"#,
    ),
    attack(
        83,
        "a service over IPv6",
        r#"return ask(10, ("::1", PORT6), "83")"#,
    ),
    attack(
        84,
        "an abstract socket",
        r#"return ask(1, "\0" + ABSTRACT, "84")"#,
    ),
    attack(85, "a socket by its path", r#"return ask(1, SOCKET, "85")"#),
    attack(
        85,
        "a socket in /tools",
        r#"return ask(1, TOOLS + "/redis.sock", "85-tools")"#,
    ),
    attack(
        80,
        "the address of a cloud's metadata",
        r#"
import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    one.connect(("169.254.169.254", 80))
except OSError as error:
    # A machine without a route answers this; the socket is there.
    if error.errno != errno.ENETUNREACH:
        raise"#,
    ),
    attack(
        82,
        "a datagram",
        r#"
import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(10)
one.sendto(b"82", ("127.0.0.1", UDP_PORT))
return one.recv(1000)"#,
    ),
    attack(
        81,
        "a name looked up",
        r#"
import socket
return socket.getaddrinfo("localhost", 80)"#,
    ),
    attack(
        79,
        "a port of its own",
        r#"
import socket
one = socket.socket()
one.bind(("127.0.0.1", 0))
one.listen()"#,
    ),
    attack(
        85,
        "a socket file of its own",
        r#"
import socket
socket.socket(socket.AF_UNIX).bind("own.sock")"#,
    ),
    attack(80, "a raw socket call", "return call(41, 2, 1, 0)"),
];

const ASK: &str = r#"
def ask(family, address, which):
    import socket
    one = socket.socket(family, socket.SOCK_STREAM)
    one.settimeout(10)
    one.connect(address)
    one.sendall(f"GET /{which} HTTP/1.0\r\n\r\n".encode())
    return one.recv(1000)
"#;

const DENO_NETWORK: &[Attack] = &[
    attack(
        86,
        "fetch",
        "return await (await fetch(`http://127.0.0.1:${PORT}/fetch`)).text()",
    ),
    attack(
        86,
        "a remote module",
        "return (await import(`http://127.0.0.1:${PORT}/import.js`)).told",
    ),
    attack(
        86,
        "a remote worker",
        r#"
const worker = new Worker(`http://127.0.0.1:${PORT}/worker.js`, { type: "module" });
try {
  await new Promise((resolve, reject) => {
    worker.onmessage = resolve;
    worker.onerror = (event) => { event.preventDefault(); reject(new Error(event.message)); };
  });
} finally {
  worker.terminate();
}"#,
    ),
    attack(
        86,
        "a WebSocket",
        r#"
const socket = new WebSocket(`ws://127.0.0.1:${PORT}/websocket`);
await new Promise((resolve) => { socket.onopen = resolve; socket.onerror = (event) => { event.preventDefault?.(); resolve(0); }; });"#,
    ),
    attack(
        78,
        "a connection",
        r#"
const connection = await Deno.connect({ hostname: "127.0.0.1", port: PORT });
await connection.write(new TextEncoder().encode("GET /connect HTTP/1.0\r\n\r\n"));
const told = new Uint8Array(1000);
await connection.read(told);
connection.close();
return new TextDecoder().decode(told);"#,
    ),
    attack(
        78,
        "a connection by node",
        r#"
const net = await import("node:net");
await new Promise((resolve, reject) => {
  const one = net.connect(PORT, "127.0.0.1", () => { one.destroy(); resolve(0); });
  one.on("error", reject);
});"#,
    ),
    attack(
        85,
        "a socket by its path",
        r#"
(await Deno.connect({ transport: "unix", path: SOCKET })).close();"#,
    ),
    attack(
        81,
        "a name looked up",
        r#"
const dns = await import("node:dns");
return await new Promise((resolve, reject) =>
  dns.lookup("localhost", (error, address) => error ? reject(error) : resolve(address)));"#,
    ),
    attack(
        79,
        "a port of its own",
        "Deno.listen({ hostname: \"127.0.0.1\", port: 0 }).close()",
    ),
    attack(
        86,
        "the network's interfaces",
        "return Deno.networkInterfaces().length",
    ),
];

#[test]
fn python_reaches_no_socket() {
    everybody("network::python_reaches_no_socket", |arena| {
        let services = Services::start(arena);
        let mut names = services.names();
        // The name stands for the function, because tables are told names and values.
        names.push(("ask", format!("None\n{ASK}")));
        let come = services.noted();
        check_python(arena, Control::Plain, &names, SOCKETS);
        let controls = ["78", "79", "78-name", "82", "83", "84", "85", "85-tools"];
        services.were_reached_only_by(come, &controls);
    });
}

#[test]
fn deno_reaches_no_socket() {
    everybody("network::deno_reaches_no_socket", |arena| {
        let services = Services::start(arena);
        let come = services.noted();
        check_typescript(arena, &services.names(), DENO_NETWORK);
        services.were_reached_only_by(
            come,
            &["fetch", "import.js", "worker.js", "websocket", "connect"],
        );
    });
}

/// 86: a static import is refused before anything of the program runs.
#[test]
fn a_static_remote_import_is_refused() {
    everybody("network::a_static_remote_import_is_refused", |arena| {
        let services = Services::start(arena);
        let come = services.noted();
        let source = format!(
            "import {{ told }} from \"http://127.0.0.1:{}/static.js\";\nconsole.log(told);\n",
            services.port
        );
        let control = arena.typescript_outside(&source);
        assert!(control.contains(arena.planted.secret()), "{control}");
        let run = arena.typescript_within(&source, limits());
        assert_ne!(run.ended, mooring_sandbox::RunEnd::Exited(0), "{run:?}");
        services.were_reached_only_by(come, &["static.js"]);
        arena.is_fine();
    });
}

/// Everything that listens.
pub(crate) struct Services {
    port: u16,
    gateway_port: u16,
    port6: u16,
    udp_port: u16,
    abstract_name: String,
    path: PathBuf,
    noted: Arc<Mutex<Vec<String>>>,
}

impl Services {
    pub(crate) fn start(arena: &Arena<'_>) -> Self {
        let noted = Arc::default();
        let secret = arena.planted.secret();
        let tcp = |address: &str| {
            let listener = TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            let incoming = move || listener.accept().map(|(stream, _)| stream);
            tell(incoming, secret, &noted);
            port
        };
        let unix = |address: &SocketAddr| {
            let listener = UnixListener::bind_addr(address).unwrap();
            let incoming = move || listener.accept().map(|(stream, _)| stream);
            tell(incoming, secret, &noted);
        };
        let abstract_name = format!("abuse-{:x}", random());
        unix(&SocketAddr::from_abstract_name(&abstract_name).unwrap());
        let path = arena.planted.root().join("redis.sock");
        for path in [
            &path,
            &arena.planted.tools().join("redis.sock"),
            &arena.planted.outside().join("tools/redis.sock"),
        ] {
            let _ = std::fs::remove_file(path);
            unix(&SocketAddr::from_pathname(path).unwrap());
        }
        let udp_port = answer_datagrams(secret, &noted);
        Self {
            port: tcp("127.0.0.1:0"),
            gateway_port: tcp("127.0.0.1:0"),
            port6: tcp("[::1]:0"),
            udp_port,
            abstract_name,
            path,
            noted,
        }
    }

    pub(crate) fn names(&self) -> Vec<(&'static str, String)> {
        vec![
            ("PORT", self.port.to_string()),
            ("GATEWAY_PORT", self.gateway_port.to_string()),
            ("PORT6", self.port6.to_string()),
            ("UDP_PORT", self.udp_port.to_string()),
            ("ABSTRACT", format!("{:?}", self.abstract_name)),
            ("SOCKET", format!("{:?}", self.path)),
        ]
    }

    /// How many have come so far.
    pub(crate) fn noted(&self) -> usize {
        self.noted.lock().unwrap().len()
    }

    /// Since `come`, each of `controls` came once, and nobody else.
    pub(crate) fn were_reached_only_by(&self, come: usize, controls: &[&str]) {
        let mut noted: Vec<String> = self.noted.lock().unwrap()[come..].to_vec();
        // Connections that said nothing are those of attacks that only connect: as many as the control has.
        noted.retain(|which| !which.is_empty());
        noted.sort();
        let mut expected: Vec<String> = controls.iter().map(|&which| which.to_owned()).collect();
        expected.sort();
        assert_eq!(noted, expected, "who came");
    }
}

/// Tells the secret to whoever comes, as a module of JavaScript over HTTP.
fn tell<S>(
    incoming: impl Fn() -> std::io::Result<S> + Send + 'static,
    secret: &str,
    noted: &Arc<Mutex<Vec<String>>>,
) where
    S: std::io::Read + std::io::Write + Send + 'static,
{
    let body = format!("export const told = \"{secret}\"; globalThis.postMessage?.(told);");
    let noted = Arc::clone(noted);
    thread::spawn(move || {
        while let Ok(mut stream) = incoming() {
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap_or(0);
            let line = String::from_utf8_lossy(&request[..length]).into_owned();
            let which = line
                .split_whitespace()
                .nth(1)
                .unwrap_or_default()
                .trim_start_matches('/')
                .to_owned();
            noted.lock().unwrap().push(which);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/javascript\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
}

fn answer_datagrams(secret: &str, noted: &Arc<Mutex<Vec<String>>>) -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(600)))
        .unwrap();
    let port = socket.local_addr().unwrap().port();
    let (secret, noted) = (secret.to_owned(), Arc::clone(noted));
    thread::spawn(move || {
        let mut packet = [0; 100];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            noted
                .lock()
                .unwrap()
                .push(String::from_utf8_lossy(&packet[..length]).into_owned());
            let _ = socket.send_to(secret.as_bytes(), from);
        }
    });
    port
}
