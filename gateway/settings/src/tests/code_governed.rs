//! The settings of what code reaches and what is kept of it: tools of other servers, the network, mounts, tokens, skills
//! and records.

use super::code::{CODE_SERVER, code, server};
use super::refused::check_refused;
use super::*;
use crate::Language;

#[track_caller]
fn refused(fields: &str, parts: &[&str]) {
    check_refused(&format!("{CODE_SERVER}{fields}"), &[], parts);
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let settings = settings("", &[]);
    let common = settings.code.as_ref().unwrap();
    assert!(common.records.replay_enabled);
    assert_eq!(common.records.persisted_output_chars_max, 200_000);
    assert_eq!(common.records.runs_kept_max, 10_000);
    assert_eq!(common.records.runs_kept, Duration::from_hours(30 * 24));
    assert_eq!(common.records.runs_kept_bytes, 1024 * 1024 * 1024);
    assert_eq!(common.records.user_runs_kept_bytes, 256 * 1024 * 1024);
    assert_eq!(common.records.records_free_bytes_min, 256 * 1024 * 1024);
    assert_eq!(common.records.catalog_ttl, Duration::from_secs(60));
    assert_eq!(common.tokens_key_file, None);
    let sandbox = code(&settings, "sandbox");
    let calls = &sandbox.policy.calls;
    assert!(calls.are_allowed && calls.allow.is_empty() && calls.deny.is_empty());
    assert_eq!((calls.calls_max, calls.at_once_max), (1000, 16));
    assert_eq!(sandbox.policy.network, NetworkPolicy::None);
    assert_eq!(sandbox.mounts, MountRules::default());
    assert!(sandbox.tokenization.is_none());
    assert_eq!(sandbox.skills, SkillSettings::default());
    assert!(!sandbox.skills.require_approval);
    assert!(settings.servers.iter().all(|server| server.tags.is_empty()));
}

#[test]
fn every_name_of_contextforge_means_what_it_says() {
    let variables = [
        ("CODE_EXECUTION_REPLAY_ENABLED", "false"),
        ("CODE_EXECUTION_MAX_PERSISTED_OUTPUT_CHARS", "1000"),
        ("CODE_EXECUTION_DEFAULT_ALLOW_TOOL_CALLS", "false"),
        ("CODE_EXECUTION_DEFAULT_ALLOW_RAW_HTTP", "true"),
        ("CODE_EXECUTION_DEFAULT_MAX_NETWORK_CONNECTIONS", "3"),
        (
            "CODE_EXECUTION_DEFAULT_TOOL_ALLOW_PATTERNS",
            r#"["github/*", "[ab]/{c,d}"]"#,
        ),
        ("CODE_EXECUTION_DEFAULT_TOOL_DENY_PATTERNS", "*/delete_*"),
        ("CODE_EXECUTION_DEFAULT_TOKENIZATION_ENABLED", "true"),
        (
            "CODE_EXECUTION_DEFAULT_TOKENIZATION_TYPES",
            "name,email,name",
        ),
    ];
    let settings = settings("", &variables);
    let common = settings.code.as_ref().unwrap();
    assert!(!common.records.replay_enabled);
    assert_eq!(common.records.persisted_output_chars_max, 1000);
    let sandbox = code(&settings, "sandbox");
    let policy = &sandbox.policy;
    assert!(!policy.calls.are_allowed);
    let allow: Vec<&str> = policy.calls.allow.patterns().collect();
    assert_eq!(allow, ["github/*", "[ab]/{c,d}"]);
    assert!(policy.calls.deny.matches("files/delete_all"));
    let three = NetworkPolicy::PublicHttp { connections_max: 3 };
    assert_eq!(policy.network, three);
    let tokens = sandbox.tokenization.as_ref().unwrap();
    let types = [PersonalDataType::Email, PersonalDataType::Name];
    assert_eq!(tokens.types, types, "each once");
}

#[test]
fn what_denies_wins_over_what_allows() {
    #[track_caller]
    fn check(policy: &str, tool: &str, expected: bool) {
        let found = server(&format!("sandbox_policy = {{ {policy} }}"));
        let (id, name) = tool.split_once('/').unwrap();
        let allows = found.policy.calls.verdict(id, name) == CallVerdict::Allowed;
        assert_eq!(allows, expected, "{policy}: {tool}");
    }
    check("", "a/b", true);
    check("allow_tool_calls = false", "a/b", false);
    check("tool_allow_patterns = [\"a/*\"]", "a/b", true);
    check("tool_allow_patterns = [\"a/*\"]", "c/b", false);
    check(
        "permissions = { tools = { deny = [\"a/*\"] } }",
        "a/b",
        false,
    );
    check(
        "permissions = { tools = { allow = [\"a/*\"], deny = [\"*/b\"] } }",
        "a/b",
        false,
    );
    refused(
        "sandbox_policy = { tool_deny_patterns = [\"delete_all\"] }",
        &["\"delete_all\"", "it can match no tool", "server/tool"],
    );
}

#[test]
fn a_server_wins_over_the_standard_also_by_saying_less() {
    let standard = "[code]\ndefault_tool_allow_patterns = [\"a/*\"]\ndefault_tool_deny_patterns = [\"a/x\"]\n\
                    default_allow_raw_http = true\ncalls_per_run = 7\ncalls_at_once = 2\n";
    let own = "sandbox_policy = { tool_allow_patterns = [], allow_raw_http = false }\n\
               [[servers]]\nid = \"other\"\nkind = \"code\"\n";
    let settings = settings(&format!("{standard}{CODE_SERVER}{own}"), &[]);
    let policy = &code(&settings, "sandbox").policy;
    let allows = |policy: &CodePolicy, server, tool| {
        policy.calls.verdict(server, tool) == CallVerdict::Allowed
    };
    assert!(allows(policy, "b", "c") && !allows(policy, "a", "x"));
    assert_eq!((policy.calls.calls_max, policy.calls.at_once_max), (7, 2));
    assert_eq!(policy.network, NetworkPolicy::None);
    let other = &code(&settings, "other").policy;
    assert!(!allows(other, "b", "c"));
    let eight = NetworkPolicy::PublicHttp { connections_max: 8 };
    assert_eq!(other.network, eight);
}

#[test]
fn connections_that_nothing_may_open_are_refused() {
    for fields in [
        "sandbox_policy = { max_network_connections = 4 }",
        "sandbox_policy = { limits = { max_network_connections = 4 }, allow_raw_http = false }",
    ] {
        refused(fields, &["max_network_connections = 4", "raw HTTP"]);
    }
    check_refused(
        "",
        &[("CODE_EXECUTION_DEFAULT_MAX_NETWORK_CONNECTIONS", "4")],
        &[
            "CODE_EXECUTION_DEFAULT_MAX_NETWORK_CONNECTIONS = 4",
            "raw HTTP",
        ],
    );
    let own = server("sandbox_policy = { max_network_connections = 64, allow_raw_http = true }");
    let most = NetworkPolicy::PublicHttp {
        connections_max: 64,
    };
    assert_eq!(own.policy.network, most);
    refused(
        "sandbox_policy = { max_network_connections = 65, allow_raw_http = true }",
        &["from 0 to 64"],
    );
}

#[test]
fn mounts_are_chosen_by_tags_servers_and_tools() {
    #[track_caller]
    fn check(rules: &str, expected: bool) {
        let found = server(&format!("mount_rules = {{ {rules} }}"));
        let tags = ["crm".to_owned(), "read".to_owned()];
        let mounts = found.mounts.mounts("github", "get_issue", &tags);
        assert_eq!(mounts, expected, "{rules}");
    }
    check("", true);
    check("include_tags = [\"crm\", \"other\"]", true);
    check("include_tags = [\"other\"]", false);
    check("exclude_tags = [\"read\"]", false);
    check("include_servers = [\"git*\"]", true);
    check("include_servers = [\"files\"]", false);
    check("exclude_servers = [\"git???\"]", false);
    check("include_tools = [\"get_*\"]", true);
    check("include_tools = [\"github/set_*\"]", false);
    check("exclude_tools = [\"*/get_issue\"]", false);
    check(
        "include_tags = [\"crm\"], exclude_tools = [\"get_*\"]",
        false,
    );
    check(
        "include_tags = [\"crm\"], include_tools = [\"set_*\"]",
        false,
    );
    refused("mount_rules = { include_tag = [\"a\"] }", &["include_tags"]);
    refused("mount_rules = [\"a\"]", &["not a table"]);
    refused(
        "mount_rules = { include_tags = [\"a b\"] }",
        &["\"a b\"", "tags of servers"],
    );
}

#[test]
fn every_kind_of_server_has_tags() {
    let file = format!(
        "{ONE_SERVER}tags = [\"crm\", \"intern\"]\n{CODE_SERVER}tags = [\"x\"]\n\
         [[servers]]\nid = \"g\"\nkind = \"group\"\nmembers = [\"tools\"]\ntags = [\"y\"]\n"
    );
    let settings = settings(&file, &[]);
    assert_eq!(settings.server("tools").unwrap().tags, ["crm", "intern"]);
    assert_eq!(settings.server("sandbox").unwrap().tags, ["x"]);
    assert_eq!(settings.server("g").unwrap().tags, ["y"]);
    check_refused(
        &format!("{ONE_SERVER}tags = [\"a,b\"]"),
        &[],
        &["servers[0].tags", "\"a,b\"", "without spaces, commas"],
    );
}

#[test]
fn stubs_may_be_descriptions_alone() {
    let json = server("stub_language = \"json\"\nsandbox_policy = { runtime = \"deno\" }");
    assert_eq!(json.stub_format, StubFormat::Json);
    assert_eq!(json.policy.language, Language::TypeScript);
    refused(
        "stub_language = \"rust\"",
        &["\"python\", \"typescript\" or \"json\""],
    );
}

#[test]
fn tokenization_is_read() {
    let own = server(
        "[servers.tokenization]\nenabled = true\nstrategy = \"bidirectional\"\ntypes = [\"ssn\"]\n\
         patterns = ['IBAN=\\bDE[0-9]{20}\\b', 'A1_B=x=y']\n",
    );
    let tokens = own.tokenization.unwrap();
    assert_eq!(tokens.types, [PersonalDataType::Ssn]);
    let patterns: Vec<(&str, &str)> = tokens
        .patterns
        .iter()
        .map(|(category, pattern)| (category.as_str(), pattern.as_str()))
        .collect();
    assert_eq!(patterns, [("IBAN", r"\bDE[0-9]{20}\b"), ("A1_B", "x=y")]);

    let all = server("tokenization = { enabled = true }").tokenization;
    assert_eq!(all.unwrap().types, PersonalDataType::ALL);
    let off = server("tokenization = { enabled = false, types = [\"email\"] }");
    assert!(off.tokenization.is_none());

    let standard = "[code]\ndefault_tokenization_enabled = true\ndefault_tokenization_types = [\"name\"]\n\
                    default_tokenization_patterns = [\"ID=x\"]\ntokens_key_file = \"/run/key\"\n";
    let settings = settings(
        &format!("{standard}{CODE_SERVER}tokenization = {{ types = [\"phone\"] }}\n"),
        &[],
    );
    let tokens = code(&settings, "sandbox").tokenization.as_ref().unwrap();
    assert_eq!(tokens.types, [PersonalDataType::Phone]);
    assert_eq!(tokens.patterns.len(), 1, "inherited");
    let key_file = settings.code.unwrap().tokens_key_file;
    assert_eq!(key_file.unwrap().to_str(), Some("/run/key"));
}

#[test]
fn wrong_tokenization_is_refused() {
    refused(
        "tokenization = { types = [\"email\"] }",
        &["servers[0].tokenization.types", "nothing is replaced"],
    );
    for (fields, part) in [
        ("types = [\"iban\"]", "\"iban\""),
        ("strategy = \"one-way\"", "\"bidirectional\""),
        ("patterns = [\"x\"]", "no category in front"),
        ("patterns = [\"iban=x\"]", "\"iban\" is no category"),
        ("patterns = [\"A_1=x\"]", "\"A_1\" is no category"),
        ("patterns = [\"A_=x\"]", "\"A_\" is no category"),
        ("patterns = [\"=x\"]", "\"\" is no category"),
        ("patterns = [\"IBAN=(\"]", "unclosed group"),
        ("patterns = [\"IBAN=x*\"]", "the empty text"),
        ("enabled = 1", "true or false"),
    ] {
        let both = if fields.starts_with("enabled") {
            fields.to_owned()
        } else {
            format!("enabled = true, {fields}")
        };
        refused(&format!("tokenization = {{ {both} }}"), &[part]);
    }
    check_refused(
        "",
        &[("CODE_EXECUTION_DEFAULT_TOKENIZATION_TYPES", "email,iban")],
        &["\"iban\"", "credit_card"],
    );
    check_refused(
        "[code]\ntokens_key_file = \"key\"",
        &[],
        &["code.tokens_key_file", "it is relative"],
    );
}

#[test]
fn skills_have_a_scope() {
    #[track_caller]
    fn check(scope: &str, expected: &SkillScope) {
        let found = server(&format!("skills_scope = \"{scope}\"\n"));
        assert_eq!(found.skills.scope.as_ref(), Some(expected));
    }
    check("team:red", &SkillScope::Team("red".to_owned()));
    check("user:a@b.c", &SkillScope::User("a@b.c".to_owned()));
    check("user:a:b", &SkillScope::User("a:b".to_owned()));
    assert!(
        server("skills_require_approval = true")
            .skills
            .require_approval
    );
    refused("skills_scope = \"red\"", &["team:<id> or user:<email>"]);
    refused("skills_scope = \"team:\"", &["it has no name"]);
}
