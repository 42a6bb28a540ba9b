//! What operators do to sessions and instances, as clients see it.

use http::StatusCode;
use mooring_router::affinity::{MoveError, MoveRequest, MoveTiming, MovedBinding};
use mooring_session::names::{InstanceName, ServerName, SessionId};
use mooring_store::{DesiredChange, OperatorNote, ParkedPart, SessionKey};
use serde_json::{Value, json};

use super::{Answer, Gateway};
use mooring_upstream::Readiness;

fn server(name: &str) -> ServerName {
    ServerName::parse(name.as_bytes()).unwrap()
}

impl Gateway {
    fn key(&self, session: &str) -> SessionKey {
        let id = SessionId::parse(session.as_bytes()).unwrap();
        self.app.core.session_router.store().session_key(&id)
    }

    async fn move_binding(
        &self,
        of: &str,
        session: &str,
        to: Option<&str>,
        timing: MoveTiming,
    ) -> Result<MovedBinding, MoveError> {
        let to = to.map(|to| InstanceName::parse(to.as_bytes()).unwrap());
        let request = MoveRequest {
            key: &self.key(session),
            server: &server(of),
            to: to.as_ref(),
        };
        let router = &self.app.core.session_router;
        router.move_binding(request, timing).await
    }

    /// What an operator wants, as this gateway does it.
    async fn want(&self, change: DesiredChange) {
        let router = &self.app.core.session_router;
        let changed = router.store().change_desired_state(None, &[change]).await;
        changed.unwrap();
        router.apply_parking();
    }

    fn instance(&self, which: &str) -> ParkedPart {
        let url = if which == "a" {
            &self.a.url
        } else {
            &self.b.url
        };
        ParkedPart {
            server: server("pair"),
            instance: Some(InstanceName::parse(url.as_bytes()).unwrap()),
        }
    }
}

fn by(answer: &Answer) -> String {
    let result = answer.events().pop().unwrap_or_else(|| answer.json());
    result["result"]["structuredContent"]["by"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn mark(answer: &Answer) -> Option<Value> {
    let result = match answer.header("content-type") {
        Some("text/event-stream") => answer.events().pop().unwrap(),
        _ => answer.json(),
    };
    result["result"]["_meta"].get("mooring/rebound").cloned()
}

#[tokio::test]
async fn a_moved_session_continues_elsewhere_and_its_client_is_told() {
    let gateway = Gateway::start().await;
    let session = gateway.open("pair").await;
    let first = gateway.echo("pair", &session, json!({})).await.json();
    let was_at = first["result"]["structuredContent"]["by"].as_str().unwrap();
    let (from, to) = match was_at {
        "a" => (&gateway.a, &gateway.b),
        _ => (&gateway.b, &gateway.a),
    };
    let (key, pair) = (gateway.key(&session), server("pair"));
    let request = MoveRequest {
        key: &key,
        server: &pair,
        to: None,
    };
    let router = &gateway.app.core.session_router;
    let preview = router.preview_move(request).await.unwrap();
    assert_eq!((&*preview.from, preview.to.len()), (from.url.as_str(), 1));
    assert!(preview.state_lost && !preview.ends_session);
    assert_eq!(to.sessions(), 0, "a preview changes nothing");

    let moved = gateway.move_binding("pair", &session, None, MoveTiming::BetweenCalls);
    let moved = moved.await.unwrap();
    assert_eq!(moved.to.as_deref(), Some(to.url.as_str()));
    assert_eq!(to.sessions(), 1, "it is initialized at once");
    let after = gateway.echo("pair", &session, json!({})).await;
    assert_ne!(by(&after), was_at);
    let mark = mark(&after).expect("the next result tells of it");
    assert_eq!(mark["reason"], "moved by an operator", "{mark}");
    let again = gateway.echo("pair", &session, json!({})).await.json();
    assert!(again["result"].get("_meta").is_none(), "once: {again}");
    let record = router.store().get(&key).await.unwrap();
    assert_eq!(record.bindings[0].rebinds, 1);

    let back = gateway.move_binding("pair", &session, Some(&from.url), MoveTiming::BetweenCalls);
    assert_eq!(back.await.unwrap().to.as_deref(), Some(from.url.as_str()));
}

#[tokio::test]
async fn a_move_says_why_it_cannot_be_made() {
    let gateway = Gateway::start().await;
    let (pair, alone) = (gateway.open("pair").await, gateway.open("a").await);
    let unknown = "00000000000000000000000000000000deadbeef".to_owned();
    for (of, session, to, expected) in [
        ("none", &pair, None, "no upstream server has the name none"),
        ("pair", &unknown, None, "unknown or has ended"),
        ("b", &pair, None, "has no binding at the server"),
        ("a", &alone, None, "no other instance that is not parked"),
        (
            "a",
            &alone,
            Some("http://x/mcp"),
            "has no instance http://x/mcp",
        ),
        (
            "a",
            &alone,
            Some(gateway.a.url.as_str()),
            "at this instance already",
        ),
    ] {
        let moved = gateway.move_binding(of, session, to, MoveTiming::BetweenCalls);
        let error = moved.await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    gateway
        .want(DesiredChange::Park(
            gateway.instance("a"),
            OperatorNote::now("olga", ""),
        ))
        .await;
    gateway
        .want(DesiredChange::Park(
            gateway.instance("b"),
            OperatorNote::now("olga", ""),
        ))
        .await;
    let sent = gateway.echo("pair", &pair, json!({})).await;
    assert_eq!(sent.status, StatusCode::OK, "its session stays");
}

#[tokio::test]
async fn a_binding_is_not_moved_during_a_call_unless_that_is_forced() {
    let gateway = Gateway::start().await;
    let session = gateway.open("turns").await;
    let arguments = json!({"ms": 600_000});
    let running = gateway
        .begin_call("turns", &session, "slow", arguments)
        .await;
    let moved = gateway.move_binding("turns", &session, None, MoveTiming::BetweenCalls);
    let moved = moved.await;
    assert!(matches!(moved, Err(MoveError::Busy(_))), "{moved:?}");
    let moved = gateway.move_binding("turns", &session, None, MoveTiming::AtOnce);
    moved.await.unwrap();
    drop(running);
}

#[tokio::test]
async fn nothing_new_goes_to_a_parked_instance_and_a_parked_server_says_so() {
    let gateway = Gateway::start().await;
    let olga = || OperatorNote::now("olga", "");
    gateway
        .want(DesiredChange::Park(gateway.instance("a"), olga()))
        .await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let session = gateway.open("pair").await;
        let answer = gateway.echo("pair", &session, json!({})).await.json();
        assert_eq!(answer["result"]["structuredContent"]["by"], "b");
        sessions.push(session);
    }
    assert_eq!(gateway.a.sessions(), 0);
    let whole = ParkedPart {
        server: server("pair"),
        instance: None,
    };
    gateway
        .want(DesiredChange::Park(whole.clone(), olga()))
        .await;
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}});
    let initialize = super::request(0, "initialize", params);
    let refused = gateway.post("pair", None, &initialize).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        refused.text.contains("an operator has parked the server"),
        "{}",
        refused.text
    );
    let answer = gateway.echo("pair", &sessions[0], json!({})).await.json();
    assert_eq!(answer["result"]["structuredContent"]["by"], "b", "it stays");
    gateway.want(DesiredChange::Unpark(whole)).await;
    gateway
        .want(DesiredChange::Unpark(gateway.instance("a")))
        .await;
    gateway
        .want(DesiredChange::Park(gateway.instance("b"), olga()))
        .await;
    let session = gateway.open("pair").await;
    let answer = gateway.echo("pair", &session, json!({})).await.json();
    assert_eq!(answer["result"]["structuredContent"]["by"], "a");
    let pair = gateway.app.core.servers.get("pair").unwrap();
    assert_eq!(pair.readiness(), Readiness::Unknown, "nothing probes here");
}
