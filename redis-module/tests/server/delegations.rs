//! DELEGATE of ENTER and ROUTE: to whom a turn or a route is delegated, and in [`ends`] every way in which that ends.

pub(super) mod ends;

use mooring_session::RequestDigest;
use mooring_session::limits::DELEGATION_STREAK_MIN;
use mooring_tests::redis::{Module, Redis};

use super::resp::{Connection, Value};
use super::turns::{KEY, enter, hear_turn, leave, over_the_quiet_time, turn, until_waiting};

/// Longer than a connection waits for a reply, so that no delegation ends by itself.
const LEASE: i64 = 600_000;
const SETTINGS: [&str; 4] = [
    "--mooring.worker-grace-ms",
    "600000",
    "--mooring.turn-lease-max-ms",
    "100",
];
const RENEWAL: &str =
    "SESSION.ENTER mcpgw:session_affinity:s1 zoe tools a:1 a9 LEASE 600000 DELEGATE";
const ROUTE: &str = "SESSION.ROUTE mcpgw:session_affinity:s1 zoe tools a:1 DELEGATE 600000";
const SETTLED: &str =
    "[{event: settled, key: mcpgw:session_affinity:s1, server: tools, ticket: null, turn: null}]";

/// A server on which worker `a:1` waits for events and drives the binding of one session.
struct Fixture {
    redis: Redis,
    c: Connection,
    waiting: Connection,
}

impl Fixture {
    async fn start() -> anyhow::Result<Self> {
        let redis = Redis::start_with(Module::Loaded, &SETTINGS).await?;
        let mut c = Connection::open_resp3(&redis)?;
        create(&mut c)?;
        over_the_quiet_time(&mut c).await?;
        c.run("CONFIG SET mooring.turn-lease-max-ms 600000")?;
        let mut fixture = Self {
            waiting: Connection::open_resp3(&redis)?,
            redis,
            c,
        };
        fixture.wait().await?;
        Ok(fixture)
    }

    /// Worker `a:1` waits for events.
    async fn wait(&mut self) -> anyhow::Result<()> {
        begin_wait(&mut self.waiting)?;
        until_waiting(&mut self.c, 1).await
    }

    /// The turns in a row after which one is delegated, and that one, under `a9`. Returns for how long it is.
    fn ask_in_a_row(&mut self) -> anyhow::Result<Option<i64>> {
        for n in 1..DELEGATION_STREAK_MIN {
            let ticket = format!("a{n}");
            let entered = self.c.run(&enter("a:1", &ticket, 600_000, " DELEGATE"))?;
            assert!(turn(&entered).is_some(), "{entered}");
            assert_eq!(delegated_ms(&entered), None, "too early");
            self.c.run(&leave(&ticket))?;
        }
        let entered = self.c.run(RENEWAL)?;
        assert!(turn(&entered).is_some(), "{entered}");
        Ok(delegated_ms(&entered))
    }

    /// Worker `b:1` asks for the turn that is delegated to `a:1`, which hears of it.
    fn recall(&mut self) -> anyhow::Result<()> {
        let waits = self.c.run(&enter("b:1", "b1", 60_000, ""))?;
        assert_eq!(turn(&waits), None);
        assert_eq!(waits.field("turn_holder").to_string(), "a:1");
        assert_eq!(self.waiting.read()?.to_string(), SETTLED);
        Ok(())
    }

    fn count(&mut self, figure: &str) -> anyhow::Result<i64> {
        Ok(self.c.run("SESSION.STATS")?.field(figure).integer())
    }
}

/// A session of which `a:1` drives the only binding.
fn create(c: &mut Connection) -> anyhow::Result<()> {
    c.run(&format!("DEL {KEY}"))?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 3600000"))?;
    c.run(&bind("a:1", ""))?;
    Ok(())
}

fn bind(worker: &str, more: &str) -> String {
    format!(
        "SESSION.BIND {KEY} zoe tools {worker} t1 LEASE 60000 INSTANCES 1 one UPSTREAM u1{more}"
    )
}

fn begin_wait(connection: &mut Connection) -> anyhow::Result<()> {
    connection.say(&[b"WORKER.WAIT", b"a:1", b"TIMEOUT", b"600000"])
}

/// The field of a reply that may lack it.
fn optional<'a>(reply: &'a Value, name: &str) -> Option<&'a Value> {
    let Value::Map(pairs) = reply else {
        panic!("no map: {reply}");
    };
    let field = pairs.iter().find(|(field, _)| field.to_string() == name);
    field.map(|(_, value)| value)
}

fn delegated_ms(reply: &Value) -> Option<i64> {
    optional(reply, "delegated_ms").map(Value::integer)
}

/// The command with the epoch of the binding in place of `#`.
fn with_epoch(c: &mut Connection, command: &str) -> anyhow::Result<String> {
    let route = c.run(&format!("SESSION.ROUTE {KEY} zoe tools a:1"))?;
    Ok(command.replace(
        '#',
        &optional(&route, "epoch").map_or_else(String::new, |epoch| epoch.integer().to_string()),
    ))
}

#[tokio::test]
async fn a_turn_is_delegated_after_some_in_a_row_until_another_caller_waits() -> anyhow::Result<()>
{
    let mut fixture = Fixture::start().await?;
    assert_eq!(fixture.ask_in_a_row()?, Some(LEASE));
    assert_eq!(delegated_ms(&fixture.c.run(RENEWAL)?), Some(LEASE));
    assert_eq!(fixture.count("turns_delegated")?, 1);
    // After it was left, it takes as many in a row again.
    assert_eq!(fixture.c.show(&leave("a9"))?, "{left: 1}");
    assert_eq!(fixture.ask_in_a_row()?, Some(LEASE));
    fixture.recall()?;
    assert_eq!(fixture.count("turns_recalled")?, 1);
    // The call that runs keeps its turn.
    let kept = fixture.c.run(RENEWAL)?;
    assert!(turn(&kept).is_some(), "{kept}");
    assert_eq!(delegated_ms(&kept), None);
    fixture.c.run(&leave("a9"))?;
    hear_turn(&mut fixture.c, "b:1", "b1")
}

#[tokio::test]
async fn a_caller_that_waits_has_the_turn_when_the_lease_has_lapsed() -> anyhow::Result<()> {
    let mut fixture = Fixture::start().await?;
    assert_eq!(fixture.ask_in_a_row()?, Some(LEASE));
    fixture.c.run(&RENEWAL.replace("600000", "300"))?;
    fixture.recall()?;
    hear_turn(&mut fixture.c, "b:1", "b1")?;
    assert!(fixture.c.show(&leave("a9"))?.starts_with("STALE"));
    Ok(())
}

/// The reply is the one without DELEGATE.
#[tokio::test]
async fn a_delegation_that_is_not_possible_is_no_error() -> anyhow::Result<()> {
    let rebind = format!("SESSION.REBIND {KEY} zoe tools # a:1 t2 LEASE 60000 INSTANCES 1 two");
    let unbind = format!("SESSION.UNBIND {KEY} zoe tools #");
    let cases: [(&str, &[String]); 9] = [
        ("nothing speaks against it", &[]),
        (
            "the worker owns it",
            &[unbind.clone(), bind("a:1", " OWNED")],
        ),
        (
            "another worker drove it last",
            &[unbind.clone(), bind("b:1", "")],
        ),
        (
            "another worker owns it",
            &[unbind.clone(), bind("b:1", " OWNED")],
        ),
        ("it is not bound", &[unbind]),
        ("it is claimed", std::slice::from_ref(&rebind)),
        (
            "a loss is not reported",
            &[format!("{rebind} UPSTREAM u2 UNREPORTED")],
        ),
        (
            "the TTL is too short",
            &[format!("SESSION.TOUCH {KEY} zoe TTL 2399999")],
        ),
        (
            "the module is to be unloaded",
            &["CONFIG SET mooring.quiesce yes".to_owned()],
        ),
    ];
    let mut fixture = Fixture::start().await?;
    for (place, (case, commands)) in cases.into_iter().enumerate() {
        create(&mut fixture.c)?;
        for command in commands {
            let command = with_epoch(&mut fixture.c, command)?;
            let reply = fixture.c.show(&command)?;
            assert!(reply.starts_with('{') || reply == "OK", "{case}: {reply}");
        }
        let expected = (place < 3).then_some(LEASE);
        assert_eq!(fixture.ask_in_a_row()?, expected, "{case}");
        fixture.c.run(&leave("a9"))?;
        assert_eq!(delegated_ms(&fixture.c.run(ROUTE)?), expected, "{case}");
    }
    Ok(())
}

#[tokio::test]
async fn nothing_is_delegated_to_a_worker_that_does_not_wait_for_events() -> anyhow::Result<()> {
    let mut fixture = Fixture::start().await?;
    for command in [ROUTE, RENEWAL] {
        let command = command.replace("a:1", "c:1");
        // It drives the binding, but only a transaction asked for its events, which cannot wait.
        create(&mut fixture.c)?;
        fixture
            .c
            .run(&format!("SESSION.UNBIND {KEY} zoe tools 0"))?;
        let unbind = with_epoch(&mut fixture.c, &format!("SESSION.UNBIND {KEY} zoe tools #"))?;
        fixture.c.run(&unbind)?;
        fixture.c.run(&bind("c:1", ""))?;
        fixture
            .c
            .transaction(&[b"WORKER.WAIT", b"c:1", b"TIMEOUT", b"1"])?;
        for _ in 0..=DELEGATION_STREAK_MIN {
            assert_eq!(delegated_ms(&fixture.c.run(&command)?), None);
            fixture.c.run(&leave("a9"))?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_caller_that_knows_the_binding_gets_numbers_alone() -> anyhow::Result<()> {
    let mut fixture = Fixture::start().await?;
    for hello in ["HELLO 2", "HELLO 3"] {
        create(&mut fixture.c)?;
        let mut c = Connection::open(&fixture.redis)?;
        let mut left = Connection::open(&fixture.redis)?;
        c.run(hello)?;
        let mut ask = |command: &str| -> anyhow::Result<(Value, Value)> {
            let command = with_epoch(&mut fixture.c, &format!("{command} EPOCH #"))?;
            let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
            c.say(&words)?;
            let digest = RequestDigest::of(words.iter().copied()).to_integer();
            Ok((c.read_whole()?, Value::Integer(digest)))
        };
        let length = Value::Integer(LEASE);
        let (routed, named) = ask(ROUTE)?;
        assert_eq!(routed, Value::Array(vec![named, length.clone()]));
        let (routed, named) = ask(&ROUTE.replace(" DELEGATE 600000", ""))?;
        assert_eq!(routed, named);
        for n in 1..=DELEGATION_STREAK_MIN {
            let (entered, named) = ask(RENEWAL)?;
            let Value::Array(items) = entered else {
                panic!("no array: {entered}");
            };
            assert!(items[1].integer() > 0);
            let expected: &[Value] = match n < DELEGATION_STREAK_MIN {
                true => &[named, items[1].clone()],
                false => &[named, items[1].clone(), length.clone()],
            };
            assert_eq!(items, expected);
            if n < DELEGATION_STREAK_MIN {
                left.run(&leave("a9"))?;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn operators_see_to_whom_a_turn_is_delegated() -> anyhow::Result<()> {
    let mut fixture = Fixture::start().await?;
    assert_eq!(fixture.ask_in_a_row()?, Some(LEASE));
    let explained = fixture.c.show(&format!("SESSION.EXPLAIN {KEY}"))?;
    assert!(
        explained.contains("is delegated to all calls of a:1, lapses in "),
        "{explained}"
    );
    let listed = |c: &mut Connection| -> anyhow::Result<Option<String>> {
        let Value::Array(sessions) = c.run("SESSION.LIST")?.field("sessions").clone() else {
            panic!("sessions are an array");
        };
        Ok(optional(&sessions[0], "delegations").map(Value::to_string))
    };
    let shown = listed(&mut fixture.c)?;
    assert_eq!(
        shown.as_deref(),
        Some("[{server: tools, worker: a:1, until: #}]")
    );
    fixture.c.run(&leave("a9"))?;
    assert_eq!(listed(&mut fixture.c)?, None);
    Ok(())
}

#[tokio::test]
async fn a_route_is_delegated_or_its_turn_is_asked_for() -> anyhow::Result<()> {
    let mut fixture = Fixture::start().await?;
    for (options, expected) in [
        (
            "TURN t LEASE 1000 DELEGATE 1000",
            "ERR syntax error near 'DELEGATE'",
        ),
        (
            "DELEGATE 9",
            "ERR invalid DELEGATE: must be an integer from 10 to 600000",
        ),
        (
            "DELEGATE 600001",
            "ERR invalid DELEGATE: must be an integer from 10 to 600000",
        ),
        ("DELEGATE", "ERR syntax error near 'DELEGATE'"),
    ] {
        let route = format!("SESSION.ROUTE {KEY} zoe tools a:1 {options}");
        assert_eq!(fixture.c.show(&route)?, expected);
    }
    Ok(())
}

#[tokio::test]
async fn a_route_is_delegated_until_its_time_is_over() -> anyhow::Result<()> {
    let mut fixture = Fixture::start().await?;
    let short = ROUTE.replace("600000", "10");
    assert_eq!(delegated_ms(&fixture.c.run(&short)?), Some(10));
    assert_eq!(fixture.waiting.read()?.to_string(), SETTLED);
    Ok(())
}
