//! Loading, unloading, and settings.

use mooring_tests::paths;
use mooring_tests::redis::{Module, Redis};

use super::resp::Connection;

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
        assert_eq!(c.show(&format!("HGET {KEY} id"))?, "s1", "the data stays");
        assert_eq!(c.show(&format!("MODULE LOAD {path}"))?, "OK");
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
        3 * 900_000
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
