//! Servers that refuse this client: for good, or as long as they have no place for it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::{LinkState, Module, RedisServer, RedisStore, TIMEOUT, eventually, make, redis_url};
use crate::redis::down_reason::DownReason;

/// Most clients of the server, this test's own among them.
const PLACES: usize = 3;

/// A connection that the server serves.
fn take_place(port: u16) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"PING\r\n").ok()?;
    let mut reply = [0; 64];
    let length = stream.read(&mut reply).ok()?;
    let reply = reply.get(..length)?;
    // One without a password is served too, with NOAUTH.
    (length > 0 && !reply.starts_with(b"-ERR max")).then_some(stream)
}

#[tokio::test]
async fn a_server_at_its_limit_of_clients_is_connected_to_when_it_has_a_place() {
    for (password, user) in [("", ""), ("a-secret", ":a-secret@")] {
        let server = RedisServer::start(Module::Loaded);
        let places = PLACES.to_string();
        server.command(&[
            "CONFIG",
            "SET",
            "maxclients",
            &places,
            "requirepass",
            password,
        ]);
        let mut taken = Vec::new();
        eventually("all places are taken", async || {
            taken.extend(take_place(server.port));
            taken.len() == PLACES
        })
        .await;
        let url = format!("redis://{user}127.0.0.1:{}", server.port);
        let store = RedisStore::open(&redis_url(&url), make::PREFIX, TIMEOUT)
            .await
            .unwrap();
        let link = store.watch();
        let state = link.borrow().clone();
        assert!(
            matches!(state, LinkState::Down(DownReason::Unreachable(_))),
            "{state:?}"
        );
        drop(taken);
        eventually("connected", async || {
            matches!(*link.borrow(), LinkState::Up(_))
        })
        .await;
        let key = make::key("s");
        store.run(&key, &make::create("s")).await.unwrap();
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_at_open() {
    let server = RedisServer::start(Module::Loaded);
    let url = format!("redis://:wrong@127.0.0.1:{}", server.port);
    let is_refused = async || {
        let opened = RedisStore::open(&redis_url(&url), make::PREFIX, TIMEOUT).await;
        let error = opened.unwrap_err().to_string();
        assert!(error.contains("wrong user or password"), "{error}");
    };
    is_refused().await;
    server.command(&["CONFIG", "SET", "requirepass", "a-secret"]);
    is_refused().await;
}
