//! A request of the gateway itself that gets the answer to another one: no connection that was open is used again.

use std::sync::Arc;

use http::HeaderMap;
use mooring_session::names::{InstanceName, ServerName};
use mooring_session::rules::Ownership;
use mooring_settings::{Affinity, Concurrency, Continuity, LostStateNotice, OnUpstreamLoss};

use super::*;
use crate::{
    Client, ExchangeError, Instance, InstanceTransport, MessageTransport as _, Outgoing,
    ProbeResult, Server, SessionPolicy, probe, read_answer,
};
use mooring_protocol::StreamError;

/// A server that answers whatever it gets with the result of request `last`.
async fn answering_another() -> RawServer {
    RawServer::start(move |mut stream| async move {
        while read_request(&mut stream).await.is_some() {
            let body = r#"{"jsonrpc":"2.0","id":"last","result":{}}"#;
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await
}

fn instance_client() -> Client {
    Client::new(client(IDLE_MAX), PATIENCE)
}

fn server_at(address: SocketAddr) -> Server {
    let uri = format!("http://{address}/mcp");
    let name = InstanceName::parse(uri.as_bytes()).unwrap();
    let instance = Instance::new(name, uri.parse().unwrap());
    let policy = SessionPolicy {
        affinity: Affinity::On,
        ownership: Ownership::Shared,
        concurrency: Concurrency::Serial,
        on_upstream_loss: OnUpstreamLoss::Reinitialize,
        lost_state_notice: LostStateNotice::Content,
        continuity: Continuity::None,
    };
    let id = ServerName::parse(b"tools").unwrap();
    Server::new(id, vec![Arc::new(instance)], policy, HeaderMap::new())
}

fn ping(server: &Server) -> Outgoing {
    let text = r#"{"jsonrpc":"2.0","id":"own","method":"ping"}"#;
    Outgoing::post(server, Bytes::from_static(text.as_bytes()))
}

/// Two idle connections.
async fn warm_up(client: &Client, server: &Server) {
    let (instance, ping) = (&server.instances[0], ping(server));
    let both = [client.send(instance, &ping), client.send(instance, &ping)];
    for reply in futures_util::future::join_all(both).await {
        reply.unwrap().read_text(1 << 20).await.unwrap();
    }
}

#[tokio::test]
async fn an_answer_to_another_request_of_the_gateway_closes_all_connections() {
    let raw = answering_another().await;
    let server = server_at(raw.address);
    let client = instance_client();
    let (instance, ping) = (&*server.instances[0], ping(&server));
    warm_up(&client, &server).await;
    assert_eq!(raw.accepted(), 2);

    let transport = InstanceTransport {
        client: &client,
        instance,
    };
    let reply = transport.send(&ping).await.unwrap();
    let answer = read_answer(reply, &ping, &transport).await;
    let error = answer.map(|answer| answer.status).unwrap_err();
    assert!(
        matches!(error, ExchangeError::Invalid(StreamError::OtherRequest)),
        "{error}"
    );
    assert_eq!(raw.accepted(), 2, "it went over an idle connection");
    client.send(instance, &ping).await.unwrap();
    assert_eq!(raw.accepted(), 3, "none of which is left");
}

#[tokio::test]
async fn a_probe_with_the_answer_to_another_request_closes_all_connections() {
    let raw = answering_another().await;
    let server = server_at(raw.address);
    let client = instance_client();
    let (instance, ping) = (&*server.instances[0], ping(&server));
    warm_up(&client, &server).await;

    let probed = probe(&client, instance, &ping, PATIENCE).await;
    assert_eq!(probed, ProbeResult::Unclear);
    assert_eq!(raw.accepted(), 3, "a probe has a connection of its own");
    client.send(instance, &ping).await.unwrap();
    assert_eq!(raw.accepted(), 4, "no other is left");
}
