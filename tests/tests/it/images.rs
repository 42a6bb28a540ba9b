//! scripts/images.sh without a container engine: it says so and does nothing, and with a stand-in for the engine it makes the
//! calls that it should, believes no wrong answer, and leaves nothing behind.

use anyhow::ensure;
use mooring_tests::paths;

use crate::console::Console;

/// An engine: images of the gateway have what deploy/Dockerfile gives them, and everything else succeeds.
const ENGINE: &str = r#"echo "$*" >>"$HOME/called"
case $* in
*"/usr/bin/id mooring-gateway"*) echo 1001 ;;
*"/usr/bin/test mooring-gateway-slim"*) exit 1 ;;
"run --detach"*) echo container-of-a-store ;;
esac"#;

/// What answers in place of nginx. `FOUND` is what the second gateway finds in the session's file.
const CLIENT: &str = r#"case $* in
*initialize*) printf '%s\n' '{"result":{"serverInfo":{"name":"sandbox"}}}' ;;
*write*) printf '%s\n' '{"result":{"structuredContent":{"output":"41\n"}}}' ;;
*) printf '%s\n' '{"result":{"structuredContent":{"output":"'"$FOUND"'\n"},"_meta":{"cpu_time_ms":42.1}}}' ;;
esac"#;

fn script() -> String {
    let script = paths::workspace().join("scripts/images.sh");
    format!("bash {}", script.display())
}

fn with_engine() -> anyhow::Result<Console> {
    let console = Console::new()?;
    console.program("docker", ENGINE)?;
    console.program("curl", CLIENT)?;
    Ok(console)
}

#[test]
fn without_an_engine_nothing_is_built_and_the_reason_is_named() -> anyhow::Result<()> {
    let console = Console::new()?;
    console.program("docker", "echo \"$*\" >>\"$HOME/called\"; exit 1")?;
    let printed = console.run(&format!("{} 2>&1 || echo $?", script()), &[])?;
    ensure!(
        printed.ends_with("\n69\n") && printed.contains("no Docker engine"),
        "{printed}"
    );
    ensure!(console.called()? == "version\n", "{}", console.called()?);
    let printed = console.run(&format!("{} all-of-it 2>&1 || echo $?", script()), &[])?;
    ensure!(printed.ends_with("\n64\n"), "{printed}");
    Ok(())
}

#[test]
fn every_image_is_built_started_and_removed() -> anyhow::Result<()> {
    let console = with_engine()?;
    console.run(&script(), &[("FOUND", "42")])?;
    let called = console.called()?;
    let count = |part: &str| called.lines().filter(|line| line.contains(part)).count();
    for target in ["gateway-slim", "gateway", "redis", "valkey"] {
        ensure!(
            count(&format!("--target {target} ")) == 1,
            "{target}: {called}"
        );
        ensure!(
            count(&format!("mooring-{target}")) > 1,
            "{target}: {called}"
        );
    }
    for (part, times) in [
        ("up --detach --wait", 2),
        ("kill gateway-1", 2),
        ("down --volumes", 2),
        ("rm --force container-of-a-store", 2),
    ] {
        ensure!(count(part) == times, "{part}: {called}");
    }
    Ok(())
}

#[test]
fn files_that_are_lost_with_a_gateway_are_noticed() -> anyhow::Result<()> {
    let console = with_engine()?;
    let script = format!("{} test 2>&1 || echo $?", script());
    let printed = console.run(&script, &[("FOUND", "1")])?;
    ensure!(
        printed.contains("the files were lost with a gateway"),
        "{printed}"
    );
    ensure!(printed.ends_with("\n1\n"), "{printed}");
    let called = console.called()?;
    ensure!(
        called.lines().any(|line| line.ends_with("down --volumes")),
        "{called}"
    );
    Ok(())
}
