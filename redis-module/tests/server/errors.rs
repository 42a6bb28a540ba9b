//! Every error code, bad input in every argument, and that a refusal changes nothing.

use mooring_tests::redis::Redis;

use super::grammar::grammars;
use super::pages;
use super::resp::{Connection, Value};

/// The codes of the contract.
const CODES: [&str; 9] = [
    "NOSESSION",
    "ENDED",
    "DENIED",
    "STALE",
    "OWNED",
    "BUSY",
    "LIMIT",
    "ERR",
    "WRONGTYPE",
];

const KEY: &str = "mcpgw:session_affinity:s1";
const BIND: &str =
    "SESSION.BIND mcpgw:session_affinity:s1 zoe tools w:1 token1 LEASE 60000 INSTANCES 1 one";

fn error(connection: &mut Connection, command: &str) -> anyhow::Result<String> {
    match connection.run(command)? {
        Value::Error(text) => Ok(text),
        other => anyhow::bail!("{command}: {other}"),
    }
}

#[tokio::test]
async fn every_code_has_its_cause() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    c.run("SET mcpgw:text x")?;
    let epoch = c.run(BIND)?.field("epoch").integer();
    let tail = "LEASE 60000 INSTANCES 1 one";
    let cases = [
        (
            "SESSION.TOUCH mcpgw:none zoe".to_owned(),
            "NOSESSION no such session",
        ),
        (
            format!("SESSION.TOUCH {KEY} eve"),
            "DENIED the session belongs to another principal",
        ),
        (format!("SESSION.ROUTE {KEY} eve tools w:1"), "DENIED"),
        (format!("SESSION.CREATE {KEY} s1 eve TTL 900000"), "DENIED"),
        (
            format!("SESSION.CREATE {KEY} s2 zoe TTL 900000"),
            "ERR the key holds a session with another id",
        ),
        (
            format!("SESSION.CONFIRM {KEY} zoe tools {} token1", epoch + 1),
            "STALE",
        ),
        (
            format!("SESSION.CONFIRM {KEY} zoe tools {epoch} token2"),
            "STALE",
        ),
        (format!("SESSION.UNBIND {KEY} zoe tools {epoch}"), "STALE"),
        (
            format!("SESSION.REBIND {KEY} zoe other {epoch} w:1 t {tail}"),
            "STALE",
        ),
        (
            format!("SESSION.END {KEY} zoe IFIDLE"),
            "BUSY a claim is live",
        ),
        ("SESSION.TOUCH mcpgw:text zoe".to_owned(), "WRONGTYPE"),
        ("SESSION.GET mcpgw:text".to_owned(), "WRONGTYPE"),
        ("SESSION.EXPLAIN mcpgw:text".to_owned(), "WRONGTYPE"),
        ("SESSION.EXPLAIN mcpgw:none".to_owned(), "NOSESSION"),
        (
            "SESSION.ROUTE mcpgw:text zoe tools w:1".to_owned(),
            "WRONGTYPE",
        ),
    ];
    for (command, expected) in cases {
        let shown = error(&mut c, &command)?;
        assert!(shown.starts_with(expected), "{command}: {shown}");
    }
    c.run(&format!(
        "SESSION.BIND {KEY} zoe files w:1 t {tail} UPSTREAM u OWNED"
    ))?;
    let files = c
        .run(&format!("SESSION.ROUTE {KEY} zoe files w:1"))?
        .field("epoch")
        .integer();
    let owned = error(
        &mut c,
        &format!("SESSION.REBIND {KEY} zoe files {files} w:2 t2 {tail}"),
    )?;
    assert_eq!(owned, "OWNED the binding's owner is alive: w:1");
    for server in 2..64 {
        c.run(&format!(
            "SESSION.BIND {KEY} zoe server{server} w:1 t {tail}"
        ))?;
    }
    assert_eq!(
        error(&mut c, &format!("SESSION.BIND {KEY} zoe more w:1 t {tail}"))?,
        "LIMIT bindings 64"
    );
    c.run("WORKER.BEAT w:1 a TTL 1000")?;
    c.run("WORKER.BEAT w:2 a TTL 1000")?;
    let stale = error(&mut c, "WORKER.BEAT w:1 a TTL 1000")?;
    assert_eq!(stale, "STALE a later boot of this worker name is alive");
    c.run(&format!("SESSION.END {KEY} zoe"))?;
    assert!(error(&mut c, &format!("SESSION.ROUTE {KEY} zoe tools w:1"))?.starts_with("ENDED"));
    let refused = error(
        &mut c,
        &format!("SESSION.CREATE {KEY} s1 zoe TTL 900000 NOREVIVE"),
    )?;
    assert!(refused.starts_with("ENDED"), "{refused}");

    let stats = c.run("SESSION.STATS")?;
    assert_eq!(stats.field("failures_denied").integer(), 3);
    assert_eq!(stats.field("failures_wrongtype").integer(), 4);
    assert_eq!(stats.field("failures_limit").integer(), 1);
    let errorstats = c.show("INFO errorstats")?;
    for code in CODES {
        let figure = format!("failures_{}", code.to_lowercase());
        let count = stats.field(&figure).integer();
        assert!(count > 0, "{code} was never given");
        let line = format!("errorstat_{code}:count={count}\\r\\n");
        assert!(errorstats.contains(&line), "{line} in {errorstats}");
    }
    Ok(())
}

/// Whoever may beat cannot move a living worker to an address of its own.
#[tokio::test]
async fn a_living_worker_keeps_its_address() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run("WORKER.BEAT w:1 10.0.0.7:4500 TTL 60000")?;
    let before = c.show("WORKER.LIST")?;
    assert_eq!(
        error(&mut c, "WORKER.BEAT w:1 10.6.6.6:4500 TTL 1000 DRAINING")?,
        "BUSY the worker is alive with another address: a new address needs a new boot id"
    );
    assert_eq!(c.show("WORKER.LIST")?, before, "nothing was changed");
    c.run("WORKER.BEAT w:1 10.0.0.7:4500 TTL 60000 DRAINING")?;
    c.run("WORKER.GONE w:1")?;
    c.run("WORKER.BEAT w:1 10.0.0.8:4500 TTL 60000")?;
    c.run("WORKER.BEAT w:2 10.0.0.9:4500 TTL 60000")?;
    Ok(())
}

#[tokio::test]
async fn errors_name_what_is_wrong() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    let cases = [
        (
            "SESSION.CREATE k id p TTL 900000 ttl 900000",
            "ERR syntax error near 'ttl'",
        ),
        (
            "SESSION.CREATE k id p TTL 900000 LABEL a",
            "ERR syntax error near 'a'",
        ),
        (
            "SESSION.CREATE k id p TTL 900000 LABEL a 1 LABEL a 2",
            "ERR syntax error near 'a'",
        ),
        (
            "SESSION.CREATE k id p HASH h NOREVIVE",
            "ERR syntax error: TTL is missing",
        ),
        (
            "SESSION.CREATE k id p TTL 999",
            "ERR invalid TTL: must be an integer from 1000 to 2592000000",
        ),
        (
            "SESSION.CREATE k id p TTL 1e3",
            "ERR invalid TTL: must be an integer from 1000 to 2592000000",
        ),
        (
            "SESSION.CREATE k id * TTL 900000",
            "ERR invalid principal: * is not a principal",
        ),
        (
            "SESSION.CREATE k i/d p TTL 900000",
            "ERR invalid id: only letters, digits and . _ : - are allowed",
        ),
        (
            "SESSION.END k p IFIDLE IFIDLE",
            "ERR syntax error near 'IFIDLE'",
        ),
        (
            "SESSION.BIND k p s w t LEASE 9 INSTANCES 1 i",
            "ERR invalid LEASE: must be an integer from 10 to 600000",
        ),
        (
            "SESSION.BIND k p s w t INSTANCES 1 i OWNED UPSTREAM u",
            "ERR syntax error: LEASE is missing",
        ),
        (
            "SESSION.BIND k p s w t LEASE 1000 INSTANCES 0 i",
            "ERR invalid INSTANCES: must be an integer from 1 to 1024",
        ),
        (
            "SESSION.BIND k p s w t LEASE 1000 INSTANCES 2 i",
            "ERR syntax error near 'i'",
        ),
        (
            "SESSION.BIND k p s w t LEASE 1000 INSTANCES 1 i i",
            "ERR syntax error near 'i'",
        ),
        (
            "SESSION.CONFIRM k p s -1 t",
            "ERR invalid epoch: must be an integer from 0 to 9223372036854775807",
        ),
        (
            "SESSION.UNBIND k p s 1 t more",
            "ERR syntax error near 'more'",
        ),
        (
            "WORKER.BEAT w a TTL 99",
            "ERR invalid TTL: must be an integer from 100 to 600000",
        ),
        (
            "WORKER.BEAT w a TTL 1000 FOR EVER",
            "ERR syntax error near 'FOR'",
        ),
    ];
    for (command, expected) in cases {
        assert_eq!(error(&mut c, command)?, expected, "{command}");
    }
    assert_eq!(c.show("DBSIZE")?, "1");
    Ok(())
}

/// What a page says that its command answers where a record is missing, broken or another's, it answers.
#[tokio::test]
async fn every_command_refuses_records_as_its_page_says() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let pages = pages::all()?;
    let mut count = 0;
    for grammar in grammars(&mut c)? {
        let page = pages.iter().find(|page| page.name == grammar.name);
        let rows = page.map_or_else(|| Ok(Vec::new()), |page| page.rows("Errors"))?;
        let says = |code: &str, words: &str| {
            let has = |(known, when): &(String, String)| {
                *known == format!("`{code}`") && when.contains(words)
            };
            rows.iter().any(has)
        };
        let line = grammar.whole().join(" ");
        let create = format!("SESSION.CREATE {KEY} x");
        let broken = format!("HSET {KEY} id x");
        let list = format!("RPUSH {KEY} x");
        let foreign = format!("{create} other TTL 900000");
        let own = format!("{create} x TTL 900000");
        let end = format!("SESSION.END {KEY} x");
        for (code, words, setup, shown) in [
            ("NOSESSION", "it never was", vec![], "NOSESSION"),
            ("DENIED", "", vec![foreign], "DENIED"),
            ("ENDED", "", vec![own, end], "ENDED"),
            (
                "ERR",
                "corrupt session record",
                vec![broken],
                "ERR corrupt session record",
            ),
            ("WRONGTYPE", "", vec![list], "WRONGTYPE"),
        ] {
            if !says(code, words) {
                continue;
            }
            c.run("FLUSHALL")?;
            for step in setup {
                assert!(!matches!(c.run(&step)?, Value::Error(_)), "{step}");
            }
            let before = c.show(&format!("DUMP {KEY}"))?;
            let refused = error(&mut c, &line)?;
            assert!(refused.starts_with(shown), "{line}: {refused}");
            assert_eq!(c.show(&format!("DUMP {KEY}"))?, before, "{line}");
            count += 1;
        }
    }
    assert!(count >= 45, "only {count} refusals were tried");
    Ok(())
}

/// Bytes that have broken modules before: terminators, formats, invalid UTF-8, line ends, nothing, too much.
fn poisons() -> Vec<Vec<u8>> {
    vec![
        b"a\0b".to_vec(),
        b"%s%s%n%n".to_vec(),
        b"\xff\xfe".to_vec(),
        b"a\r\n-ERR b".to_vec(),
        Vec::new(),
        vec![b'x'; 2_000],
        vec![0; 70_000],
    ]
}

#[tokio::test]
async fn poison_in_any_argument_is_refused_or_harmless() -> anyhow::Result<()> {
    let mut redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    let epoch = c.run(BIND)?.field("epoch").integer();
    let before = c.show(&format!("HGETALL {KEY}"))?;
    let commands = [
        format!("SESSION.CREATE {KEY} s1 zoe TTL 900000 HASH h LABEL n v NOREVIVE"),
        format!("SESSION.TOUCH {KEY} zoe TTL 900000"),
        format!("SESSION.GET {KEY}"),
        format!("SESSION.EXPLAIN {KEY}"),
        format!("SESSION.END {KEY} eve IFIDLE"),
        format!("SESSION.KILL {KEY}none"),
        format!("SESSION.ROUTE {KEY} zoe tools w:1"),
        format!("SESSION.BIND {KEY} eve tools w:1 t LEASE 60000 INSTANCES 1 one UPSTREAM u OWNED"),
        format!("SESSION.CONFIRM {KEY} eve tools {epoch} t UPSTREAM u"),
        format!(
            "SESSION.REBIND {KEY} eve tools {epoch} w:1 t LEASE 60000 INSTANCES 1 one AVOID two REASON why OWNED"
        ),
        format!("SESSION.UNBIND {KEY} eve tools {epoch} t"),
        "WORKER.BEAT w:1 a TTL 1000 DRAINING".to_owned(),
        "WORKER.GONE w:1".to_owned(),
    ];
    for command in &commands {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        for place in 1..words.len() {
            for poison in poisons() {
                let mut poisoned = words.clone();
                poisoned[place] = &poison;
                // The reply has to be one whole reply; which one is the business of other tests.
                c.send(&poisoned)?;
                assert_eq!(c.show("PING")?, "PONG", "{command} at {place}");
            }
        }
    }
    c.run(&format!("DEL {KEY}none"))?;
    assert_eq!(c.show(&format!("HGETALL {KEY}"))?, before);
    let shown = c.send(&[b"SESSION.TOUCH", &[b'k'; 1_025], b"zoe"])?;
    assert_eq!(shown.to_string(), "ERR invalid key: longer than 1024 bytes");
    let log = redis.process().log_text();
    assert!(!log.contains("internal error"), "{log}");
    Ok(())
}

#[tokio::test]
async fn format_strings_reach_the_log_as_they_are() -> anyhow::Result<()> {
    let mut redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    let epoch = c
        .run(&format!("{BIND} UPSTREAM u"))?
        .field("epoch")
        .integer();
    c.run(&format!(
        "SESSION.REBIND {KEY} zoe tools {epoch} w:2 t LEASE 1000 INSTANCES 2 one %n%s AVOID one REASON %s%s%n"
    ))?;
    let log = redis.process().log_text();
    let line = log
        .lines()
        .find(|line| line.contains("session rebound"))
        .expect("a log line");
    let expected = "server=tools from=one to=%n%s";
    assert!(
        line.contains(expected) && line.contains("reason=\"%s%s%n\""),
        "{line}"
    );
    assert!(!log.contains(KEY), "keys are secrets");
    Ok(())
}
