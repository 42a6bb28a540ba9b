//! What the tests of loss and recovery share: two stateful instances, and views of what a loss left behind.

use anyhow::{Context, ensure};
use http::StatusCode;
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use mooring_tests::redis::Redis;
use mooring_tests::session::{Exchange, McpSession, read_exchange};
use serde_json::{Value, json};

/// The key of the mark in a result's `_meta`.
const MARK: &str = "mooring/rebound";

/// The JSON-RPC code of the answer that a call may have run.
pub(crate) const OUTCOME_UNKNOWN: i64 = -32012;

/// Two instances of one server. A session's own is its `home`.
pub(crate) struct Pair([Fixture; 2]);

impl Pair {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        Ok(Self([
            Fixture::start("a").await?,
            Fixture::start("b").await?,
        ]))
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.0.iter().map(Fixture::url).collect()
    }

    /// The instance that holds the session's state, and the other one.
    pub(crate) async fn home_and_other(
        &mut self,
        session: &mut McpSession,
    ) -> anyhow::Result<(&mut Fixture, &mut Fixture)> {
        let instance = whoami(session).await?.instance;
        let [a, b] = &mut self.0;
        Ok(if a.instance() == instance {
            (a, b)
        } else {
            (b, a)
        })
    }

    pub(crate) fn both(&mut self) -> &mut [Fixture; 2] {
        &mut self.0
    }

    /// `initialize` requests that the instances have answered since they started.
    pub(crate) async fn initializes(&self) -> anyhow::Result<u64> {
        let [a, b] = &self.0;
        Ok(a.stats().await?.initializes + b.stats().await?.initializes)
    }
}

/// What clients are told of an instance of a pair: never its address.
pub(crate) fn client_name(instance: &Fixture) -> &'static str {
    match instance.instance() {
        "a" => "instance-1",
        _ => "instance-2",
    }
}

/// What `whoami` says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) instance: String,
    pub(crate) upstream_session: String,
    pub(crate) set_up: Value,
}

pub(crate) async fn whoami(session: &mut McpSession) -> anyhow::Result<Home> {
    let result = session.call("whoami", json!({})).await?;
    let text = |field: &str| {
        let value = result["structuredContent"][field].as_str();
        value.map(str::to_owned).context("whoami says who it is")
    };
    Ok(Home {
        instance: text("instance")?,
        upstream_session: text("session")?,
        set_up: result["structuredContent"]["set_up"].clone(),
    })
}

/// A call of a tool, with everything that came before its response.
pub(crate) async fn call(session: &mut McpSession, tool: &str) -> anyhow::Result<Exchange> {
    let params = json!({"name": tool, "arguments": {}});
    session.request("tools/call", params).await
}

/// The count in the answer of `increment`.
pub(crate) fn count_of(exchange: &Exchange) -> Option<u64> {
    exchange
        .response
        .pointer("/result/structuredContent/count")?
        .as_u64()
}

/// The mark of a rebind in the result of a call.
pub(crate) fn mark_of(exchange: &Exchange) -> Option<&Value> {
    exchange.response.get("result")?.get("_meta")?.get(MARK)
}

/// The marks in the warnings that came before the response.
pub(crate) fn warned_of(exchange: &Exchange) -> Vec<&Value> {
    let warnings = exchange.before.iter().filter(|message| {
        message["method"] == "notifications/message" && message["params"]["level"] == "warning"
    });
    warnings
        .filter_map(|warning| warning["params"]["data"].get(MARK))
        .collect()
}

/// A reply that was read to its end, whatever it was.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<String>,
    pub(crate) is_degraded: bool,
    /// The exchange of a successful reply.
    pub(crate) exchange: Option<Exchange>,
    /// The body of any other.
    pub(crate) error: Value,
}

/// Posts a call of a tool and reads the reply to its end.
pub(crate) async fn attempt(session: &mut McpSession, tool: &str) -> anyhow::Result<Answered> {
    let params = json!({"name": tool, "arguments": {}});
    let request = session.request_body("tools/call", params);
    let reply = session.post(&request).await?;
    answered(reply, &request).await
}

pub(crate) async fn answered(reply: Reply, request: &Value) -> anyhow::Result<Answered> {
    let status = reply.status;
    let retry_after = reply.header("retry-after").map(str::to_owned);
    let is_degraded = reply.header("mooring-degraded") == Some("1");
    let (exchange, error) = if status == StatusCode::OK {
        (Some(read_exchange(reply, request).await?), Value::Null)
    } else {
        (None, reply.json().await?)
    };
    Ok(Answered {
        status,
        retry_after,
        is_degraded,
        exchange,
        error,
    })
}

impl Answered {
    /// Asserts that nothing ran and that the client is asked to try again.
    #[track_caller]
    pub(crate) fn assert_try_again(&self) {
        assert_eq!(self.status, 503, "{self:?}");
        assert!(
            self.retry_after.is_some(),
            "Retry-After is missing: {self:?}"
        );
        assert!(self.error["error"]["code"].is_i64(), "{self:?}");
    }

    #[track_caller]
    pub(crate) fn count(&self) -> u64 {
        let count = self.exchange.as_ref().and_then(count_of);
        count.unwrap_or_else(|| panic!("a count: {self:?}"))
    }
}

/// The key of the session's record.
pub(crate) fn record_key(session: &McpSession) -> anyhow::Result<String> {
    let id = session.id().context("a session with an id")?;
    Ok(format!("mcpgw:session_affinity:{id}"))
}

/// The session's record as SESSION.GET shows it.
pub(crate) fn record(redis: &Redis, session: &McpSession) -> anyhow::Result<Value> {
    let key = record_key(session)?;
    let text = redis.cli(&["-3", "--json", "SESSION.GET", &key])?;
    serde_json::from_str(&text).with_context(|| format!("read the record: {text}"))
}

/// The session's only binding.
pub(crate) fn binding(redis: &Redis, session: &McpSession) -> anyhow::Result<Value> {
    let record = record(redis, session)?;
    let bindings = record["bindings"].as_array().context("bindings")?;
    ensure!(bindings.len() == 1, "one binding: {record}");
    Ok(bindings[0].clone())
}

/// A counter's sum over gateways and the label sets that hold `labels`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counters are small whole numbers"
)]
pub(crate) async fn counted(
    gateways: &[Gateway],
    name: &str,
    labels: &[&str],
) -> anyhow::Result<u64> {
    let mut sum = 0.0;
    for gateway in gateways {
        sum += gateway.metric(name, labels).await?;
    }
    Ok(sum as u64)
}

/// Rebinds of one reason, over the gateways.
pub(crate) async fn rebinds(gateways: &[Gateway], reason: &str) -> anyhow::Result<u64> {
    let label = format!("reason=\"{reason}\"");
    counted(gateways, "session_affinity_rebinds_total", &[&label]).await
}

/// The word that `/readyz` has for a gateway, and its HTTP status.
pub(crate) async fn readiness(gateway: &Gateway) -> anyhow::Result<(StatusCode, String)> {
    let reply = HttpClient::default().get(&gateway.url("/readyz")).await?;
    let status = reply.status;
    let body = reply.json().await?;
    Ok((
        status,
        body["status"].as_str().unwrap_or_default().to_owned(),
    ))
}
