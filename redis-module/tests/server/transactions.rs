//! The commands among other clients' ways: transactions, watches, scripts and functions, client-side caches; in both
//! versions of the protocol.

use mooring_tests::redis::Redis;

use super::resp::{Connection, Value};

const KEY: &str = "mcpgw:session_affinity:s1";

/// Opens a connection in one of the protocol's versions.
type Open = fn(&Redis) -> anyhow::Result<Connection>;

const VERSIONS: [Open; 2] = [Connection::open, Connection::open_resp3];

#[tokio::test]
async fn a_transaction_answers_each_command_as_alone() -> anyhow::Result<()> {
    for open in VERSIONS {
        let redis = Redis::start().await?;
        let mut c = open(&redis)?;
        c.run("MULTI")?;
        for queued in [
            format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"),
            format!("SESSION.TOUCH {KEY} eve"),
            format!("SESSION.BIND {KEY} zoe tools w:1 t LEASE 1000 INSTANCES 1 one UPSTREAM u"),
            format!("SESSION.GET {KEY}"),
            "WORKER.BEAT w:1 a TTL 1000".to_owned(),
            format!("SESSION.TOUCH {KEY} zoe TTL nonsense"),
            "WORKER.WAIT w:1 TIMEOUT 600000".to_owned(),
            format!("SESSION.ENTER {KEY} zoe tools w:1 ticket LEASE 1000"),
            format!("SESSION.LEAVE {KEY} zoe tools ticket"),
        ] {
            assert_eq!(c.show(&queued)?, "QUEUED", "{queued}");
        }
        let Value::Array(replies) = c.run("EXEC")? else {
            anyhow::bail!("EXEC answers with an array");
        };
        assert_eq!(replies[0].field("created").integer(), 1);
        assert!(replies[1].to_string().starts_with("DENIED"));
        assert_eq!(replies[2].field("won").integer(), 1);
        assert_eq!(
            replies[3].to_string(),
            c.show(&format!("SESSION.GET {KEY}"))?
        );
        assert_eq!(replies[4].field("alive").integer(), 1);
        assert!(replies[5].to_string().starts_with("ERR invalid TTL"));
        assert_eq!(replies[6], Value::Array(Vec::new()), "nothing waits here");
        assert_eq!(replies[7].field("state").to_string(), "bound");
        assert_eq!(replies[8].field("left").integer(), 1);
        // What is wrong by its number of words alone is refused before anything runs.
        c.run("MULTI")?;
        c.run(&format!("SESSION.KILL {KEY}"))?;
        assert!(c.show("SESSION.GET")?.starts_with("ERR wrong number"));
        assert!(c.show("EXEC")?.starts_with("EXECABORT"));
        assert_eq!(
            c.run(&format!("SESSION.GET {KEY}"))?
                .field("state")
                .to_string(),
            "active"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_transaction_of_changes_is_replicated_as_one() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let mut stream = super::stream::Stream::of(&redis)?;
    c.run("MULTI")?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    c.run(&format!("SESSION.TOUCH {KEY} eve"))?;
    c.run("SESSION.CREATE mcpgw:other s2 zoe TTL 900000")?;
    c.run("EXEC")?;
    assert_eq!(
        stream.names()?,
        ["MULTI", "HSET", "PEXPIREAT", "HSET", "PEXPIREAT", "EXEC"]
    );
    let script =
        "redis.call('SESSION.END', KEYS[1], 'zoe') redis.call('SESSION.END', KEYS[2], 'zoe')";
    c.send(&[
        b"EVAL",
        script.as_bytes(),
        b"2",
        KEY.as_bytes(),
        b"mcpgw:other",
    ])?;
    assert_eq!(
        stream.names()?,
        ["MULTI", "HSET", "PEXPIREAT", "HSET", "PEXPIREAT", "EXEC"]
    );
    Ok(())
}

#[tokio::test]
async fn a_use_breaks_no_watch_and_a_change_does() -> anyhow::Result<()> {
    for open in VERSIONS {
        let redis = Redis::start().await?;
        let mut watching = open(&redis)?;
        let mut using = open(&redis)?;
        // A step of one thousandth of a second: every touch is written.
        using.run("CONFIG SET mooring.touch-step 1000")?;
        using.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 1000"))?;
        watching.run(&format!("WATCH {KEY}"))?;
        let used_at = |c: &mut Connection| -> anyhow::Result<i64> {
            let record = c.run(&format!("SESSION.GET {KEY}"))?;
            Ok(record.field("last_used_at").integer())
        };
        let before = used_at(&mut using)?;
        while used_at(&mut using)? == before {
            using.run(&format!("SESSION.TOUCH {KEY} zoe"))?;
            using.run(&format!("SESSION.ROUTE {KEY} zoe tools w:1"))?;
        }
        using.run(&format!("SESSION.TOUCH {KEY} zoe TTL 900000"))?;
        assert_eq!(exec(&mut watching)?, "[PONG]", "a use is no change of data");

        let tail = "LEASE 60000 INSTANCES 1 one";
        let mut epoch = 0;
        for step in 0..6 {
            let change = match step {
                0 => format!("TOUCH {KEY} zoe HASH h2"),
                1 => format!("TOUCH {KEY} zoe LABEL a 1"),
                2 => format!("BIND {KEY} zoe tools w:1 t {tail}"),
                3 => format!("CONFIRM {KEY} zoe tools {epoch} t UPSTREAM u"),
                4 => format!("UNBIND {KEY} zoe tools {epoch} t"),
                _ => format!("END {KEY} zoe"),
            };
            watching.run(&format!("WATCH {KEY}"))?;
            let reply = using.run(&format!("SESSION.{change}"))?;
            assert!(!matches!(reply, Value::Error(_)), "{change}: {reply}");
            if step == 2 {
                epoch = reply.field("epoch").integer();
            }
            assert_eq!(exec(&mut watching)?, "null", "{change}");
        }
        watching.run(&format!("WATCH {KEY}"))?;
        using.run(&format!("SESSION.END {KEY} zoe"))?;
        assert_eq!(
            exec(&mut watching)?,
            "[PONG]",
            "a second end changes nothing"
        );
    }
    Ok(())
}

/// Whether the watched keys held still: a transaction of one PING.
fn exec(c: &mut Connection) -> anyhow::Result<String> {
    c.run("MULTI")?;
    c.run("PING")?;
    c.show("EXEC")
}

#[tokio::test]
async fn scripts_and_functions_call_them() -> anyhow::Result<()> {
    for open in VERSIONS {
        let redis = Redis::start().await?;
        let mut c = open(&redis)?;
        c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
        for (script, expected) in [
            (
                "local r = redis.call('SESSION.ROUTE', KEYS[1], 'zoe', 'tools', 'w:1') return r[3] .. '=' .. r[4]",
                "state=unbound",
            ),
            (
                "redis.setresp(3) return redis.call('SESSION.ROUTE', KEYS[1], 'zoe', 'tools', 'w:1').map.state",
                "unbound",
            ),
            (
                "return redis.pcall('SESSION.TOUCH', KEYS[1], 'eve').err",
                "DENIED the session belongs to another principal",
            ),
            (
                "return redis.pcall('SESSION.TOUCH', KEYS[1]).err",
                "ERR Wrong number of args calling Redis command from script",
            ),
            ("return #redis.call('WORKER.LIST')", "0"),
            (
                "return #redis.call('WORKER.WAIT', 'w:1', 'TIMEOUT', 600000)",
                "0",
            ),
        ] {
            let shown = c
                .send(&[b"EVAL", script.as_bytes(), b"1", KEY.as_bytes()])?
                .to_string();
            assert!(shown.starts_with(expected), "{script}: {shown}");
        }
        let script = "return redis.call('SESSION.TOUCH', KEYS[1], 'zoe')";
        let shown = c.send(&[b"EVAL_RO", script.as_bytes(), b"1", KEY.as_bytes()])?;
        assert!(
            shown.to_string().contains("Write commands are not allowed"),
            "{shown}"
        );
        let script = "return redis.call('SESSION.GET', KEYS[1])[4]";
        let shown = c.send(&[b"EVAL_RO", script.as_bytes(), b"1", KEY.as_bytes()])?;
        assert_eq!(shown.to_string(), "s1");
        let library = "#!lua name=mine\nredis.register_function('ended', \
            function(keys) return redis.call('SESSION.KILL', keys[1])[4] end)";
        c.send(&[b"FUNCTION", b"LOAD", library.as_bytes()])?;
        assert_eq!(c.show(&format!("FCALL ended 1 {KEY}"))?, "1");
        assert_eq!(c.show(&format!("FCALL ended 1 {KEY}"))?, "0");
    }
    Ok(())
}

/// The next invalidation, which a fence of our own follows: a caching connection hears things in their order.
fn invalidated(listening: &mut Connection, c: &mut Connection) -> anyhow::Result<Vec<String>> {
    c.run("PUBLISH fence here")?;
    let mut heard = Vec::new();
    loop {
        let shown = listening.read()?.to_string();
        if shown.contains("fence") {
            return Ok(heard);
        }
        heard.push(shown);
    }
}

#[tokio::test]
async fn client_side_caches_hear_of_changes_and_of_no_use() -> anyhow::Result<()> {
    for version in [2, 3] {
        let redis = Redis::start().await?;
        let mut c = Connection::open(&redis)?;
        c.run("CONFIG SET mooring.touch-step 1000")?;
        c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
        // In RESP2 another connection is told; in RESP3 the same one, among its replies.
        let mut caching = Connection::open(&redis)?;
        let mut listening = Connection::open(&redis)?;
        if version == 3 {
            caching = Connection::open_resp3(&redis)?;
            listening = Connection::open_resp3(&redis)?;
        }
        let id = listening.run("CLIENT ID")?.integer();
        listening.run("SUBSCRIBE __redis__:invalidate")?;
        listening.run("SUBSCRIBE fence")?;
        caching.run(&format!("CLIENT TRACKING ON REDIRECT {id}"))?;
        let told = match version {
            2 => format!("[message, __redis__:invalidate, [{KEY}]]"),
            _ => format!("[invalidate, [{KEY}]]"),
        };
        let tail = "LEASE 60000 INSTANCES 1 one";
        for (command, expected) in [
            (format!("TOUCH {KEY} zoe"), None),
            (format!("TOUCH {KEY} zoe TTL 1000"), None),
            (format!("ROUTE {KEY} zoe tools w:1"), None),
            (format!("CREATE {KEY} s1 zoe TTL 900000"), None),
            (
                format!("BIND {KEY} zoe tools w:1 t {tail} UPSTREAM u"),
                Some(&told),
            ),
            (
                format!("BIND {KEY} zoe tools w:1 t {tail} UPSTREAM u"),
                None,
            ),
            (format!("TOUCH {KEY} zoe HASH h2"), Some(&told)),
            (format!("END {KEY} eve"), None),
            (format!("END {KEY} zoe"), Some(&told)),
        ] {
            caching.run(&format!("SESSION.GET {KEY}"))?;
            c.run(&format!("SESSION.{command}"))?;
            let heard = invalidated(&mut listening, &mut c)?;
            let expected: Vec<&String> = expected.into_iter().collect();
            assert_eq!(
                heard.iter().collect::<Vec<_>>(),
                expected,
                "RESP{version}: {command}"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_cache_by_prefix_hears_of_changes_and_of_no_use() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut listening = Connection::open_resp3(&redis)?;
    let mut c = Connection::open(&redis)?;
    listening.run("CLIENT TRACKING ON BCAST PREFIX mcpgw:")?;
    listening.run("SUBSCRIBE fence")?;
    for (command, count) in [
        (format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"), 1),
        (format!("SESSION.TOUCH {KEY} zoe TTL 800000"), 0),
        (format!("SESSION.TOUCH {KEY} zoe HASH h"), 1),
        (format!("SESSION.GET {KEY}"), 0),
        (format!("SESSION.EXPLAIN {KEY}"), 0),
        (format!("SESSION.KILL {KEY}"), 1),
    ] {
        c.run(&command)?;
        let heard = invalidated(&mut listening, &mut c)?;
        assert_eq!(heard.len(), count, "{command}: {heard:?}");
    }
    Ok(())
}
