//! EPOCH of ROUTE and ENTER: a caller that knows the binding is answered by the digest of its request alone, and by the
//! whole answer as soon as that would say anything new.

use mooring_session::RequestDigest;
use mooring_tests::redis::Redis;

use super::resp::{Connection, Value};

const BIND: &str =
    "SESSION.BIND mcpgw:a zoe tools w:1 token LEASE 60000 INSTANCES 1 one UPSTREAM u1";

/// The reply as it is on the wire.
fn raw(c: &mut Connection, command: &str) -> anyhow::Result<Value> {
    let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
    c.say(&words)?;
    c.read_whole()
}

fn digest(command: &str) -> Value {
    let words = command.split(' ').map(str::as_bytes);
    Value::Integer(RequestDigest::of(words).to_integer())
}

#[tokio::test]
async fn what_the_caller_knows_is_not_repeated() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    for hello in ["HELLO 2", "HELLO 3"] {
        let mut c = Connection::open(&redis)?;
        c.run(hello)?;
        c.run("SESSION.CREATE mcpgw:a s zoe TTL 900000")?;
        let epoch = c.run(BIND)?.field("epoch").integer();

        let route = format!("SESSION.ROUTE mcpgw:a zoe tools w:1 EPOCH {epoch}");
        assert_eq!(raw(&mut c, &route)?, digest(&route));
        let route = format!("session.route mcpgw:a zoe tools w:1 epoch {epoch}");
        assert_eq!(raw(&mut c, &route)?, digest(&route));

        let enter = format!("SESSION.ENTER mcpgw:a zoe tools w:1 t LEASE 2000 EPOCH {epoch}");
        let Value::Array(entered) = raw(&mut c, &enter)? else {
            panic!("no array");
        };
        assert_eq!((entered.len(), &entered[0]), (2, &digest(&enter)));
        let turn = c.run("SESSION.ENTER mcpgw:a zoe tools w:1 t LEASE 2000")?;
        assert_eq!(&entered[1], turn.field("turn"));
        let route = format!("SESSION.ROUTE mcpgw:a zoe tools w:1 EPOCH {epoch} TURN t LEASE 2000");
        assert_eq!(
            raw(&mut c, &route)?,
            Value::Array(vec![digest(&route), entered[1].clone()])
        );
        // Who waits is told who has the turn.
        let waits = c.run(&format!(
            "SESSION.ENTER mcpgw:a zoe tools w:1 t2 LEASE 2000 EPOCH {epoch}"
        ))?;
        assert_eq!(waits.field("turn_holder").to_string(), "w:1");
        c.run("DEL mcpgw:a")?;
    }
    Ok(())
}

#[tokio::test]
async fn whatever_is_new_is_told_whole() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run("SESSION.CREATE mcpgw:a s zoe TTL 900000")?;
    let epoch = c.run(BIND)?.field("epoch").integer();
    let route = |worker: &str, epoch: i64| {
        format!("SESSION.ROUTE mcpgw:a zoe tools {worker} EPOCH {epoch}")
    };
    // Another epoch, and another driver than the caller.
    for command in [route("w:1", epoch + 1), route("w:2", epoch)] {
        let routed = c.run(&command)?;
        assert_eq!(routed.field("epoch").integer(), epoch, "{command}");
        assert_eq!(routed.field("upstream_session").to_string(), "u1");
    }
    // A loss that is still to be reported.
    let moved = c.run(&format!(
        "SESSION.REBIND mcpgw:a zoe tools {epoch} w:1 token2 LEASE 60000 INSTANCES 1 two UPSTREAM u2 UNREPORTED"
    ))?;
    let epoch = moved.field("epoch").integer();
    let routed = c.run(&route("w:1", epoch))?;
    assert_eq!(routed.field("lost_instance").to_string(), "one");
    c.run(&format!("SESSION.TOUCH mcpgw:a zoe REPORTED tools {epoch}"))?;
    let known = route("w:1", epoch);
    assert_eq!(raw(&mut c, &known)?, digest(&known));
    // What is refused is refused.
    for (command, code) in [
        (
            format!("SESSION.ROUTE mcpgw:a eve tools w:1 EPOCH {epoch}"),
            "DENIED",
        ),
        (
            format!("SESSION.ROUTE mcpgw:b zoe tools w:1 EPOCH {epoch}"),
            "NOSESSION",
        ),
        (
            "SESSION.ROUTE mcpgw:a zoe tools w:1 EPOCH x".to_owned(),
            "ERR",
        ),
    ] {
        let refused = c.show(&command)?;
        assert!(refused.starts_with(code), "{command}: {refused}");
    }
    c.run("SESSION.END mcpgw:a zoe")?;
    assert!(c.show(&known)?.starts_with("ENDED"));
    // Unbound, claimed, and owned.
    c.run("DEL mcpgw:a")?;
    c.run("SESSION.CREATE mcpgw:a s zoe TTL 900000")?;
    assert_eq!(
        c.run(&route("w:1", 1))?.field("state").to_string(),
        "unbound"
    );
    let claim = "SESSION.BIND mcpgw:a zoe tools w:1 token LEASE 60000 INSTANCES 1 one";
    let epoch = c.run(claim)?.field("epoch").integer();
    assert_eq!(
        c.run(&route("w:1", epoch))?.field("state").to_string(),
        "claimed"
    );
    c.run("DEL mcpgw:a")?;
    c.run("SESSION.CREATE mcpgw:a s zoe TTL 900000")?;
    let epoch = c.run(&format!("{BIND} OWNED"))?.field("epoch").integer();
    assert_eq!(
        c.run(&route("w:1", epoch))?.field("owner").to_string(),
        "w:1"
    );
    Ok(())
}

/// A use that is answered shortly slides the TTL like any other.
#[tokio::test]
async fn it_is_a_use() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run("CONFIG SET mooring.touch-step 1000")?;
    c.run("SESSION.CREATE mcpgw:a s zoe TTL 2000")?;
    let epoch = c.run(BIND)?.field("epoch").integer();
    let written = |c: &mut Connection| -> anyhow::Result<i64> {
        Ok(c.run("SESSION.STATS")?.field("touches_written").integer())
    };
    let before = written(&mut c)?;
    let route = format!("SESSION.ROUTE mcpgw:a zoe tools w:1 EPOCH {epoch}");
    mooring_tests::wait::until_true(
        "a use to be written",
        std::time::Duration::from_secs(20),
        async || {
            assert_eq!(raw(&mut c, &route)?, digest(&route));
            Ok(written(&mut c)? > before)
        },
    )
    .await
}
