//! The two arrangements of most tests here: a gateway in front of the counting fixture, where "nothing happened" can
//! be counted; and a gateway in front of a scripted upstream, where every byte is the test's own.

use bytes::Bytes;
use http::{HeaderMap, Request};
use mooring_tests::client::{HttpClient, Reply};
use mooring_tests::fixture::Fixture;
use mooring_tests::fleet::settings_toml;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::session::McpSession;
use serde_json::json;

use crate::rig::{
    increment, kept, post_of, post_text, raw_exchange, raw_post, refusal, store_commands,
};
use crate::scripted::{Exchange, Scripted};

/// The least that `listen.body_bytes_max` takes, so that a body over it is small.
pub(crate) const BODY_BYTES_MAX: usize = 1024;

/// A fixture, a gateway with a small body limit, and a session that has counted to `count`.
pub(crate) struct CountingScene {
    pub(crate) fixture: Fixture,
    pub(crate) gateway: Gateway,
    pub(crate) client: HttpClient,
    pub(crate) session: McpSession,
    pub(crate) count: u64,
}

/// How far a request may come before it is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaches {
    Nothing,
    /// The store is asked about the session.
    Store,
}

impl CountingScene {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let fixture = Fixture::start("one").await?;
        let limit = BODY_BYTES_MAX.to_string();
        let settings = kept(&[fixture.url()]).env("MOORING_LISTEN_BODY_BYTES_MAX", &limit);
        let gateway = Gateway::start("surface", settings).await?;
        let client = HttpClient::default();
        let session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
        Ok(Self {
            fixture,
            gateway,
            client,
            session,
            count: 0,
        })
    }

    /// A call of the session that would be served, to be spoilt.
    pub(crate) fn call(&mut self) -> Request<Bytes> {
        post_of(&mut self.session, increment("7")).unwrap()
    }

    /// Sends a request that is to be refused like this, and sees that nothing has changed.
    pub(crate) async fn check(
        &mut self,
        what: &str,
        request: Request<Bytes>,
        expected: (u16, i64),
        reaches: Reaches,
    ) -> anyhow::Result<HeaderMap> {
        let commands = store_commands(&self.gateway).await?;
        let reply = self.client.send(request).await?;
        let headers = reply.headers.clone();
        let (status, code) = refusal(reply)
            .await
            .unwrap_or_else(|error| panic!("{what}: {error:#}"));
        assert_eq!((status.as_u16(), code), expected, "{what}");
        if reaches == Reaches::Nothing {
            assert_eq!(
                store_commands(&self.gateway).await?,
                commands,
                "{what}: the store was asked"
            );
        }
        self.unchanged(what).await?;
        Ok(headers)
    }

    /// The session still counts on, and the fixture has seen nothing but its calls.
    pub(crate) async fn unchanged(&mut self, what: &str) -> anyhow::Result<()> {
        self.count += 1;
        assert_eq!(self.session.increment().await?, self.count, "{what}");
        let stats = self.fixture.stats().await?;
        let seen = (
            stats.initializes,
            stats.deletes,
            stats.calls_of("increment"),
        );
        assert_eq!(seen, (1, 0, self.count), "{what}");
        Ok(())
    }
}

/// A scripted upstream, a gateway, and a session.
pub(crate) struct ScriptedScene {
    pub(crate) upstream: Scripted,
    pub(crate) gateway: Gateway,
    pub(crate) client: HttpClient,
    pub(crate) session: McpSession,
}

impl ScriptedScene {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let upstream = Scripted::start().await?;
        let settings = kept(&[upstream.url()]);
        Self::start_with(upstream, settings).await
    }

    /// The same, and tool calls of the session do not wait for each other.
    pub(crate) async fn start_side_by_side() -> anyhow::Result<Self> {
        let upstream = Scripted::start().await?;
        let toml = settings_toml("embedded", &[upstream.url()]) + "concurrency = \"parallel\"\n";
        Self::start_with(upstream, Settings::toml(toml)).await
    }

    pub(crate) async fn start_with(upstream: Scripted, settings: Settings) -> anyhow::Result<Self> {
        let gateway = Gateway::start("scripted", settings).await?;
        let client = HttpClient::default();
        let session = McpSession::open(&client, &[gateway.mcp_url("tools")]).await?;
        Ok(Self {
            upstream,
            gateway,
            client,
            session,
        })
    }

    /// Posts this text, lets `answer` write the upstream's reply up to a point, and takes the client's reply there.
    pub(crate) async fn exchange(
        &mut self,
        text: &str,
        answer: impl AsyncFnOnce(Exchange) -> anyhow::Result<Option<Exchange>>,
    ) -> anyhow::Result<(Reply, Option<Exchange>)> {
        let posted = post_text(&self.client, &mut self.session, text.to_owned());
        let answered = async { answer(self.upstream.next().await?).await };
        tokio::try_join!(posted, answered)
    }

    /// Calls, lets the upstream do this, and gives all that the client gets, head and body, as bytes.
    pub(crate) async fn raw_call(
        &mut self,
        answer: impl AsyncFnOnce(Exchange) -> anyhow::Result<()>,
    ) -> anyhow::Result<String> {
        let request = raw_post(&self.session, &increment("1"));
        let sent = raw_exchange(&self.gateway, request.as_bytes());
        let answered = async { answer(self.upstream.next().await?).await };
        let (reply, ()) = tokio::try_join!(sent, answered)?;
        Ok(reply)
    }

    /// A call that is answered: the session goes on.
    pub(crate) async fn goes_on(&mut self, what: &str) -> anyhow::Result<()> {
        let answer = async |exchange: Exchange| {
            exchange.result(&json!({"content": [], "on": true})).await?;
            Ok(None)
        };
        let (reply, _) = self.exchange(&increment("99"), answer).await?;
        let body = reply.json().await?;
        let answered = (&body["id"], &body["result"]["on"]);
        assert_eq!(answered, (&json!(99), &json!(true)), "{what}: {body}");
        let methods = self.upstream.seen_methods();
        let initializes = methods.iter().filter(|method| *method == "initialize");
        assert_eq!(
            initializes.count(),
            1,
            "{what}: the upstream session is kept"
        );
        Ok(())
    }
}
