//! The settings of code execution: the standard server, ContextForge's names, and policies.

use mooring_run_policy::paths::VirtualPath;
use mooring_run_policy::tier::Tier;

use super::*;
use crate::Language;

pub(super) const CODE_SERVER: &str = "[[servers]]\nid = \"sandbox\"\nkind = \"code\"\n";
const MIB: u64 = 1024 * 1024;

#[track_caller]
pub(super) fn code<'a>(settings: &'a Settings, id: &str) -> &'a CodeServerSettings {
    match &settings.server(id).unwrap().kind {
        ServerKind::Code(code) => code,
        other => panic!("{id} is of kind {}", other.name()),
    }
}

/// One code server with these further lines.
#[track_caller]
pub(super) fn server(fields: &str) -> CodeServerSettings {
    let settings = settings(&format!("{CODE_SERVER}{fields}"), &[]);
    code(&settings, "sandbox").clone()
}

#[test]
fn the_standard_server_has_the_documented_defaults() {
    let settings = settings("", &[]);
    let common = settings.code.as_ref().unwrap();
    assert_eq!(
        common.base_dir.to_str(),
        Some("/home/ada/.local/state/mooring/code")
    );
    assert_eq!(common.isolation, Tier::Strict);
    assert_eq!(common.runs_at_once.get(), 16);
    assert_eq!(common.warm_helpers, 2);
    assert_eq!(common.runtimes.python.to_str(), Some("/usr/bin/python3"));
    assert_eq!(common.runtimes.deno, None, "there is no PATH");
    assert_eq!(common.runtimes.on_deno_absent, OnDenoAbsent::RunPython);
    assert!(common.patterns.python.is_none() && common.patterns.typescript.is_none());
    for tool in [
        CodeTool::ShellExec,
        CodeTool::FsBrowse,
        CodeTool::FsRead,
        CodeTool::FsWrite,
        CodeTool::ToolSearch,
    ] {
        assert!(common.tools.offered.contains(&tool), "{tool:?}");
    }
    assert_eq!(common.tools.read_bytes_max, MIB);
    assert_eq!(common.tools.browse_entries_default, 200);
    assert_eq!(common.tools.browse_entries_max, 1000);

    let sandbox = code(&settings, "sandbox");
    assert_eq!(sandbox.stub_format, StubFormat::Python);
    let policy = &sandbox.policy;
    assert_eq!(policy.language, Language::Python);
    assert_eq!(policy.session_ttl, Duration::from_secs(7 * 24 * 3600));
    assert_eq!(policy.runs_per_minute, 20);
    let limits = &policy.limits;
    assert_eq!(limits.check(), Ok(()));
    assert_eq!(limits.wall_time, Duration::from_secs(30));
    assert_eq!(
        limits.cpu_time,
        Duration::from_secs(15),
        "half of the wall time"
    );
    assert_eq!(limits.cpu_percent, 50);
    assert_eq!(limits.memory_bytes, 256 * MIB);
    assert_eq!(limits.file_bytes, 10 * MIB);
    assert_eq!(limits.disk_bytes, 100 * MIB);
    assert_eq!(limits.inodes, 10_000);
    assert_eq!(limits.processes, 64);
    assert_eq!(limits.output_bytes, 1024 * 1024);
}

#[test]
fn the_standard_server_is_there_only_where_nothing_else_is() {
    let only = settings(ONE_SERVER, &[]);
    assert!(only.server("sandbox").is_none() && only.code.is_none());
    let flagged = load("", &[], &server_flags(&["tools=http://b/"]))
        .unwrap()
        .settings;
    assert!(flagged.server("sandbox").is_none() && flagged.code.is_none());

    let off = load(
        "",
        &[("CODE_EXECUTION_ENABLED", "false")],
        &Flags::default(),
    )
    .unwrap();
    assert!(off.settings.servers.is_empty() && off.settings.code.is_none());
    assert_eq!(off.settings.default_server, None);
    assert!(
        off.remarks.join("").contains("nothing to serve"),
        "{:?}",
        off.remarks
    );

    let both = settings(&format!("{ONE_SERVER}{CODE_SERVER}"), &[]);
    assert!(both.code.is_some() && both.default_server.is_none());
    let named = settings("[default]\nserver = \"sandbox\"", &[]);
    assert_eq!(named.default_server.unwrap().as_str(), "sandbox");
}

#[test]
fn every_name_of_the_kind_is_accepted() {
    for line in [
        "kind = \"code\"",
        "kind = \"code_execution\"",
        "type = \"code_execution\"",
        "server_type = \"code_execution\"",
    ] {
        let settings = settings(&format!("[[servers]]\nid = \"s\"\n{line}\n"), &[]);
        code(&settings, "s");
    }
}

/// Every variable of ContextForge with ContextForge's own default, lists as its environment files write them.
#[test]
fn a_whole_contextforge_environment_file_is_accepted() {
    let variables = [
        ("CODE_EXECUTION_ENABLED", "true"),
        ("CODE_EXECUTION_BASE_DIR", "/tmp/mcpgateway_code_execution"),
        ("CODE_EXECUTION_SESSION_TTL_SECONDS", "900"),
        ("CODE_EXECUTION_SHELL_EXEC_ENABLED", "true"),
        ("CODE_EXECUTION_FS_BROWSE_ENABLED", "true"),
        ("CODE_EXECUTION_FS_READ_ENABLED", "True"),
        ("CODE_EXECUTION_FS_WRITE_ENABLED", "true"),
        ("CODE_EXECUTION_FS_READ_MAX_SIZE_BYTES", "1048576"),
        ("CODE_EXECUTION_REPLAY_ENABLED", "true"),
        ("CODE_EXECUTION_RUST_ACCELERATION_ENABLED", "true"),
        ("CODE_EXECUTION_PYTHON_INPROCESS_FALLBACK_ENABLED", "true"),
        ("CODE_EXECUTION_DEFAULT_RUNTIME", "deno"),
        ("CODE_EXECUTION_DEFAULT_MAX_EXECUTION_TIME_MS", "30000"),
        ("CODE_EXECUTION_DEFAULT_MAX_MEMORY_MB", "256"),
        ("CODE_EXECUTION_DEFAULT_MAX_CPU_PERCENT", "50"),
        ("CODE_EXECUTION_DEFAULT_MAX_NETWORK_CONNECTIONS", "0"),
        ("CODE_EXECUTION_DEFAULT_MAX_FILE_SIZE_MB", "10"),
        ("CODE_EXECUTION_DEFAULT_MAX_TOTAL_DISK_MB", "100"),
        ("CODE_EXECUTION_DEFAULT_MAX_RUNS_PER_MINUTE", "20"),
        ("CODE_EXECUTION_DEFAULT_ALLOW_TOOL_CALLS", "true"),
        ("CODE_EXECUTION_DEFAULT_ALLOW_RAW_HTTP", "false"),
        (
            "CODE_EXECUTION_DEFAULT_FILESYSTEM_READ_PATHS",
            r#"["/tools/**", "/skills/**", "/scratch/**", "/results/**"]"#,
        ),
        (
            "CODE_EXECUTION_DEFAULT_FILESYSTEM_WRITE_PATHS",
            r#"["/scratch/**","/results/**"]"#,
        ),
        (
            "CODE_EXECUTION_DEFAULT_FILESYSTEM_DENY_PATHS",
            "/etc/**, /proc/**, /sys/**",
        ),
        ("CODE_EXECUTION_DEFAULT_TOOL_ALLOW_PATTERNS", "[]"),
        ("CODE_EXECUTION_DEFAULT_TOOL_DENY_PATTERNS", "[]"),
        ("CODE_EXECUTION_DEFAULT_TOKENIZATION_ENABLED", "false"),
        (
            "CODE_EXECUTION_DEFAULT_TOKENIZATION_TYPES",
            r#"["email","phone","ssn","credit_card","name"]"#,
        ),
        (
            "CODE_EXECUTION_DEFAULT_TOKENIZATION_STRATEGY",
            "bidirectional",
        ),
        ("CODE_EXECUTION_FS_BROWSE_DEFAULT_MAX_ENTRIES", "200"),
        ("CODE_EXECUTION_FS_BROWSE_MAX_ENTRIES", "1000"),
        ("CODE_EXECUTION_MAX_PERSISTED_OUTPUT_CHARS", "200000"),
        (
            "CODE_EXECUTION_PYTHON_DANGEROUS_PATTERNS",
            r#"["\\bos\\.system\\b", "x{1,2}"]"#,
        ),
        ("CODE_EXECUTION_TYPESCRIPT_DANGEROUS_PATTERNS", "[]"),
    ];
    let settings = settings("", &variables);
    let common = settings.code.as_ref().unwrap();
    assert_eq!(
        common.base_dir.to_str(),
        Some("/tmp/mcpgateway_code_execution")
    );
    let python = common.patterns.python.as_ref().unwrap();
    let python: Vec<&str> = python.iter().map(|pattern| pattern.as_str()).collect();
    assert_eq!(
        python,
        [r"\bos\.system\b", "x{1,2}"],
        "commas in patterns are kept"
    );
    assert_eq!(
        common.patterns.typescript.as_ref().unwrap().len(),
        0,
        "emptied"
    );
    let sandbox = code(&settings, "sandbox");
    assert_eq!(sandbox.policy.language, Language::TypeScript);
    assert_eq!(sandbox.stub_format, StubFormat::TypeScript);
}

#[test]
fn every_name_of_contextforge_means_what_it_says() {
    let variables = [
        ("CODE_EXECUTION_SESSION_TTL_SECONDS", "60"),
        ("CODE_EXECUTION_SHELL_EXEC_ENABLED", "false"),
        ("CODE_EXECUTION_FS_WRITE_ENABLED", "0"),
        ("CODE_EXECUTION_FS_READ_MAX_SIZE_BYTES", "2048"),
        ("CODE_EXECUTION_PYTHON_INPROCESS_FALLBACK_ENABLED", "false"),
        ("CODE_EXECUTION_DEFAULT_MAX_EXECUTION_TIME_MS", "1000"),
        ("CODE_EXECUTION_DEFAULT_MAX_MEMORY_MB", "16"),
        ("CODE_EXECUTION_DEFAULT_MAX_CPU_PERCENT", "10"),
        ("CODE_EXECUTION_DEFAULT_MAX_FILE_SIZE_MB", "1"),
        ("CODE_EXECUTION_DEFAULT_MAX_TOTAL_DISK_MB", "11"),
        ("CODE_EXECUTION_DEFAULT_MAX_RUNS_PER_MINUTE", "7"),
        ("CODE_EXECUTION_FS_BROWSE_DEFAULT_MAX_ENTRIES", "3"),
        ("CODE_EXECUTION_FS_BROWSE_MAX_ENTRIES", "4"),
    ];
    let settings = settings("", &variables);
    let common = settings.code.as_ref().unwrap();
    assert_eq!(
        common.tools.offered,
        [CodeTool::FsBrowse, CodeTool::FsRead, CodeTool::ToolSearch]
    );
    assert_eq!(common.tools.read_bytes_max, 2048);
    assert_eq!(common.tools.browse_entries_default, 3);
    assert_eq!(common.tools.browse_entries_max, 4);
    assert_eq!(common.runtimes.on_deno_absent, OnDenoAbsent::Refuse);
    let policy = &code(&settings, "sandbox").policy;
    assert_eq!(policy.session_ttl, Duration::from_secs(60));
    assert_eq!(policy.runs_per_minute, 7);
    assert_eq!(policy.limits.wall_time, Duration::from_secs(1));
    assert_eq!(policy.limits.cpu_time, Duration::from_millis(100));
    assert_eq!(policy.limits.cpu_percent, 10);
    assert_eq!(policy.limits.memory_bytes, 16 * MIB);
    assert_eq!(policy.limits.file_bytes, MIB);
    assert_eq!(policy.limits.disk_bytes, 11 * MIB);
}

#[test]
fn a_policy_may_be_pasted_flat_or_nested() {
    #[track_caller]
    fn check(fields: &str) {
        let found = server(fields);
        let policy = &found.policy;
        assert_eq!(policy.language, Language::TypeScript, "{fields}");
        assert_eq!(found.stub_format, StubFormat::TypeScript, "{fields}");
        assert_eq!(policy.limits.memory_bytes, 512 * MIB, "{fields}");
        assert_eq!(policy.limits.wall_time, Duration::from_secs(10), "{fields}");
        assert_eq!(policy.session_ttl, Duration::from_secs(120), "{fields}");
        assert_eq!(policy.limits.disk_bytes, 100 * MIB, "the rest is inherited");
    }
    check(
        "sandbox_policy = { runtime = \"deno\", max_memory_mb = 512, max_execution_time_ms = 10000, \
         session_ttl_seconds = 120, max_network_connections = 0, allow_raw_http = false }",
    );
    check(
        "[servers.sandbox_policy]\nruntime = \"deno\"\n[servers.sandbox_policy.limits]\nmax_memory_mb = 512\n\
         max_execution_time_ms = 10000\nsession_ttl_seconds = 120\n[servers.sandbox_policy.permissions.filesystem]\n\
         read = [\"/tools/**\", \"/skills/**\", \"/scratch/**\", \"/results/**\"]\nwrite = [\"/results\", \"/scratch/\"]\n\
         deny = [\"/etc/**\"]\n[servers.sandbox_policy.permissions.tools]\nallow = []\ndeny = []\n\
         [servers.sandbox_policy.permissions.network]\nallow_tool_calls = true\nallow_raw_http = false",
    );
}

#[test]
fn a_policy_names_directories_of_the_trees() {
    let check = |policy: &str, readable: &[&str], not_readable: &[&str], writable: &[&str]| {
        let found = server(&format!("sandbox_policy = {{ {policy} }}")).policy;
        let access = found.limits.access;
        let at = |path: &&str| VirtualPath::parse(path).unwrap();
        for path in readable.iter().map(at) {
            assert!(access.allows_reading(&path), "{policy}: {path}");
        }
        for path in not_readable.iter().map(at) {
            assert!(!access.allows_reading(&path), "{policy}: {path}");
            assert!(!access.allows_writing(&path), "{policy}: {path}");
        }
        for path in readable {
            let is_writable = writable.contains(path);
            assert_eq!(
                access.allows_writing(&at(path)),
                is_writable,
                "{policy}: {path}"
            );
        }
        assert_eq!(
            access.is_whole(),
            not_readable.is_empty() && writable.len() == 2
        );
    };
    let all = ["/tools/a", "/skills/a", "/scratch/a", "/results/a"];
    let both = ["/scratch/a", "/results/a"];
    for whole in [
        "",
        "filesystem_read_paths = [\"/tools\", \"/skills/\", \"/scratch/*\", \"/results/**\"]",
        "filesystem_write_paths = [\"/scratch/**\", \"/results/**\", \"/results/a/**\"]",
        "filesystem_deny_paths = [\"/etc/**\", \"/proc/*\", \"/sys\"]",
    ] {
        check(whole, &all, &[], &both);
    }
    check(
        "filesystem_read_paths = [\"/tools/**\", \"/scratch/in/**\"]",
        &["/tools/a", "/scratch/in/a"],
        &["/scratch/a", "/results/a", "/skills/a"],
        &["/scratch/in/a"],
    );
    check("filesystem_write_paths = []", &all, &[], &[]);
    check(
        "filesystem_write_paths = [\"/results/**\"]",
        &all,
        &[],
        &["/results/a"],
    );
    check(
        "filesystem_deny_paths = [\"/scratch/secret/**\", \"/etc/**\"]",
        &all,
        &["/scratch/secret", "/scratch/secret/a"],
        &both,
    );
}

#[test]
fn a_policy_allows_every_runtime_or_those_of_its_list() {
    let check = |policy: &str, expected: &[CodeRuntime]| {
        let found = server(&format!("sandbox_policy = {{ {policy} }}")).policy;
        assert_eq!(found.runtimes, expected, "{policy}");
    };
    check("", &CodeRuntime::ALL);
    check("allowed_runtimes = [\"python\"]", &[CodeRuntime::Python]);
    check(
        "runtime_requirements = [\"shell\", \"python\"]",
        &[CodeRuntime::Shell, CodeRuntime::Python],
    );
}

#[test]
fn a_server_wins_over_the_standard() {
    let standard = "[code]\ndefault_max_memory_mb = 64\ndefault_max_cpu_time_ms = 700\ndefault_runtime = \"deno\"\n\
                    output_bytes_max = 4096\n";
    let own = "stub_language = \"python\"\nsandbox_policy = { max_execution_time_ms = 2000, max_processes = 8 }\n\
               [[servers]]\nid = \"other\"\nkind = \"code\"\nsandbox_policy = { max_cpu_time_ms = 900 }\n";
    let settings = settings(&format!("{standard}{CODE_SERVER}{own}"), &[]);
    let sandbox = code(&settings, "sandbox");
    assert_eq!(sandbox.stub_format, StubFormat::Python);
    assert_eq!(sandbox.policy.language, Language::TypeScript);
    let limits = &sandbox.policy.limits;
    assert_eq!(limits.memory_bytes, 64 * MIB);
    assert_eq!(limits.wall_time, Duration::from_secs(2));
    assert_eq!(limits.processes, 8);
    assert_eq!(
        limits.cpu_time,
        Duration::from_millis(700),
        "set for all servers"
    );
    assert_eq!(limits.output_bytes, 4096);
    let other = &code(&settings, "other").policy.limits;
    assert_eq!(other.cpu_time, Duration::from_millis(900));
    assert_eq!(other.processes, 64);

    let derived = server("sandbox_policy = { max_execution_time_ms = 2000, max_cpu_percent = 25 }");
    assert_eq!(derived.policy.limits.cpu_time, Duration::from_millis(500));
}

#[test]
fn deno_is_looked_for_in_absolute_directories_of_path() {
    let directory = tempfile::tempdir().unwrap();
    let deno = directory.path().join("deno");
    std::fs::write(&deno, "").unwrap();
    let path = format!("relative:/nowhere:{}", directory.path().display());
    let found = settings("", &[("PATH", &path)]).code.unwrap().runtimes.deno;
    assert_eq!(found.as_deref(), Some(deno.as_path()));
    let named = settings(
        "",
        &[("PATH", &path), ("MOORING_CODE_DENO_PATH", "/opt/deno")],
    );
    assert_eq!(
        named.code.unwrap().runtimes.deno.unwrap().to_str(),
        Some("/opt/deno")
    );
}

#[test]
fn without_code_execution_the_other_servers_are_served() {
    let group = "[[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\", \"sandbox\"]\n";
    let alone = "[[servers]]\nid = \"alone\"\nkind = \"group\"\nmembers = [\"sandbox\"]\n";
    let file = format!("{ONE_SERVER}{CODE_SERVER}{group}{alone}");
    let off = [("CODE_EXECUTION_ENABLED", "false")];
    let loaded = load(&file, &off, &Flags::default()).unwrap();
    let ids: Vec<&str> = (loaded.settings.servers.iter())
        .map(|server| server.id.as_str())
        .collect();
    assert_eq!(ids, ["tools", "all"]);
    assert!(loaded.settings.code.is_none());
    let ServerKind::Group(group) = &loaded.settings.server("all").unwrap().kind else {
        panic!("a group");
    };
    assert_eq!(group.members.len(), 1);
    assert!(
        loaded
            .remarks
            .contains(&"code.enabled is false: not served: sandbox, alone".to_owned()),
        "{:?}",
        loaded.remarks
    );
}

#[test]
fn files_live_longer_on_one_machine() {
    let ttl = |file: &str, variables: &[(&str, &str)]| {
        let settings = settings(&format!("{file}{CODE_SERVER}"), variables);
        let ServerKind::Code(code) = &settings.server("sandbox").unwrap().kind else {
            panic!("a code server");
        };
        code.policy.session_ttl.as_secs()
    };
    let fleet = [("REDIS_URL", "redis://127.0.0.1")];
    assert_eq!(ttl("", &[]), 7 * 24 * 3600);
    assert_eq!(ttl("", &fleet), 900);
    assert_eq!(ttl("[code]\nsession_ttl_seconds = 60\n", &[]), 60);
}
