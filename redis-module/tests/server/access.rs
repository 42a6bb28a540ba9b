//! Who may do what: the users that docs/operating-redis.md advises, and users restricted by command, category, key
//! pattern and kind of access. Every command is tried as every user.

use std::collections::BTreeSet;

use mooring_tests::advised_users::advised_users;
use mooring_tests::redis::Redis;

use super::grammar::{Grammar, grammars};
use super::pages;
use super::reaping::{due, expired, short};
use super::resp::{Connection, Value};

const REFUSED: &str = "NOPERM";

/// A connection as another user.
fn login(redis: &Redis, user: &str, password: &str) -> anyhow::Result<Connection> {
    let mut c = Connection::open(redis)?;
    assert_eq!(c.show(&format!("AUTH {user} {password}"))?, "OK");
    Ok(c)
}

/// Makes a user of these rules, and logs in as it.
fn user(redis: &Redis, rules: &str) -> anyhow::Result<Connection> {
    let mut c = Connection::open(redis)?;
    let made = c.show(&format!("ACL SETUSER someone reset on >secret {rules}"))?;
    assert_eq!(made, "OK", "{rules}");
    login(redis, "someone", "secret")
}

fn commands(redis: &Redis) -> anyhow::Result<Vec<Grammar>> {
    grammars(&mut Connection::open_resp3(redis)?)
}

/// Whether the user may run the command with all its arguments.
fn may(c: &mut Connection, grammar: &Grammar) -> anyhow::Result<bool> {
    let line = grammar.whole();
    let words: Vec<&[u8]> = line.iter().map(|word| word.as_bytes()).collect();
    Ok(!c.send(&words)?.to_string().starts_with(REFUSED))
}

#[tokio::test]
async fn the_users_of_the_guide_do_their_own_work_and_no_other() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let commands = commands(&redis)?;
    let mut granted = BTreeSet::new();
    let users = advised_users()?;
    let names: Vec<_> = users.iter().map(|user| user.name.as_str()).collect();
    assert_eq!(names, ["gateway", "reaper", "operator"]);
    for advised in &users {
        let (name, line) = (&advised.name, &advised.line);
        assert_eq!(c.show(line)?, "OK", "{line}");
        let mut user = login(&redis, name, &advised.password)?;
        for grammar in &commands {
            let is_granted = line
                .split(' ')
                .any(|word| word == format!("+{}", grammar.name));
            assert_eq!(
                may(&mut user, grammar)?,
                is_granted,
                "{name}: {}",
                grammar.name
            );
            if is_granted {
                granted.insert(grammar.name.clone());
            }
        }
        assert!(user.show("SESSION.GET other:key")?.starts_with(REFUSED));
        assert!(
            user.show("HGETALL mcpgw:session_affinity:s1")?
                .starts_with(REFUSED)
        );
        assert!(user.show("FLUSHALL")?.starts_with(REFUSED));
        assert!(user.show("CONFIG GET *")?.starts_with(REFUSED));
    }
    let all: BTreeSet<_> = commands.into_iter().map(|grammar| grammar.name).collect();
    assert_eq!(granted, all, "every command is somebody's");
    assert!(!users[0].line.contains("+session.reindex"));
    Ok(())
}

/// A reaper that is not a gateway: it never beats, and no gateway that lives is in its way.
#[tokio::test]
async fn a_reaper_cleans_up_as_the_user_of_the_guide_without_a_beat() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    let users = advised_users()?;
    let advised = &users[1];
    assert_eq!(c.show(&advised.line)?, "OK");
    c.run("WORKER.BEAT w:1 127.0.0.1:1 TTL 600000")?;
    short(&mut c, "bound", Some("w:1 t LEASE 10 UPSTREAM u"))?;
    expired(&mut c, 1).await?;
    let mut reaper = login(&redis, &advised.name, &advised.password)?;
    reaper.run("HELLO 3")?;
    for command in ["WORKER.BEAT w:1 10.6.6.6:1 TTL 600000", "WORKER.GONE w:1"] {
        let refused = reaper.show(command)?;
        assert!(refused.starts_with(REFUSED), "{command}: {refused}");
    }
    assert_eq!(due(&mut reaper, "reaper:1")?, ["mcpgw:bound"]);
    let record = reaper.run("SESSION.CLAIM mcpgw:bound reaper:1 LEASE 60000")?;
    let generation = record.field("gen").integer();
    assert_eq!(due(&mut reaper, "reaper:1")?, [""; 0]);
    reaper.run(&format!("SESSION.FORGET mcpgw:bound {generation} reaper:1"))?;
    assert_eq!(c.run("EXISTS mcpgw:bound")?.integer(), 0);
    Ok(())
}

#[tokio::test]
async fn keys_outside_the_pattern_are_refused_and_keyless_commands_need_none() -> anyhow::Result<()>
{
    let redis = Redis::start().await?;
    let commands = commands(&redis)?;
    let pages = pages::all()?;
    let has_key = |grammar: &Grammar| -> anyhow::Result<bool> {
        let page = pages.iter().find(|page| page.name == grammar.name);
        page.map_or(Ok(false), pages::Page::has_key)
    };
    for (rules, reaches_sessions) in [
        ("+@all ~mcpgw:session_affinity:*", true),
        ("+@all ~mcpgw:code_exec_session:*", false),
        ("+@all resetkeys", false),
    ] {
        let mut user = user(&redis, rules)?;
        for grammar in &commands {
            let expected = reaches_sessions || !has_key(grammar)?;
            assert_eq!(
                may(&mut user, grammar)?,
                expected,
                "{rules}: {}",
                grammar.name
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn leave_to_read_is_no_leave_to_write() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let commands = commands(&redis)?;
    let pages = pages::all()?;
    // Every command looks at the record before it writes, so leave to write alone is of no use.
    for (rules, may_read) in [("+@all %R~mcpgw:*", true), ("+@all %W~mcpgw:*", false)] {
        let mut user = user(&redis, rules)?;
        for grammar in &commands {
            let page = pages.iter().find(|page| page.name == grammar.name);
            let key = page.map_or(Ok(None), |page| page.fact("key"))?;
            let key = key.unwrap_or_default();
            let expected = key.starts_with("none") || may_read && key == "read";
            assert_eq!(
                may(&mut user, grammar)?,
                expected,
                "{rules}: {}",
                grammar.name
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn categories_work_where_the_server_has_them() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let commands = commands(&redis)?;
    let Value::Array(known) = c.run("ACL CAT")? else {
        anyhow::bail!("ACL CAT is an array");
    };
    let known: BTreeSet<_> = known.iter().map(Value::to_string).collect();
    for category in ["session", "worker"] {
        let rule = format!("allkeys +@{category}");
        if !known.contains(category) {
            let refused = c.show(&format!("ACL SETUSER someone {rule}"))?;
            assert!(refused.starts_with("ERR"), "{refused}");
            continue;
        }
        let mut user = user(&redis, &rule)?;
        for grammar in &commands {
            let expected = grammar.name.starts_with(category);
            assert_eq!(
                may(&mut user, grammar)?,
                expected,
                "{rule}: {}",
                grammar.name
            );
        }
    }
    // One command taken away from everything works everywhere.
    let mut user = user(&redis, "allkeys +@all -session.kill")?;
    for grammar in &commands {
        let expected = grammar.name != "session.kill";
        assert_eq!(may(&mut user, grammar)?, expected, "{}", grammar.name);
    }
    Ok(())
}

/// What a worker hears of is a key's, though the command names none.
#[tokio::test]
async fn news_of_keys_outside_the_pattern_is_not_told() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run("SESSION.CREATE mcpgw:s1 s1 zoe TTL 900000")?;
    for (rules, told) in [("+@all ~other:*", 0), ("+@all %R~mcpgw:*", 1)] {
        let claim = c.run("SESSION.BIND mcpgw:s1 zoe tools w:1 t LEASE 60000 INSTANCES 1 i")?;
        c.run("SESSION.ROUTE mcpgw:s1 zoe tools w:2")?;
        let epoch = claim.field("epoch").integer();
        c.run(&format!("SESSION.UNBIND mcpgw:s1 zoe tools {epoch} t"))?;
        let mut user = user(&redis, rules)?;
        // In a transaction it does not wait.
        let reply = user.transaction(&[b"WORKER.WAIT", b"w:2", b"TIMEOUT", b"1000"])?;
        let Value::Array(answers) = &reply else {
            anyhow::bail!("EXEC answers with an array: {reply}");
        };
        let [Value::Array(news)] = answers.as_slice() else {
            anyhow::bail!("WAIT answers with an array: {reply}");
        };
        assert_eq!(news.len(), told, "{rules}: {reply}");
    }
    Ok(())
}

/// A cap counts the principal's sessions whoever may read them.
#[tokio::test]
async fn a_cap_names_no_key_outside_the_pattern() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    c.run("SESSION.CREATE mcpgw:s1 s1 zoe TTL 900000")?;
    for (pattern, refused) in [
        ("%RW~mcpgw:s2", "LIMIT 1"),
        ("%RW~mcpgw:s2 %W~mcpgw:s1", "LIMIT 1"),
        ("%RW~mcpgw:s2 %R~mcpgw:s1", "LIMIT 1 mcpgw:s1"),
    ] {
        let mut user = user(&redis, &format!("+@all {pattern}"))?;
        let create = "SESSION.CREATE mcpgw:s2 s2 zoe TTL 900000 CAP 1";
        assert_eq!(user.show(create)?, refused, "{pattern}");
        // A script runs as its caller.
        let words: [&[u8]; 4] = [
            b"EVAL",
            b"return redis.pcall('SESSION.CREATE', KEYS[1], 's2', 'zoe', 'TTL', '900000', 'CAP', '1')",
            b"1",
            b"mcpgw:s2",
        ];
        assert_eq!(user.send(&words)?.to_string(), refused, "{pattern}");
    }
    assert_eq!(c.run("SESSION.STATS")?.field("caps_refused").integer(), 6);
    Ok(())
}

#[tokio::test]
async fn tokens_and_upstream_sessions_are_kept_out_of_slowlog_and_monitor() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run("SESSION.CREATE mcpgw:s1 s1 zoe TTL 900000")?;
    c.run("CONFIG SET slowlog-log-slower-than 0")?;
    let mut monitor = Connection::open(&redis)?;
    monitor.run("MONITOR")?;
    let tail = "LEASE 60000 INSTANCES 1 i";
    let bind = format!("SESSION.BIND mcpgw:s1 zoe tools w:1 secret-1 {tail}");
    let epoch = c.run(&bind)?.field("epoch").integer();
    c.run(&format!(
        "SESSION.CONFIRM mcpgw:s1 zoe tools {epoch} secret-1 UPSTREAM secret-2"
    ))?;
    let rebind =
        format!("SESSION.REBIND mcpgw:s1 zoe tools {epoch} w:1 secret-3 {tail} UPSTREAM secret-4");
    let epoch = c.run(&rebind)?.field("epoch").integer();
    let unbind = format!("SESSION.UNBIND mcpgw:s1 zoe tools {epoch} secret-3");
    assert_eq!(
        c.run(&unbind)?.field("upstream_session").to_string(),
        "secret-4"
    );
    let mut shown = c.show("SLOWLOG GET 128")?;
    for _ in 0..4 {
        shown.push_str(&monitor.read()?.to_string());
    }
    assert!(!shown.contains("secret-"), "{shown}");
    for command in ["BIND", "CONFIRM", "REBIND", "UNBIND"] {
        assert!(
            shown.matches(&format!("SESSION.{command}")).count() >= 2,
            "{shown}"
        );
    }
    assert!(shown.matches("(redacted)").count() >= 12, "{shown}");
    Ok(())
}

/// Where words cannot be read it is not known which of them is the token.
#[tokio::test]
async fn a_command_that_cannot_be_read_shows_no_word() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    c.run("CONFIG SET slowlog-log-slower-than 0")?;
    let mut monitor = Connection::open(&redis)?;
    monitor.run("MONITOR")?;
    let tail = "LEASE 60000 INSTANCES 1 i";
    let refused = [
        // A word too many, or too few, before the token.
        format!("SESSION.BIND mcpgw:s1 zoe my tools w:1 secret-1 {tail} UPSTREAM secret-2"),
        format!("SESSION.BIND mcpgw:s1 tools w:1 secret-1 {tail} OWNED"),
        format!("SESSION.REBIND mcpgw:s1 zoe tools latest w:1 secret-1 {tail} UPSTREAM secret-2"),
        "SESSION.BIND mcpgw:s1 zoe tools w:1 t INSTANCES 1 i LEASE 1 UPSTREAM secret-2".to_owned(),
        "SESSION.CONFIRM mcpgw:s1 zoe tools latest secret-1 UPSTREAM secret-2".to_owned(),
        "SESSION.UNBIND mcpgw:s1 zoe tools latest secret-1".to_owned(),
        "SESSION.UNBIND mcpgw:s1 zoe tools 1 secret-1 secret-1".to_owned(),
    ];
    for command in &refused {
        assert!(c.show(command)?.starts_with("ERR "), "{command}");
    }
    let mut shown = c.show("SLOWLOG GET 128")?;
    for _ in &refused {
        shown.push_str(&monitor.read()?.to_string());
    }
    assert!(!shown.contains("secret-"), "{shown}");
    assert!(!shown.contains("mcpgw:"), "{shown}");
    Ok(())
}

/// One that waits under the name of another's worker takes nothing from it that it could not read anyway.
#[tokio::test]
async fn events_that_a_user_may_not_read_stay_for_one_that_may() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open_resp3(&redis)?;
    c.run("SESSION.CREATE mcpgw:a s zoe TTL 900000")?;
    let claim = "SESSION.BIND mcpgw:a zoe tools w:1 t LEASE 60000 INSTANCES 1 one";
    let epoch = c.run(claim)?.field("epoch").integer();
    let routed = c.run("SESSION.ROUTE mcpgw:a zoe tools w:2")?;
    assert_eq!(routed.field("state").to_string(), "claimed");
    let confirm = format!("SESSION.CONFIRM mcpgw:a zoe tools {epoch} t UPSTREAM u");
    assert!(!matches!(c.run(&confirm)?, Value::Error(_)));
    let mut low = user(&redis, "resetkeys nocommands +worker.wait")?;
    assert_eq!(low.show("WORKER.WAIT w:2 TIMEOUT 1")?, "[]");
    let told = c.show("WORKER.WAIT w:2 TIMEOUT 1")?;
    assert!(told.contains("event: settled"), "{told}");
    Ok(())
}
