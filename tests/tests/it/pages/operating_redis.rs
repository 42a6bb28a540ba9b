//! docs/operating-redis.md: its configuration in a Redis of one's own, its users pasted into redis-cli, and the exchange of
//! the module under a gateway.

use std::time::Duration;

use anyhow::{Context, ensure};
use mooring_tests::certificates::Authority;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::pages::{Page, inline_code};
use mooring_tests::paths;
use mooring_tests::port::free_port;
use mooring_tests::reader::Reader;
use mooring_tests::wait;

use super::{NOT_RUN, session_at};

/// How long a module with clients may take to be unloaded, and a gateway to use the new one.
const EXCHANGED_WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn redis_is_set_up_and_its_module_exchanged_by_the_page() -> anyhow::Result<()> {
    let mut page = Page::read("docs/operating-redis.md")?;
    let (reader, port) = (Reader::new()?, free_port()?);
    let module = paths::redis_module()?.display().to_string();
    page.fill("/usr/lib/redis/modules/libmooring.so", module)?;
    page.fill("/etc/redis/users.acl", reader.path_text("users.acl"))?;
    page.fill("redis.example", format!("127.0.0.1:{port}"))?;
    let authority = Authority::new()?;
    let certificate = authority.certify("gateway", "DNS:gateway")?;
    for (printed, real) in [
        ("redis-ca.pem", authority.root()),
        ("redis-client.pem", certificate.certificate),
        ("redis-client.key", certificate.key),
    ] {
        page.fill(
            &format!("/etc/mooring/{printed}"),
            real.display().to_string(),
        )?;
    }
    reader.write("users.acl", "")?;
    let more = [
        page.inline("aclfile ")?,
        "enable-module-command local".to_owned(),
    ]
    .join("\n");
    let configuration = page.take("text", "loadmodule ")?;
    let own = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\n",
        reader.path_text("")
    );
    reader.write("redis.conf", &format!("{configuration}{more}\n{own}"))?;
    let mut redis = reader.start("redis-server redis.conf")?;
    let redis_cli = format!("redis-cli -e -p {port}");
    redis
        .ready(async || {
            reader
                .run(&format!("{redis_cli} SESSION.HELP"))
                .await
                .map(drop)
        })
        .await?;

    let paste = async |block: &str| {
        reader.write("pasted", block)?;
        reader.run(&format!("{redis_cli} <pasted")).await
    };
    for user in ["gateway", "reaper", "operator"] {
        let block = page.take("text", &format!("ACL SETUSER {user} on "))?;
        assert_eq!(paste(&block).await?.trim(), "OK", "{block}");
    }
    assert_eq!(paste(&page.inline("ACL SAVE")?).await?.trim(), "OK");
    let saved = std::fs::read_to_string(reader.path("users.acl"))?;
    ensure!(saved.lines().count() == 4, "{saved}");

    let url = page.inline("redis://gateway:")?;
    let fixture = Fixture::start("one").await?;
    let toml = format!(
        "[store]\nurl = {url:?}\n[[servers]]\nid = \"tools\"\ninstances = [{:?}]\n",
        fixture.url()
    );
    let gateway = Gateway::start("restricted", Settings::toml(toml)).await?;
    let mut session = session_at(&gateway.mcp_url("tools"), &[]).await?;
    assert_eq!(session.increment().await?, 1);
    is_monitored(
        &page,
        &reader,
        &redis_cli,
        session.id().context("an id")?,
        port,
    )
    .await?;

    let exchange = page.take("text", "MODULE UNLOAD mooring")?;
    // The page says to repeat it if it is refused.
    wait::until_true("the exchange of the module", EXCHANGED_WITHIN, async || {
        Ok(paste(&exchange)
            .await
            .is_ok_and(|replies| replies.trim() == "OK\nOK\nOK"))
    })
    .await?;
    let next = wait::until("a call after it", EXCHANGED_WITHIN, async || {
        Ok(session.increment().await.ok())
    });
    assert_eq!(next.await?, 2);
    std::fs::write(reader.path("tls.toml"), page.take("toml", "rediss://")?)?;
    let valid = reader.run("mooring config check --config tls.toml").await?;
    ensure!(valid.contains("rediss://"), "{valid}");
    let sentinels = page.take("toml", "redis+sentinel://")?;
    std::fs::write(reader.path("sentinels.toml"), sentinels)?;
    let valid = reader
        .run("mooring config check --config sentinels.toml")
        .await?;
    ensure!(valid.contains("sentinel"), "{valid}");
    // No sentinel runs here: the tests of the store log in with this rule.
    page.take("text", "+sentinel|get-master-addr-by-name +sentinel|master")?;
    let more = page.take("text", "ACL SETUSER gateway +asking")?;
    assert_eq!(paste(&more).await?.trim(), "OK\nOK");
    let cluster = page.take("toml", "redis+cluster://")?;
    std::fs::write(reader.path("cluster.toml"), cluster)?;
    let valid = reader
        .run("mooring config check --config cluster.toml")
        .await?;
    ensure!(valid.contains("the primaries of the cluster"), "{valid}");
    page.finish(&NOT_RUN)
}

/// The operator's list has the digest that the page's command makes of an id, and Redis has the figures to watch.
async fn is_monitored(
    page: &Page,
    reader: &Reader,
    redis_cli: &str,
    id: &str,
    port: u16,
) -> anyhow::Result<()> {
    let pipe = page.inline("printf %s")?;
    let digest = reader.run(&format!("id={id}; {pipe}")).await?;
    let operator = format!("redis://operator:one-more-long-secret@127.0.0.1:{port}");
    let listed = reader
        .run(&format!("mooring sessions list --store {operator}"))
        .await?;
    ensure!(
        digest.trim().len() == 16 && listed.contains(digest.trim()),
        "{digest}{listed}"
    );

    let text = std::fs::read_to_string(paths::workspace().join("docs/operating-redis.md"))?;
    let (_, monitor) = text.split_once("\n## Monitor\n").context("a section")?;
    let stats = reader.run(&format!("{redis_cli} SESSION.STATS")).await?;
    let info = reader.run(&format!("{redis_cli} INFO mooring")).await?;
    let is_figure = |span: &String| span.contains('_') && !span.contains(['-', ' ', '.', '/']);
    let figures: Vec<String> = inline_code(monitor).into_iter().filter(is_figure).collect();
    ensure!(figures.len() >= 8, "{figures:?}");
    for figure in figures {
        let name = format!("mooring_{figure}:");
        ensure!(
            stats.lines().any(|line| line == figure) && info.contains(&name),
            "{figure}: {info}"
        );
    }
    Ok(())
}
