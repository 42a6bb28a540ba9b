//! An upstream over HTTP whose answers are a function of the request, as a test writes it.

use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::scripted::{Seen, read_request};

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";

/// The server, until it is dropped.
pub(crate) struct SmallServer {
    port: u16,
    accepting: JoinHandle<()>,
}

impl Drop for SmallServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl SmallServer {
    /// Starts one that answers each request with these bytes, over connections that are kept.
    pub(crate) async fn start(
        answer: impl Fn(&Seen) -> String + Send + Sync + 'static,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let answer = Arc::new(answer);
        let accepting = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let answer = Arc::clone(&answer);
                tokio::spawn(async move {
                    while let Ok(request) = read_request(&mut stream).await {
                        if stream.write_all(answer(&request).as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Ok(Self { port, accepting })
    }

    /// The MCP endpoint.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

/// A whole response. Each of `headers` ends its line.
pub(crate) fn response(status: &str, content_type: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    )
}

/// A response with this result.
pub(crate) fn result(request: &Seen, headers: &str, result: &serde_json::Value) -> String {
    let id = request.json()["id"].to_string();
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    response("200 OK", JSON, headers, &body)
}
