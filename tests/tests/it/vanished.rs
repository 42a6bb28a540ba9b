//! The host of an instance vanishes: connects to it are neither accepted nor refused.

use std::time::Duration;

use anyhow::ensure;
use mooring_tests::client::HttpClient;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::port::free_port;
use mooring_tests::session::McpSession;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::recovery::{attempt, call, count_of, mark_of, whoami};
use crate::rig::kept;

/// A connect to loopback that takes so long is not accepted.
const HANGS_AFTER: Duration = Duration::from_millis(500);
/// Most connections that an accept queue of length 0 takes.
const QUEUED_MAX: usize = 16;

/// The address of a host that can vanish, and return with all that its server remembers.
struct Host {
    port: u16,
    server_port: u16,
    state: HostState,
}

enum HostState {
    Present(JoinHandle<()>),
    /// A listener that accepts nothing, and the connections that fill its queue.
    Vanished(#[expect(dead_code, reason = "held open")] (TcpListener, Vec<TcpStream>)),
}

impl Host {
    async fn of(server: &Fixture) -> anyhow::Result<Self> {
        // It is bound again later, so it must be none that the kernel gives to others meanwhile.
        let (port, server_port) = (free_port()?, server.port());
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let state = HostState::Present(tokio::spawn(forward(listener, server_port)));
        Ok(Self {
            port,
            server_port,
            state,
        })
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    async fn vanish(&mut self) -> anyhow::Result<()> {
        if let HostState::Present(forwarding) = &mut self.state {
            forwarding.abort();
            let _ = forwarding.await;
        }
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(([127, 0, 0, 1], self.port).into())?;
        let listener = socket.listen(0)?;
        let mut queued = Vec::new();
        while let Ok(connection) =
            tokio::time::timeout(HANGS_AFTER, TcpStream::connect(("127.0.0.1", self.port))).await
        {
            queued.push(connection?);
            ensure!(queued.len() < QUEUED_MAX, "the queue does not fill");
        }
        self.state = HostState::Vanished((listener, queued));
        Ok(())
    }

    async fn come_back(&mut self) -> anyhow::Result<()> {
        self.state = HostState::Present(tokio::spawn(std::future::ready(())));
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await?;
        self.state = HostState::Present(tokio::spawn(forward(listener, self.server_port)));
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let HostState::Present(forwarding) = &self.state {
            forwarding.abort();
        }
    }
}

/// Passes connections on to the server; they end with the task.
async fn forward(listener: TcpListener, server_port: u16) {
    let mut connections = JoinSet::new();
    while let Ok((mut client, _)) = listener.accept().await {
        connections.spawn(async move {
            if let Ok(mut server) = TcpStream::connect(("127.0.0.1", server_port)).await {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}

/// Connects fail fast, and each is made anew.
fn settings(instances: &[String]) -> Settings {
    kept(instances)
        .env("MOORING_UPSTREAM_CONNECT_TIMEOUT_MS", "200")
        .env("MOORING_UPSTREAM_IDLE_CONNECTION_MS", "0")
}

/// A session that has counted once at the instance of this name.
async fn session_at(gateway: &Gateway, instance: &str) -> anyhow::Result<McpSession> {
    let client = HttpClient::default();
    loop {
        let mut session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
        if whoami(&mut session).await?.instance == instance {
            assert_eq!(session.increment().await?, 1);
            return Ok(session);
        }
    }
}

#[tokio::test]
async fn a_session_leaves_a_host_that_vanished() -> anyhow::Result<()> {
    let (vanishing, other) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let mut host = Host::of(&vanishing).await?;
    let gateway = Gateway::start("one", settings(&[host.url(), other.url()])).await?;
    let mut session = session_at(&gateway, "a").await?;
    let mut second = session_at(&gateway, "a").await?;
    host.vanish().await?;

    for session in [&mut session, &mut second] {
        let moved = call(session, "increment").await?;
        assert_eq!(count_of(&moved), Some(1), "{moved:?}");
        let mark = mark_of(&moved).expect("the client is told");
        assert_eq!(mark["from"], "instance-1");
        assert_eq!(mark["to"], "instance-2");
        assert_eq!(mark["reason"], "upstream instance cannot be reached");
        let next = call(session, "increment").await?;
        assert_eq!((count_of(&next), mark_of(&next)), (Some(2), None));
    }
    // New sessions are not tried there first.
    let client = HttpClient::default();
    let mut fresh = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
    assert_eq!(whoami(&mut fresh).await?.instance, "b");
    Ok(())
}

#[tokio::test]
async fn a_session_stays_where_no_other_instance_answers() -> anyhow::Result<()> {
    let (vanishing, mut other) = (Fixture::start("a").await?, Fixture::start("b").await?);
    let mut host = Host::of(&vanishing).await?;
    let gateway = Gateway::start("one", settings(&[host.url(), other.url()])).await?;
    let mut session = session_at(&gateway, "a").await?;
    host.vanish().await?;
    other.process().kill_now()?;

    for _ in 0..2 {
        let refused = attempt(&mut session, "increment").await?;
        assert_eq!(refused.status, 503, "{refused:?}");
    }
    host.come_back().await?;
    let next = call(&mut session, "increment").await?;
    assert_eq!((count_of(&next), mark_of(&next)), (Some(2), None));
    Ok(())
}
