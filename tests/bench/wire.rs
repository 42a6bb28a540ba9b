//! HTTP/1.1 framing for both ends of the benchmark, as light as it can be: the load generator and its upstream
//! share two cores with what they measure, so what they cost is taken from it.
//!
//! Invariant: a message is handed out whole or not at all, and a framing that this file does not know is an
//! error, never a guess. Every socket has TCP_NODELAY.

use std::net::SocketAddr;

use anyhow::{Context, bail, ensure};
use bytes::{Buf, Bytes, BytesMut};
use mooring_tests::session::PROTOCOL_VERSION;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HEADERS_MAX: usize = 32;

/// The largest message that is read; the benchmark's own are of little more than 1 MiB.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One keep-alive connection.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    buffer: BytesMut,
}

/// A reply, whole.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The `Mcp-Session-Id` header.
    pub(crate) session: Option<String>,
    /// The JSON-RPC message: the body, or the data of the last event of a stream.
    pub(crate) message: Bytes,
}

/// A request, whole.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) is_post: bool,
    pub(crate) session: Option<String>,
    pub(crate) body: Bytes,
}

impl Wire {
    pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        Self::new(TcpStream::connect(address).await.context("connect")?)
    }

    pub(crate) fn new(stream: TcpStream) -> anyhow::Result<Self> {
        stream.set_nodelay(true).context("set TCP_NODELAY")?;
        Ok(Self {
            stream,
            buffer: BytesMut::with_capacity(4096),
        })
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.stream.write_all(bytes).await.context("send")
    }

    /// The next reply.
    pub(crate) async fn reply(&mut self) -> anyhow::Result<Reply> {
        loop {
            if let Some(reply) = parse_reply(&mut self.buffer)? {
                return Ok(reply);
            }
            ensure!(self.read().await?, "the connection was closed");
        }
    }

    /// The next request, or `None` where the peer is done.
    pub(crate) async fn request(&mut self) -> anyhow::Result<Option<Request>> {
        loop {
            if let Some(request) = parse_request(&mut self.buffer)? {
                return Ok(Some(request));
            }
            if !self.read().await? {
                return Ok(None);
            }
        }
    }

    async fn read(&mut self) -> anyhow::Result<bool> {
        ensure!(
            self.buffer.len() < MESSAGE_BYTES_MAX,
            "a message of more than {MESSAGE_BYTES_MAX} bytes"
        );
        self.buffer.reserve(2048);
        Ok(self
            .stream
            .read_buf(&mut self.buffer)
            .await
            .context("read")?
            > 0)
    }
}

/// What the headers say that matters here.
#[derive(Default)]
struct Head {
    session: Option<String>,
    framing: Framing,
    is_event_stream: bool,
}

#[derive(Clone, Copy, Default)]
enum Framing {
    #[default]
    None,
    Length(usize),
    Chunked,
}

impl Head {
    fn read(headers: &[httparse::Header<'_>]) -> anyhow::Result<Self> {
        let mut head = Self::default();
        for header in headers {
            let value = || std::str::from_utf8(header.value).context("a header is text");
            // By length first: this runs for every header of every message.
            match header.name.len() {
                14 if header.name.eq_ignore_ascii_case("mcp-session-id") => {
                    head.session = Some(value()?.to_owned());
                }
                14 if header.name.eq_ignore_ascii_case("content-length") => {
                    head.framing = Framing::Length(value()?.parse().context("content-length")?);
                }
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                    ensure!(value()? == "chunked", "unknown transfer coding");
                    head.framing = Framing::Chunked;
                }
                12 if header.name.eq_ignore_ascii_case("content-type") => {
                    head.is_event_stream = value()?.starts_with("text/event-stream");
                }
                _ => {}
            }
        }
        Ok(head)
    }
}

fn parse_reply(buffer: &mut BytesMut) -> anyhow::Result<Option<Reply>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = parsed.parse(buffer)? else {
        return Ok(None);
    };
    let status = parsed.code.context("a status")?;
    let head = Head::read(parsed.headers)?;
    let Some(body) = take_body(buffer, head_bytes, head.framing)? else {
        return Ok(None);
    };
    Ok(Some(Reply {
        status,
        session: head.session,
        message: if head.is_event_stream {
            last_data(&body)
        } else {
            body
        },
    }))
}

fn parse_request(buffer: &mut BytesMut) -> anyhow::Result<Option<Request>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = parsed.parse(buffer)? else {
        return Ok(None);
    };
    let is_post = parsed.method == Some("POST");
    let head = Head::read(parsed.headers)?;
    let Some(body) = take_body(buffer, head_bytes, head.framing)? else {
        return Ok(None);
    };
    Ok(Some(Request {
        is_post,
        session: head.session,
        body,
    }))
}

/// Takes head and body out of the buffer once both are there; the body.
fn take_body(
    buffer: &mut BytesMut,
    head_bytes: usize,
    framing: Framing,
) -> anyhow::Result<Option<Bytes>> {
    match framing {
        Framing::None => {
            buffer.advance(head_bytes);
            Ok(Some(Bytes::new()))
        }
        Framing::Length(length) => {
            if buffer.len() < head_bytes + length {
                return Ok(None);
            }
            buffer.advance(head_bytes);
            Ok(Some(buffer.split_to(length).freeze()))
        }
        Framing::Chunked => {
            let Some((body, body_bytes)) = dechunk(buffer.get(head_bytes..).unwrap_or_default())?
            else {
                return Ok(None);
            };
            buffer.advance(head_bytes + body_bytes);
            Ok(Some(body))
        }
    }
}

/// The chunks put together, and how many bytes they took; `None` while the last one is missing.
fn dechunk(mut rest: &[u8]) -> anyhow::Result<Option<(Bytes, usize)>> {
    let whole = rest.len();
    let mut body = BytesMut::new();
    loop {
        let Ok(httparse::Status::Complete((line_bytes, size))) = httparse::parse_chunk_size(rest)
        else {
            // Not an error: an incomplete size line and a wrong one look alike until the connection closes.
            return Ok(None);
        };
        let size = usize::try_from(size)?;
        let Some(chunk) = rest.get(line_bytes..line_bytes + size) else {
            return Ok(None);
        };
        let Some(end) = rest.get(line_bytes + size..line_bytes + size + 2) else {
            return Ok(None);
        };
        ensure!(end == b"\r\n", "a chunk ends with an empty line");
        rest = rest.get(line_bytes + size + 2..).unwrap_or_default();
        if size == 0 {
            return Ok(Some((body.freeze(), whole - rest.len())));
        }
        body.extend_from_slice(chunk);
    }
}

/// The data of the last event; events of this benchmark have one line of data each.
fn last_data(body: &Bytes) -> Bytes {
    body.split(|byte| *byte == b'\n')
        .rev()
        .find_map(|line| line.strip_prefix(b"data:"))
        .map(|data| body.slice_ref(data.trim_ascii()))
        .unwrap_or_default()
}

/// The whole of a request with a body.
pub(crate) fn post(target: &Target, session: Option<&str>, body: &str) -> Vec<u8> {
    let session = session
        .map(|id| format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: {PROTOCOL_VERSION}\r\n"))
        .unwrap_or_default();
    format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{session}Content-Length: {}\r\n\r\n{body}",
        target.path,
        target.address,
        body.len()
    )
    .into_bytes()
}

/// The request that ends a session.
pub(crate) fn delete(target: &Target, session: &str) -> Vec<u8> {
    format!(
        "DELETE {} HTTP/1.1\r\nHost: {}\r\nMcp-Session-Id: {session}\r\n\
         MCP-Protocol-Version: {PROTOCOL_VERSION}\r\n\r\n",
        target.path, target.address
    )
    .into_bytes()
}

/// An MCP endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) path: &'static str,
}

impl Target {
    pub(crate) fn local(port: u16, path: &'static str) -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            path,
        }
    }
}

/// Fails with the body, which says why.
pub(crate) fn expect_status(reply: &Reply, status: u16) -> anyhow::Result<()> {
    if reply.status != status {
        bail!(
            "status {} instead of {status}: {}",
            reply.status,
            String::from_utf8_lossy(&reply.message)
        );
    }
    Ok(())
}
