//! A TCP proxy in front of an instance that misbehaves as real servers and networks do, on demand.
//!
//! It reads whole HTTP/1.1 requests, so that a fault hits a request exactly at its edge; replies are passed on as
//! bytes. Invariant: a request is either forwarded whole or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The largest request that is read.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is forwarded.
    Forward,
    /// It is read and never forwarded; the connection is closed.
    Swallow,
    /// It is forwarded; the connection is closed before the reply.
    RunAndClose,
    /// It is forwarded, and the reply is never passed on.
    RunAndHold,
    /// It is never forwarded; the connection is reset.
    Reset,
    /// It is never forwarded, and never answered.
    Hold,
}

/// A request as the judge of its fate sees it.
pub(crate) struct Seen<'a> {
    /// 1 for the first request of its connection.
    pub(crate) number: usize,
    /// Head and body.
    pub(crate) text: &'a str,
}

type Judge = dyn Fn(&Seen<'_>) -> Fate + Send + Sync;

/// The running proxy; its connections end with it.
pub(crate) struct FaultyProxy {
    port: u16,
    open: Arc<AtomicUsize>,
    cut: watch::Sender<()>,
    accepting: JoinHandle<()>,
}

impl FaultyProxy {
    /// Listens on a free port in front of `upstream_port`; `judge` decides about every request.
    pub(crate) async fn start(
        upstream_port: u16,
        judge: impl Fn(&Seen<'_>) -> Fate + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("bind")?;
        let port = listener.local_addr().context("read the port")?.port();
        let open = Arc::new(AtomicUsize::new(0));
        let (cut, _) = watch::channel(());
        let judge: Arc<Judge> = Arc::new(judge);
        let accepting = tokio::spawn(accept(
            listener,
            upstream_port,
            judge,
            Arc::clone(&open),
            cut.clone(),
        ));
        Ok(Self {
            port,
            open,
            cut,
            accepting,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Connections that are open now.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Closes every connection at once, in the orderly way (FIN).
    pub(crate) fn close_all(&self) {
        self.cut.send_replace(());
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.close_all();
    }
}

async fn accept(
    listener: TcpListener,
    upstream_port: u16,
    judge: Arc<Judge>,
    open: Arc<AtomicUsize>,
    cut: watch::Sender<()>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let (judge, open, mut cut) = (Arc::clone(&judge), Arc::clone(&open), cut.subscribe());
        tokio::spawn(async move {
            open.fetch_add(1, Ordering::SeqCst);
            tokio::select! {
                // A connection that fails on the way is a connection that has ended.
                _ = carry(client, upstream_port, &*judge) => {}
                _ = cut.changed() => {}
            }
            open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn carry(mut client: TcpStream, upstream_port: u16, judge: &Judge) -> anyhow::Result<()> {
    let mut upstream = TcpStream::connect(("127.0.0.1", upstream_port)).await?;
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    let mut received = Vec::new();
    let mut number = 0;
    let mut reply = vec![0; 64 * 1024];
    loop {
        tokio::select! {
            read = client.read_buf(&mut received) => {
                if read? == 0 || received.len() > REQUEST_BYTES_MAX {
                    return Ok(());
                }
            }
            read = upstream.read(&mut reply) => {
                let read = read?;
                if read == 0 {
                    return Ok(());
                }
                client.write_all(&reply[..read]).await?;
            }
        }
        while let Some(end) = request_end(&received) {
            let request: Vec<u8> = received.drain(..end).collect();
            number += 1;
            let text = &String::from_utf8_lossy(&request);
            match judge(&Seen { number, text }) {
                Fate::Forward => upstream.write_all(&request).await?,
                Fate::Swallow => return Ok(()),
                Fate::RunAndClose => {
                    upstream.write_all(&request).await?;
                    // The first byte of the reply says that the request has run.
                    upstream.readable().await?;
                    return Ok(());
                }
                Fate::RunAndHold => {
                    upstream.write_all(&request).await?;
                    std::future::pending().await
                }
                Fate::Reset => {
                    client.set_zero_linger()?;
                    return Ok(());
                }
                Fate::Hold => std::future::pending().await,
            }
        }
    }
}

/// Behind the first whole request, which has a Content-Length or no body.
fn request_end(received: &[u8]) -> Option<usize> {
    let head = received.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(received.get(..head)?).to_ascii_lowercase();
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .and_then(|value| value.trim().parse::<usize>().ok());
    let end = head + length.unwrap_or(0);
    (received.len() >= end).then_some(end)
}
