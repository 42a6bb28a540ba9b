//! Calls whose client neither waits for them nor cancels them, as SDKs do that time out: the next call of the session waits
//! for a bounded time, and its error says what it waited for.

use mooring_tests::client::HttpClient;
use mooring_tests::fleet::{Fleet, settings_toml};
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::redis::Redis;
use mooring_tests::session::{McpSession, read_exchange};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::scripted::{Exchange, Scripted};

/// The least that the setting takes.
const WAIT_MAX: &str = "turn_wait_max_ms = 1000\n";
/// Between two messages of a server that is not silent.
const SAYS_EVERY: Duration = Duration::from_millis(200);

const EVENTS_BEGIN: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

struct Silence {
    fleet: Fleet,
    upstream: Scripted,
    session: McpSession,
}

impl Silence {
    /// Two gateways, and a session whose requests go to each in turn.
    async fn start() -> anyhow::Result<Self> {
        let (redis, upstream) = (Redis::start().await?, Scripted::start().await?);
        let toml = settings_toml(&redis.url(), &[upstream.url()])
            .replace("[affinity]\n", &format!("[affinity]\n{WAIT_MAX}"));
        let gateways = Gateway::fleet(2, &Settings::toml(toml)).await?;
        let fleet = Fleet { gateways, redis };
        let session = McpSession::open(&HttpClient::default(), &fleet.endpoints()).await?;
        Ok(Self {
            fleet,
            upstream,
            session,
        })
    }

    /// A call that its client stops waiting for, with its connection left open.
    async fn given_up(&mut self) -> anyhow::Result<(impl Sized + use<>, Exchange)> {
        let call = call_of(&mut self.session);
        let mut session = self
            .session
            .fork(&HttpClient::default(), &self.fleet.endpoints());
        let posted = tokio::spawn(async move { session.post(&call).await });
        Ok((posted, self.upstream.next().await?))
    }
}

fn call_of(session: &mut McpSession) -> Value {
    session.request_body("tools/call", json!({"name": "any", "arguments": {}}))
}

/// Before its reply has begun, and after.
#[tokio::test]
async fn a_call_whose_server_is_silent_lets_the_next_one_run() -> anyhow::Result<()> {
    let mut scene = Silence::start().await?;
    for has_begun in [false, true] {
        let (_posted, mut silent) = scene.given_up().await?;
        if has_begun {
            silent.raw(EVENTS_BEGIN).await?;
        }
        let next = call_of(&mut scene.session);
        let (reply, answered) = tokio::join!(scene.session.post(&next), async {
            let asked = scene.upstream.next().await?;
            asked.result(&json!({"content": [], "next": true})).await
        });
        answered?;
        let exchange = read_exchange(reply?, &next).await?;
        assert_eq!(exchange.response["result"]["next"], true, "{exchange:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_call_whose_server_speaks_keeps_its_turn_and_the_error_of_the_next_names_it()
-> anyhow::Result<()> {
    let mut scene = Silence::start().await?;
    let (_posted, mut speaking) = scene.given_up().await?;
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/message",
        "params": {"level": "info", "data": "still here"}});
    let speaks = async {
        speaking.raw(EVENTS_BEGIN).await?;
        loop {
            speaking.raw(format!("data: {progress}\n\n")).await?;
            sleep(SAYS_EVERY).await;
        }
    };
    let next = call_of(&mut scene.session);
    let refused = async {
        let reply = scene.session.post(&next).await?;
        assert_eq!(reply.status, 503);
        reply.json().await
    };
    let error = tokio::select! {
        error = refused => error?,
        ended = speaks => return ended,
    };
    let message = error["error"]["message"].as_str().unwrap_or_default();
    assert_eq!(error["error"]["code"], -32014, "{error}");
    for said in [
        "gateway-",
        "cancel it",
        "DELETE",
        "concurrency = \"parallel\"",
    ] {
        assert!(message.contains(said), "{said}: {message}");
    }
    Ok(())
}
