//! A load balancer of connections in front of a fleet. It knows no HTTP: a connection goes to the next gateway that
//! accepts it, or to the preferred one, and breaks with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The balancer. Dropping it closes its connections.
#[derive(Debug)]
pub struct Balancer {
    port: u16,
    preferred: Arc<AtomicUsize>,
    _connections: JoinSet<()>,
}

/// No gateway is preferred.
const NONE: usize = usize::MAX;

impl Balancer {
    /// Starts in front of these ports of 127.0.0.1.
    pub async fn start(ports: Vec<u16>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let port = listener.local_addr()?.port();
        let preferred = Arc::new(AtomicUsize::new(NONE));
        let of_connections = Arc::clone(&preferred);
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut open = JoinSet::new();
            let mut turn: usize = 0;
            while let Ok((client, _)) = listener.accept().await {
                let first = match of_connections.load(Ordering::Relaxed) {
                    NONE => turn,
                    preferred => preferred,
                };
                turn = turn.wrapping_add(1);
                let mut ports = ports.clone();
                let middle = first.checked_rem(ports.len()).unwrap_or_default();
                ports.rotate_left(middle);
                open.spawn(serve(client, ports));
                while open.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            port,
            preferred,
            _connections: connections,
        })
    }

    /// From now on new connections go to this gateway first, or to each in turn.
    pub fn prefer(&self, gateway: Option<usize>) {
        self.preferred
            .store(gateway.unwrap_or(NONE), Ordering::Relaxed);
    }

    /// A URL behind the balancer; `path` begins with a slash.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

/// Joins the client with the first of the ports that accepts, until one side ends.
async fn serve(mut client: TcpStream, ports: Vec<u16>) {
    for port in ports {
        if let Ok(mut gateway) = TcpStream::connect(("127.0.0.1", port)).await {
            let (mut from_client, mut to_client) = client.split();
            let (mut from_gateway, mut to_gateway) = gateway.split();
            // One end that closes closes the other.
            tokio::select! {
                _ = tokio::io::copy(&mut from_client, &mut to_gateway) => {}
                _ = tokio::io::copy(&mut from_gateway, &mut to_client) => {}
            }
            return;
        }
    }
}
