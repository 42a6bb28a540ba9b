//! Bindings that the store knows: the server confirms them by one integer, and what is new is read whole.

use mooring_session::time::Millis;
use redis::Value;

use super::{Module, RedisServer, Refusal, StoreError, make, open, redis_url};
use crate::redis::{RedisStore, Resend, Wire, sized_command, turns};
use crate::test_support::enter;
use crate::turns::EnterReply;

/// What the server replies with where the store knows the binding.
async fn on_the_wire(store: &RedisStore, request: &impl Wire) -> Value {
    let key = make::key("s");
    let known = request.known_binding(&key, &store.known_bindings);
    let mut command = sized_command();
    request.write(&key, &mut command);
    command.arg(("EPOCH", known.expect("it is known").epoch));
    let reply = store.send(&command, "SESSION.ROUTE", Resend::Once).await;
    reply.unwrap()
}

#[tokio::test]
async fn a_known_binding_is_confirmed_and_a_moved_one_is_read() {
    let server = RedisServer::start(Module::Loaded);
    let key = make::key("s");
    for url in [
        server.url(),
        server.unix_url(),
        format!("{}/?protocol=resp3", server.url()),
    ] {
        let store = RedisStore::open(&redis_url(&url), make::PREFIX, super::TIMEOUT)
            .await
            .unwrap();
        store.run(&key, &make::create("s")).await.unwrap();
        let bound = store.run(&key, &make::bind("t", "i", "u")).await.unwrap();
        let whole = store.run(&key, &make::route()).await.unwrap();
        assert!(matches!(
            on_the_wire(&store, &make::route()).await,
            Value::Int(_)
        ));
        let confirmed = store.run(&key, &make::route()).await.unwrap();
        assert_eq!(confirmed, whole);

        let EnterReply { routed, turn, .. } = store.enter(&key, &enter("w:1", "t1")).await.unwrap();
        assert_eq!(routed, whole);
        let again = store.enter(&key, &enter("w:1", "t1")).await.unwrap();
        assert_eq!((again.turn, again.routed), (turn, whole));
        let waits = store.enter(&key, &enter("w:1", "t2")).await.unwrap();
        assert_eq!((waits.turn, waits.holder.is_some()), (None, true));

        // Another gateway moves it.
        let other = open(&server).await.unwrap();
        let moved = make::rebind(bound.binding.epoch, "t2", "j");
        other.run(&key, &moved).await.unwrap();
        for _ in 0..2 {
            let routed = store.run(&key, &make::route()).await.unwrap();
            let binding = routed.binding.unwrap();
            assert_eq!(binding.instance, make::instance("j"));
        }
        other.run(&key, &make::end()).await.unwrap();
        let ended = store.run(&key, &make::route()).await;
        assert_eq!(ended, Err(StoreError::Refused(Refusal::Ended)));
        server.command(&["DEL", key.secret()]);
    }
}

#[test]
fn a_reply_without_its_binding_may_say_for_how_long_the_turn_is_delegated() {
    let reply = |values: &[i64]| Value::Array(values.iter().copied().map(Value::Int).collect());
    let of = |values: &[i64]| turns::granted_as_known(&reply(values));
    assert_eq!(of(&[9, 7]), Some((Some(7), None)));
    assert_eq!(
        of(&[9, 7, 1_800]),
        Some((Some(7), Some(Millis::new(1_800))))
    );
    for other in [&[9][..], &[9, 7, 1_800, 1]] {
        assert_eq!(of(other), None, "{other:?}");
    }
    assert_eq!(turns::granted_as_known(&Value::Int(9)), None);
}
