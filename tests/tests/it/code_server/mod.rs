//! A code server as a client sees it: what it says of itself, what its tools answer, and what they refuse.

mod answers;
mod clients;
mod degraded;
mod runs;
mod surface;

use mooring_tests::client::HttpClient;
use mooring_tests::code::{CodeVolume, Coder, SERVER, USER};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::{McpSession, Opening};
use serde_json::Value;

const ADA: &str = "ada@example.org";

/// A volume, a gateway with the embedded store, and a user's client.
struct Scene {
    volume: CodeVolume,
    gateway: Gateway,
    coder: Coder,
}

impl Scene {
    async fn start() -> anyhow::Result<Self> {
        Self::start_with(|settings| settings).await
    }

    async fn start_with(change: impl FnOnce(Settings) -> Settings) -> anyhow::Result<Self> {
        let volume = CodeVolume::new()?;
        let gateway = Gateway::start("code", change(volume.settings("embedded"))).await?;
        let coder = Coder::open(&[&gateway], ADA).await?;
        Ok(Self {
            volume,
            gateway,
            coder,
        })
    }

    async fn session(&self) -> anyhow::Result<McpSession> {
        self.session_of(Opening::default().capabilities).await
    }

    /// Of a client with these capabilities.
    async fn session_of(&self, capabilities: Value) -> anyhow::Result<McpSession> {
        let opening = Opening {
            capabilities,
            ..Opening::default()
        };
        let opening = opening.header(USER, ADA)?;
        let url = self.gateway.mcp_url(SERVER);
        McpSession::open_with(&HttpClient::default(), &[url], opening).await
    }

    /// Runs something that is to fail: its answer.
    async fn failed(&mut self, arguments: Value) -> anyhow::Result<Value> {
        let (answer, is_error) = self.coder.call("shell_exec", arguments.clone()).await?;
        assert!(is_error, "{arguments}: {answer}");
        Ok(answer)
    }

    async fn runs(&self, outcome: &str) -> anyhow::Result<f64> {
        let label = format!("outcome=\"{outcome}\"");
        let name = "mooring_code_run_duration_seconds_count";
        self.gateway.metric(name, &[&label]).await
    }
}

fn text<'a>(answer: &'a Value, pointer: &str) -> &'a str {
    let text = answer.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("a text at {pointer}: {answer}"))
}
