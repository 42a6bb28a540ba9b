//! Hooks: what is read, and what is refused.

#![allow(clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::time::Duration;

use super::refused::check_refused;
use super::*;

const URL: &str = "url = \"http://127.0.0.1:9400/\"";

#[test]
fn hooks_are_read_in_their_order() {
    let file = format!(
        "{ONE_SERVER}[[calls.hooks]]\n{URL}\nwhen = [\"after\", \"before\"]\n\
         [[calls.hooks]]\nurl = \"https://hooks.example/x\"\nwhen = [\"before\"]\nservers = [\"t*\"]\n\
         tools = [\"tools/delete_*\"]\nheaders = {{ Authorization = \"env:TOKEN\" }}\ntimeout_ms = 250\n\
         on_failure = \"allow\"\n"
    );
    let hooks = settings(&file, &[("TOKEN", "Bearer x")]).hooks;
    assert_eq!(hooks[0].phases, [HookPhase::After, HookPhase::Before]);
    assert!(hooks[0].is_for_tool("any", "thing"));
    assert_eq!(
        (hooks[0].timeout, hooks[0].on_failure),
        (Duration::from_secs(1), OnHookFailure::Refuse)
    );
    assert_eq!(hooks[1].url.to_string(), "https://hooks.example/x");
    assert_eq!(hooks[1].headers.map()["authorization"], "Bearer x");
    assert_eq!(
        (hooks[1].timeout, hooks[1].on_failure),
        (Duration::from_millis(250), OnHookFailure::Allow)
    );
    let is_for = |server, tool| hooks[1].is_for_tool(server, tool);
    assert!(is_for("tools", "delete_all"));
    assert!(!is_for("tools", "get") && !is_for("other", "delete_all"));
}

#[test]
fn hooks_that_would_never_decide_are_refused() {
    #[track_caller]
    fn check(hook: &str, parts: &[&str]) {
        let file = format!("{ONE_SERVER}[[calls.hooks]]\n{hook}\n");
        check_refused(&file, &[], parts);
    }
    let when = "when = [\"before\"]";
    check(when, &["calls.hooks[0].url", "it is missing"]);
    check(URL, &["calls.hooks[0].when", "it is missing"]);
    check(
        &format!("{URL}\nwhen = []"),
        &["calls.hooks[0].when", "never asked"],
    );
    check(
        &format!("{URL}\nwhen = [\"during\"]"),
        &["calls.hooks[0].when", "before or after"],
    );
    check(
        &format!("url = \"ftp://a/\"\n{when}"),
        &["calls.hooks[0].url", "its scheme is \"ftp\""],
    );
    check(
        &format!("url = \"http://user:pass@a/\"\n{when}"),
        &["calls.hooks[0].url", "it holds credentials"],
    );
    check(
        &format!("{URL}\n{when}\ntool = [\"x\"]"),
        &["calls.hooks[0].tool", "did you mean \"tools\"?"],
    );
    check(
        &format!("{URL}\n{when}\ntimeout_ms = 1"),
        &["calls.hooks[0].timeout_ms", "10"],
    );
    check(
        &format!("{URL}\n{when}\non_failure = \"open\""),
        &["calls.hooks[0].on_failure", "\"refuse\" or \"allow\""],
    );
}
