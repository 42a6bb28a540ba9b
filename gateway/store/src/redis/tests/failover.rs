//! An address that leads to another server after a failover.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use tokio::net::{TcpListener, TcpStream};

use super::*;

/// An address of its own in front of the server with this port.
async fn address_of(port: Arc<AtomicU16>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let port = port.load(Ordering::SeqCst);
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            tokio::spawn(
                async move { tokio::io::copy_bidirectional(&mut client, &mut server).await },
            );
        }
    });
    address
}

#[tokio::test]
async fn a_connection_to_a_former_primary_is_given_up() {
    let former = RedisServer::start(Module::Loaded);
    let next = RedisServer::start(Module::Loaded);
    let port = Arc::new(AtomicU16::new(former.port));
    let url = format!("redis://127.0.0.1:{}", address_of(Arc::clone(&port)).await);
    let store = RedisStore::open(&redis_url(&url), make::PREFIX, TIMEOUT)
        .await
        .unwrap();
    let (key, worker) = (make::key("s"), make::worker("v:1"));
    store.run(&key, &make::create("s")).await.unwrap();
    let waited = store.wait_for_events(&worker, Duration::from_millis(1));
    waited.await.unwrap();

    port.store(next.port, Ordering::SeqCst);
    former.command(&["REPLICAOF", "127.0.0.1", &next.port.to_string()]);
    let refused = store.run(&key, &make::create("s")).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("redis answered READONLY"), "{refused}");
    eventually("the next primary serves", async || {
        store.run(&key, &make::create("s")).await.is_ok()
    })
    .await;
    let waited = store.wait_for_events(&worker, Duration::from_millis(1));
    waited.await.unwrap();
    eventually("the former primary has no clients", async || {
        let clients = former.command(&["CLIENT", "LIST", "TYPE", "normal"]);
        let text = redis::from_redis_value::<String>(clients).unwrap();
        text.lines().count() == 1
    })
    .await;
}
