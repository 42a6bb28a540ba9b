//! An address in front of a primary, from which the sentinels and replicas can be cut off while gateways are not.
//!
//! They are told apart by the address that they connect from. Invariant: a connection that was cut off stays open, and
//! nothing passes it any more, as where a network fails.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Context;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Where sentinels and replicas connect from.
pub(super) const FAR_SIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The address. Dropping it closes its connections.
pub(super) struct PartitionedAddress {
    pub(super) port: u16,
    is_cut: watch::Sender<bool>,
    _connections: JoinSet<()>,
}

impl PartitionedAddress {
    /// An address of its own in front of the server at this port.
    pub(super) async fn before(server_port: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let port = listener.local_addr()?.port();
        let is_cut = watch::Sender::new(false);
        let cut = is_cut.subscribe();
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, from)) = listener.accept().await {
                let is_far = from.ip() == IpAddr::V4(FAR_SIDE);
                open.spawn(relay(client, server_port, is_far, cut.clone()));
            }
        });
        Ok(Self {
            port,
            is_cut,
            _connections: connections,
        })
    }

    /// Cuts the far side off, for good.
    pub(super) fn cut(&self) {
        self.is_cut.send_replace(true);
    }
}

async fn relay(
    mut client: TcpStream,
    server_port: u16,
    is_far: bool,
    mut cut: watch::Receiver<bool>,
) {
    let relayed = async {
        let mut server = TcpStream::connect(("127.0.0.1", server_port)).await?;
        tokio::io::copy_bidirectional(&mut client, &mut server).await
    };
    let is_cut = async {
        match is_far {
            true => drop(cut.wait_for(|is_cut| *is_cut).await),
            false => std::future::pending().await,
        }
    };
    let was_cut = tokio::select! {
        _ = relayed => false,
        () = is_cut => true,
    };
    if was_cut {
        // The client's end stays open until the test ends.
        std::future::pending::<()>().await;
    }
}
