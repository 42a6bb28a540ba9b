//! A host that vanishes: what arrives for it is neither acknowledged nor refused, over new connections as over those that
//! were open. Its server lives on.

use std::time::Duration;

use mooring_tests::fixture::Fixture;
use mooring_tests::port::free_port;
use socket2::{SockFilter, SockRef};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// How long it may take until every socket is deaf, on a busy machine.
const DEAF_WITHIN: Duration = Duration::from_secs(60);

/// The address of a host that can vanish, and return with all that its server remembers.
pub(crate) struct VanishingHost {
    port: u16,
    server_port: u16,
    has_vanished: watch::Sender<bool>,
    forwarding: JoinHandle<()>,
}

impl VanishingHost {
    pub(crate) async fn of(server: &Fixture) -> anyhow::Result<Self> {
        // It is bound again later, so it must be none that the kernel gives to others meanwhile.
        let (port, server_port) = (free_port()?, server.port());
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let has_vanished = watch::Sender::new(false);
        let forwarding = tokio::spawn(forward(listener, server_port, has_vanished.subscribe()));
        Ok(Self {
            port,
            server_port,
            has_vanished,
            forwarding,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Returns once nothing that arrives is acknowledged any more.
    pub(crate) async fn vanish(&mut self) -> anyhow::Result<()> {
        self.has_vanished.send(true)?;
        // Each task drops its receiver once its socket is deaf.
        tokio::time::timeout(DEAF_WITHIN, self.has_vanished.closed()).await?;
        Ok(())
    }

    pub(crate) async fn come_back(&mut self) -> anyhow::Result<()> {
        self.forwarding.abort();
        let _ = (&mut self.forwarding).await;
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await?;
        self.has_vanished = watch::Sender::new(false);
        let watching = self.has_vanished.subscribe();
        self.forwarding = tokio::spawn(forward(listener, self.server_port, watching));
        Ok(())
    }
}

impl Drop for VanishingHost {
    fn drop(&mut self) {
        self.forwarding.abort();
    }
}

/// Lets the kernel drop all that arrives for this socket before it is acknowledged.
fn make_deaf(socket: SockRef<'_>) {
    const RETURN: u16 = 0x06;
    let drop_all = [SockFilter::new(RETURN, 0, 0, 0)];
    socket.attach_filter(&drop_all).expect("a socket filter");
}

async fn vanished(watching: &mut watch::Receiver<bool>) {
    let _ = watching.wait_for(|has_vanished| *has_vanished).await;
}

/// Passes connections on to the server until the host vanishes. They end with the task.
async fn forward(listener: TcpListener, server_port: u16, mut watching: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = vanished(&mut watching) => break,
        };
        let Ok((client, _)) = accepted else { break };
        connections.spawn(pass_on(client, server_port, watching.clone()));
    }
    make_deaf(SockRef::from(&listener));
    drop(watching);
    std::future::pending::<()>().await;
}

async fn pass_on(mut client: TcpStream, server_port: u16, mut watching: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server_port)).await else {
        return;
    };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        () = vanished(&mut watching) => {
            make_deaf(SockRef::from(&client));
            drop(watching);
            // What the server answers goes nowhere.
            std::future::pending::<()>().await;
        }
    }
}
