//! Loading, unloading, and settings.

use std::time::Duration;

use mooring_tests::redis::{Module, Redis};
use mooring_tests::{paths, wait};

use super::resp::{Connection, Value};

const FOLLOWED_WITHIN: Duration = Duration::from_secs(10);

const KEY: &str = "mcpgw:session_affinity:s1";

#[tokio::test]
async fn it_can_be_unloaded_and_loaded_again() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let path = paths::redis_module()?.display().to_string();
    for _ in 0..3 {
        c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
        assert_eq!(
            c.run("SESSION.STATS")?.field("creates").integer()
                + c.run("SESSION.STATS")?.field("reuses").integer(),
            1
        );
        assert_eq!(c.show("MODULE UNLOAD mooring")?, "OK");
        assert!(
            c.show(&format!("SESSION.GET {KEY}"))?
                .starts_with("ERR unknown command")
        );
        let identity = c.show(&format!("HGET {KEY} id"))?;
        assert!(identity.ends_with(" s1"), "the data stays: {identity}");
        assert_eq!(c.show(&format!("MODULE LOAD {path}"))?, "OK");
    }
    Ok(())
}

/// Replicas and the append-only file follow the module by these: without one of them they would drift apart unseen.
#[tokio::test]
async fn a_server_without_a_command_that_replicas_follow_by_is_refused() -> anyhow::Result<()> {
    let path = paths::redis_module()?.display().to_string();
    for (command, name_now) in [
        ("HSET", ""),
        ("HDEL", ""),
        ("PEXPIREAT", ""),
        ("UNLINK", "unlink-renamed"),
        ("SET", "set-renamed"),
    ] {
        let renamed = ["--rename-command", command, name_now];
        let redis = Redis::start_with(Module::Absent, &renamed).await?;
        let mut c = Connection::open(&redis)?;
        let loaded = c.show(&format!("MODULE LOAD {path}"))?;
        assert!(loaded.starts_with("ERR "), "{command}: {loaded}");
        let log = std::fs::read_to_string(redis.directory().join("redis.log"))?;
        let line = format!("not loaded: this server has no command \"{command}\"");
        assert!(log.contains(&line), "{log}");
    }
    Ok(())
}

#[tokio::test]
async fn settings_come_from_everywhere_and_are_refused_with_the_range() -> anyhow::Result<()> {
    let redis = Redis::start_with(Module::Loaded, &["--hash-max-listpack-value", "512"]).await?;
    let mut c = Connection::open(&redis)?;
    assert_eq!(
        c.show("CONFIG GET mooring.tombstone-ratio")?,
        "[mooring.tombstone-ratio, 2]"
    );
    for (setting, least, most) in [
        ("tombstone-ratio", 1, 10),
        ("tombstone-min-ms", 0, 86_400_000),
        ("touch-step", 1, 1_000),
        ("worker-grace-ms", 1_000, 600_000),
        ("turn-queue-max", 1, 65_536),
        ("turn-lease-max-ms", 100, 600_000),
    ] {
        for good in [least, most] {
            assert_eq!(
                c.show(&format!("CONFIG SET mooring.{setting} {good}"))?,
                "OK"
            );
        }
        for bad in [least - 1, most + 1] {
            let shown = c.show(&format!("CONFIG SET mooring.{setting} {bad}"))?;
            let range = format!("argument must be between {least} and {most} inclusive");
            assert!(shown.ends_with(&range), "{shown}");
        }
    }
    c.run("CONFIG SET mooring.tombstone-ratio 3")?;
    c.run("CONFIG SET mooring.tombstone-min-ms 0")?;
    let created = c.run(&format!("SESSION.CREATE {KEY} s1 zoe TTL 900000"))?;
    let dropped_at = c.run(&format!("PEXPIRETIME {KEY}"))?.integer();
    assert_eq!(
        dropped_at - created.field("created_at").integer(),
        3 * 900_000 + 900_000 / 4
    );

    c.run("MODULE UNLOAD mooring")?;
    let path = paths::redis_module()?.display().to_string();
    c.run(&format!(
        "MODULE LOADEX {path} CONFIG mooring.touch-step 7 ARGS tombstone-ratio 4"
    ))?;
    assert_eq!(
        c.show("CONFIG GET mooring.touch-step")?,
        "[mooring.touch-step, 7]"
    );
    assert_eq!(
        c.show("CONFIG GET mooring.tombstone-ratio")?,
        "[mooring.tombstone-ratio, 4]"
    );
    Ok(())
}

#[tokio::test]
async fn bad_arguments_keep_it_out_and_the_log_says_why() -> anyhow::Result<()> {
    let mut redis = Redis::start_with(Module::Absent, &[]).await?;
    let mut c = Connection::open(&redis)?;
    let path = paths::redis_module()?.display().to_string();
    for (arguments, reason) in [
        (
            "tombstone-ratio 11",
            "not loaded: tombstone-ratio must be an integer from 1 to 10",
        ),
        (
            "touch-step",
            "not loaded: the setting \"touch-step\" has no value",
        ),
        ("%s%n 1", "not loaded: there is no setting \"%s%n\""),
        (
            "turn-queue-max 0",
            "not loaded: turn-queue-max must be an integer from 1 to 65536",
        ),
        (
            "prefixes mcpgw:\t",
            "not loaded: prefixes must be made of visible ASCII characters, with spaces between them",
        ),
    ] {
        let shown = c.show(&format!("MODULE LOAD {path} {arguments}"))?;
        assert!(
            shown.starts_with("ERR Error loading the extension"),
            "{shown}"
        );
        let log = redis.process().log_text();
        assert!(log.contains(reason), "{reason} in {log}");
    }
    assert_eq!(c.show(&format!("MODULE LOAD {path} touch-step 9"))?, "OK");
    assert_eq!(
        c.show("CONFIG GET mooring.touch-step")?,
        "[mooring.touch-step, 9]"
    );
    Ok(())
}

#[tokio::test]
async fn prefixes_are_a_list_that_is_taken_whole_or_refused() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    let get = "CONFIG GET mooring.prefixes";
    assert_eq!(
        c.show(get)?,
        "[mooring.prefixes, mcpgw: mcpgw:code_exec_session: mcpgw:agent_session:]"
    );
    let set = |c: &mut Connection, list: &str| -> anyhow::Result<String> {
        let words = [&b"CONFIG"[..], b"SET", b"mooring.prefixes", list.as_bytes()];
        Ok(c.send(&words)?.to_string())
    };
    let many = |count: usize| (0..count).map(|n| format!("p{n}: ")).collect::<String>();
    for (bad, reason) in [
        ("", "must name at least one prefix"),
        ("   ", "must name at least one prefix"),
        (&many(17), "must name at most 16 prefixes"),
        (&"x".repeat(65), "must be at most 64 bytes long each"),
        ("a: b: a:", "must differ from each other"),
        ("a:\0", "must be made of visible ASCII characters"),
        ("caf\u{e9}:", "must be made of visible ASCII characters"),
    ] {
        let shown = set(&mut c, bad)?;
        assert!(
            shown.starts_with("ERR CONFIG SET failed") && shown.contains(reason),
            "{bad:?}: {shown}"
        );
        assert_eq!(
            c.show(get)?,
            "[mooring.prefixes, mcpgw: mcpgw:code_exec_session: mcpgw:agent_session:]"
        );
    }
    for good in ["mcpgw:", &many(16), &"x".repeat(64), "  a:   b:c: "] {
        assert_eq!(set(&mut c, good)?, "OK", "{good}");
    }
    assert_eq!(c.show(get)?, "[mooring.prefixes, a: b:c:]");
    c.run("MODULE UNLOAD mooring")?;
    let path = paths::redis_module()?.display().to_string();
    let load = [
        &b"MODULE"[..],
        b"LOAD",
        path.as_bytes(),
        b"prefixes",
        b"x: y:",
    ];
    assert_eq!(c.send(&load)?.to_string(), "OK");
    assert_eq!(c.show(get)?, "[mooring.prefixes, x: y:]");
    c.run("MODULE UNLOAD mooring")?;
    let name = &b"mooring.prefixes"[..];
    let load = [
        &b"MODULE"[..],
        b"LOADEX",
        path.as_bytes(),
        b"CONFIG",
        name,
        b"z: y:",
    ];
    assert_eq!(c.send(&load)?.to_string(), "OK");
    assert_eq!(c.show(get)?, "[mooring.prefixes, z: y:]");
    Ok(())
}

/// Sessions under a prefix that was added are found by a walk, those under one that is gone are not listed any more.
#[tokio::test]
async fn other_prefixes_rebuild_the_index() -> anyhow::Result<()> {
    let redis = Redis::start().await?;
    let mut c = Connection::open(&redis)?;
    c.run("CONFIG SET mooring.prefixes other:")?;
    c.run("SESSION.CREATE other:b s1 zoe TTL 900000")?;
    c.run("CONFIG SET mooring.prefixes mcpgw:")?;
    c.run("SESSION.CREATE mcpgw:a s1 zoe TTL 900000")?;
    let listed = async |c: &mut Connection, key: &str| {
        wait::until_true(
            "the index follows the setting",
            FOLLOWED_WITHIN,
            async || {
                let page = c.run("SESSION.LIST")?;
                let Value::Array(sessions) = page.field("sessions") else {
                    anyhow::bail!("sessions are an array: {page}");
                };
                let keys: Vec<String> = sessions
                    .iter()
                    .map(|session| session.field("key").to_string())
                    .collect();
                Ok(page.field("complete").integer() == 1 && keys == [key])
            },
        )
        .await
    };
    listed(&mut c, "mcpgw:a").await?;
    c.run("CONFIG SET mooring.prefixes other:")?;
    listed(&mut c, "other:b").await?;
    c.run("CONFIG SET mooring.prefixes mcpgw:")?;
    listed(&mut c, "mcpgw:a").await
}

#[tokio::test]
async fn the_configuration_file_is_read_and_rewritten() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("redis.conf");
    let path = paths::redis_module()?.display().to_string();
    let conf = format!(
        "loadmodule {path}\nmooring.prefixes \"a: b:\"\nmooring.turn-queue-max 7\nmooring.touch-step 8\n"
    );
    std::fs::write(&file, conf)?;
    let file_name = file.display().to_string();
    let mut redis = Redis::start_by(&["redis-server", &file_name], Module::Absent, &[]).await?;
    let mut c = Connection::open(&redis)?;
    let settings = |c: &mut Connection| -> anyhow::Result<String> {
        c.show("CONFIG GET mooring.prefixes mooring.turn-queue-max mooring.touch-step")
    };
    let first = settings(&mut c)?;
    for part in ["mooring.prefixes, a: b:", "queue-max, 7", "touch-step, 8"] {
        assert!(first.contains(part), "{part} in {first}");
    }
    let words = [&b"CONFIG"[..], b"SET", b"mooring.prefixes", b"c: d:"];
    assert_eq!(c.send(&words)?.to_string(), "OK");
    c.run("CONFIG SET mooring.turn-queue-max 9")?;
    assert_eq!(c.show("CONFIG REWRITE")?, "OK");
    let rewritten = std::fs::read_to_string(&file)?;
    for line in ["mooring.prefixes \"c: d:\"", "mooring.turn-queue-max 9"] {
        assert!(rewritten.contains(line), "{line} in {rewritten}");
    }
    redis.restart().await?;
    let mut c = Connection::open(&redis)?;
    let again = settings(&mut c)?;
    for part in ["mooring.prefixes, c: d:", "queue-max, 9", "touch-step, 8"] {
        assert!(again.contains(part), "{part} in {again}");
    }
    std::fs::write(
        &file,
        format!("loadmodule {path}\nmooring.prefixes \"a: a:\"\n"),
    )?;
    assert!(
        redis.restart().await.is_err(),
        "a bad setting keeps the server from starting"
    );
    let log = redis.process().log_text();
    assert!(
        log.contains("prefixes must differ from each other"),
        "{log}"
    );
    Ok(())
}

#[tokio::test]
async fn narrow_listpacks_are_warned_of() -> anyhow::Result<()> {
    let warning = "hash-max-listpack-value is 64";
    let mut narrow = Redis::start().await?;
    assert!(narrow.process().log_text().contains(warning));
    let mut wide = Redis::start_with(Module::Loaded, &["--hash-max-listpack-value", "512"]).await?;
    assert!(
        !wide
            .process()
            .log_text()
            .contains("hash-max-listpack-value is")
    );
    Ok(())
}
