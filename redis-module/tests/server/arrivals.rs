//! A session that arrives from another node: its turns are with that node for as long as a lease, so nobody gets one here
//! before, except who holds it.

use mooring_tests::redis::{Module, Redis};
use mooring_tests::wait;

use super::resp::{Connection, Value};
use super::turns::{SOON, turn};

/// As long as a lease of these tests.
const QUIET_MS: &str = "4000";

/// How a record leaves one node and comes to another.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Key by key, as slots move.
    Migrate,
    /// With the fields of its hash, as slots are copied in advance.
    Fields,
}

/// A node whose own quiet time is over.
async fn node() -> anyhow::Result<(Redis, Connection)> {
    let settings = [
        "--mooring.worker-grace-ms",
        "60000",
        "--mooring.turn-lease-max-ms",
        "100",
    ];
    let redis = Redis::start_with(Module::Loaded, &settings).await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run("SESSION.CREATE mcpgw:first s1 zoe TTL 900000")?;
    // The quiet time does not apply to a session that was created in it.
    c.run("RENAME mcpgw:first mcpgw:renamed")?;
    until_turn(&mut c, "mcpgw:renamed", "w:0").await?;
    c.run(&format!("CONFIG SET mooring.turn-lease-max-ms {QUIET_MS}"))?;
    Ok((redis, c))
}

fn enter(key: &str, worker: &str, more: &str) -> String {
    format!("SESSION.ENTER {key} zoe tools {worker} t{worker} LEASE 100{more}")
}

/// Asks until there is a turn.
async fn until_turn(c: &mut Connection, key: &str, worker: &str) -> anyhow::Result<()> {
    wait::until_true("a turn", SOON, async || {
        Ok(turn(&c.run(&enter(key, worker, ""))?).is_some())
    })
    .await
}

fn send(
    way: Way,
    key: &str,
    from: &mut Connection,
    to: &Redis,
    c: &mut Connection,
) -> anyhow::Result<()> {
    match way {
        Way::Migrate => {
            let migrate = format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port());
            assert_eq!(from.show(&migrate)?, "OK");
        }
        Way::Fields => {
            let fields = match from.run(&format!("HGETALL {key}"))? {
                Value::Map(pairs) => pairs
                    .iter()
                    .flat_map(|(field, value)| [field.to_string(), value.to_string()])
                    .collect::<Vec<_>>(),
                Value::Array(fields) => fields.iter().map(Value::to_string).collect(),
                other => anyhow::bail!("{other}"),
            };
            let mut words: Vec<&[u8]> = vec![b"HSET", key.as_bytes()];
            words.extend(fields.iter().map(|word| word.as_bytes()));
            c.send(&words)?;
        }
    }
    Ok(())
}

async fn a_turn_is_not_granted_twice(way: Way) -> anyhow::Result<()> {
    let (_source, mut from) = node().await?;
    let (target, mut c) = node().await?;
    let (held, idle) = ("mcpgw:{a}:held", "mcpgw:{b}:idle");
    for key in [held, idle] {
        from.run(&format!("SESSION.CREATE {key} s1 zoe TTL 900000"))?;
    }
    let number = turn(&from.run(&enter(held, "a:1", ""))?).expect("a turn");
    for key in [held, idle] {
        send(way, key, &mut from, &target, &mut c)?;
    }

    for key in [held, idle] {
        let asked = c.run(&enter(key, "b:1", ""))?;
        assert_eq!(turn(&asked), None, "{way:?}: {key}");
    }
    let other_server = format!("SESSION.ENTER {held} zoe other b:1 other LEASE 100");
    assert_eq!(turn(&c.run(&other_server)?), None, "{way:?}");
    let claim = enter(held, "a:1", &format!(" HELD {number}"));
    assert_eq!(turn(&c.run(&claim)?), Some(number), "{way:?}: who holds it");
    // Nobody can hold an older turn of these.
    for new in ["mcpgw:{a}:new", "mcpgw:elsewhere"] {
        c.run(&format!("SESSION.CREATE {new} s1 zoe TTL 900000"))?;
        assert!(turn(&c.run(&enter(new, "b:1", ""))?).is_some(), "{new}");
    }
    until_turn(&mut c, idle, "b:1").await
}

#[tokio::test]
async fn a_session_that_moves_key_by_key_has_one_caller_at_a_time() -> anyhow::Result<()> {
    a_turn_is_not_granted_twice(Way::Migrate).await
}

#[tokio::test]
async fn a_session_that_is_copied_has_one_caller_at_a_time() -> anyhow::Result<()> {
    a_turn_is_not_granted_twice(Way::Fields).await
}
