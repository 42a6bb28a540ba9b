//! Settings of code execution that are refused: fields of another kind, wrong values, and promises that nothing keeps.

use super::code::CODE_SERVER;
use super::refused::{check_refused, check_text};
use super::*;

#[test]
fn fields_of_the_other_kind_are_refused() {
    #[track_caller]
    fn check(file: &str, parts: &[&str]) {
        check_refused(file, &[], parts);
    }
    let reached = "\"http\" or \"sse\"";
    let kept = "\"http\", \"stdio\" or \"sse\"";
    for (field, kinds) in [
        ("instances = [\"http://a/\"]", reached),
        ("affinity = \"on\"", kept),
        ("concurrency = \"serial\"", kept),
        ("on_upstream_loss = \"fail\"", kept),
        ("headers = { A = \"b\" }", reached),
        ("command = [\"a\"]", "\"stdio\" or \"agent\""),
        ("members = [\"a\"]", "\"group\""),
    ] {
        let name = field.split(' ').next().unwrap();
        check(
            &format!("{CODE_SERVER}{field}"),
            &[
                &format!("servers[0].{name}"),
                &format!("only a server of kind {kinds} has this field"),
                &format!("allowed: nothing, or kind = {kinds}"),
            ],
        );
    }
    check(
        &format!("{ONE_SERVER}stub_language = \"python\""),
        &[
            "servers[0].stub_language",
            "only a server of kind \"code\" has this field",
        ],
    );
    for field in [
        "mount_rules = { include_tags = [\"a\"] }",
        "tokenization = { enabled = true }",
        "skills_scope = \"team:a\"",
        "skills_require_approval = true",
    ] {
        check(
            &format!("{ONE_SERVER}{field}"),
            &["only a server of kind \"code\" has this field"],
        );
    }
    check(
        &format!("{ONE_SERVER}sandbox_policy = {{ limits = {{ max_memory_mb = 64 }} }}"),
        &[
            "servers[0].sandbox_policy.limits.max_memory_mb",
            "m.toml, line 4",
            "kind \"code\"",
        ],
    );
    let given = server_flags(&["sandbox=http://a/"]);
    let error = load(CODE_SERVER, &[], &given).unwrap_err();
    check_text(
        &error,
        &["--server sandbox", "only a server of kind \"http\""],
    );
}

#[test]
fn wrong_policies_are_refused() {
    #[track_caller]
    fn check(policy: &str, parts: &[&str]) {
        check_refused(
            &format!("{CODE_SERVER}sandbox_policy = {{ {policy} }}"),
            &[],
            parts,
        );
    }
    check(
        "max_memory_mb = 8",
        &[
            "servers[0].sandbox_policy.max_memory_mb = 8",
            "of MiB from 16 to 4096",
        ],
    );
    check(
        "max_memory = 64",
        &[
            "servers[0].sandbox_policy.max_memory",
            "did you mean \"max_memory_mb\"?",
        ],
    );
    check(
        "limits = { max_memory_gb = 1 }",
        &["sandbox_policy.limits.max_memory_gb", "max_memory_mb"],
    );
    check(
        "limits = 1",
        &[
            "servers[0].sandbox_policy.limits = 1",
            "it is a number, not a table",
        ],
    );
    check(
        "permissions = { network = { allow = true } }",
        &["permissions.network.allow", "no such key"],
    );
    check(
        "max_memory_mb = 64, limits = { max_memory_mb = 64 }",
        &[
            "servers[0].sandbox_policy.limits.max_memory_mb",
            "the same as another key",
        ],
    );
    check(
        "runtime = \"node\"",
        &[
            "servers[0].sandbox_policy.runtime",
            "\"python\" or \"deno\"",
        ],
    );
    check(
        "runtime_requirements = {}",
        &["sandbox_policy.runtime_requirements", "not a list"],
    );
    check(
        "allowed_runtimes = [\"node\"]",
        &["there is no such runtime", "python, deno and shell"],
    );
    check(
        "runtime = \"deno\", allowed_runtimes = [\"python\"]",
        &["it lacks deno, the runtime of code without a language"],
    );
    check_refused(
        &format!("{CODE_SERVER}sandbox_policy = \"strict\""),
        &[],
        &["servers[0].sandbox_policy = \"strict\"", "not a table"],
    );
    check_refused(
        "[[servers]]\nid = \"a\"\nkind = \"code\"\ntype = \"code_execution\"",
        &[],
        &[
            "servers[0].type",
            "the same as another key",
            "one of kind, type, server_type",
        ],
    );
}

/// A promise that nothing keeps is refused, wherever it is written.
#[test]
fn patterns_that_name_no_directory_of_a_tree_are_refused() {
    #[track_caller]
    fn check(name: &str, nested: &str, pattern: &str, reason: &str) {
        let value = format!("[{pattern:?}]");
        let variable = format!("CODE_EXECUTION_DEFAULT_FILESYSTEM_{name}_PATHS");
        check_refused("", &[(&variable, &value)], &[pattern, reason]);
        check_refused(
            &format!("{CODE_SERVER}sandbox_policy = {{ {nested} = {value} }}"),
            &[],
            &[pattern, reason],
        );
    }
    let (read, write, deny) = (
        ("READ", "filesystem_read_paths"),
        ("WRITE", "permissions.filesystem.write"),
        ("DENY", "permissions.filesystem.deny"),
    );
    for ((name, nested), pattern, reason) in [
        (
            read,
            "/scratch/*.csv",
            "only whole directories can be named",
        ),
        (
            read,
            "/scratch/*/a/**",
            "only whole directories can be named",
        ),
        (
            read,
            "/scratch/a[12]/**",
            "only whole directories can be named",
        ),
        (read, "scratch/**", "must begin with"),
        (
            read,
            "/home/**",
            "must lie in /results, /scratch, /skills or /tools",
        ),
        (read, "/scratch/../etc/**", "the path is not valid"),
        (read, "/**", "begin with"),
        (write, "/tools/**", "nothing can be written in /tools"),
        (write, "/skills/a/**", "nothing can be written in /skills"),
        (
            deny,
            "/usr/**",
            "must lie in /results, /scratch, /skills or /tools",
        ),
        (
            deny,
            "/etc/passwd",
            "must lie in /results, /scratch, /skills or /tools",
        ),
    ] {
        check(name, nested, pattern, reason);
    }
}

#[test]
fn parts_of_trees_need_the_strict_tier() {
    let degraded = "[code]\nisolation = \"degraded\"\n";
    for (name, list) in [
        ("filesystem_read_paths", "[\"/tools/**\"]"),
        ("filesystem_write_paths", "[\"/results/**\"]"),
        ("filesystem_deny_paths", "[\"/scratch/secret/**\"]"),
    ] {
        let field = format!("sandbox_policy.{name}");
        let reason = "takes mounts of each run's own";
        check_refused(
            &format!("{degraded}{CODE_SERVER}sandbox_policy = {{ {name} = {list} }}"),
            &[],
            &[&field, reason, "whole trees, or code.isolation"],
        );
        check_refused(
            &format!("{degraded}default_{name} = {list}\n{CODE_SERVER}"),
            &[],
            &[&field, reason],
        );
    }
    settings(
        &format!("{degraded}default_filesystem_deny_paths = [\"/etc/**\"]"),
        &[],
    );
}

#[test]
fn wrong_settings_of_all_servers_are_refused() {
    #[track_caller]
    fn check(file: &str, parts: &[&str]) {
        check_refused(file, &[], parts);
    }
    check(
        "[code]\nbase_dir = \"code\"",
        &["code.base_dir = \"code\"", "it is relative"],
    );
    check("[code]\nbase_dir = \"/\"", &["the root directory"]);
    check(
        "[code]\nisolation = \"none\"",
        &["\"strict\" or \"degraded\""],
    );
    check("[code]\nruns_at_once = 0", &["of runs from 1 to 1024"]);
    check("[code]\nwarm_helpers = 65", &["of helpers from 0 to 64"]);
    check(
        "[code]\npython_path = \"python3\"",
        &["code.python_path", "it is relative"],
    );
    check("[code]\nsession_ttl_seconds = 0", &["from 1 to 2592000"]);
    check(
        "[code]\nfs_browse_max_entries = 100",
        &["code.fs_browse_max_entries = 100", "at most as large as"],
    );
    check(
        "[code]\npython_dangerous_patterns = [\"(\"]",
        &["\"(\"", "unclosed group", "without look-around"],
    );
    check(
        "[code]\npython_dangerous_patterns = [\"(?=a)\"]",
        &["look-around"],
    );
    check_refused(
        "",
        &[("CODE_EXECUTION_DEFAULT_MAX_MEMORY", "64")],
        &[
            "environment",
            "did you mean CODE_EXECUTION_DEFAULT_MAX_MEMORY_MB?",
        ],
    );
    check_refused(
        "",
        &[("HOME", ""), ("REDIS_URL", "redis://h")],
        &["code.base_dir", "neither XDG_STATE_HOME nor HOME"],
    );
}
