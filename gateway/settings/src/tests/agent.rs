//! Servers of kind `agent`: what a profile says, what wins over it, and what is refused.

use std::path::PathBuf;

use super::refused::check_refused;
use super::*;
use crate::{Condition, OutputForm, Pointer, Results};

#[track_caller]
fn server(fields: &str, variables: &[(&str, &str)]) -> AgentServerSettings {
    let file = format!("[[servers]]\nid = \"helper\"\nkind = \"agent\"\n{fields}");
    match settings(&file, variables).server("helper").unwrap().kind {
        ServerKind::Agent(ref agent) => agent.clone(),
        ref other => panic!("it is of kind {}", other.name()),
    }
}

fn pointer(text: &str) -> Option<Pointer> {
    Some(Pointer::parse(text).unwrap())
}

fn conditions(texts: &[&str]) -> Vec<Condition> {
    let texts = texts.iter();
    texts.map(|text| Condition::parse(text).unwrap()).collect()
}

#[test]
fn a_profile_is_all_that_a_server_needs() {
    let claude = server("profile = \"claude\"", &[]);
    assert_eq!(
        claude.template.arguments("do it", Some("s-1"), "/work"),
        [
            "claude",
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--resume=s-1",
            "--",
            "do it"
        ]
    );
    assert_eq!(claude.rules.form, OutputForm::JsonLines);
    assert_eq!(claude.rules.session_pointer, pointer("/session_id"));
    assert_eq!(claude.rules.result_pointer, pointer("/result"));
    assert_eq!(claude.rules.result_where, conditions(&["/type=result"]));
    assert_eq!(claude.rules.results, Results::Last);
    assert_eq!(claude.rules.error_pointer, pointer("/is_error"));
    assert_eq!(
        claude.unknown_session,
        [
            "No conversation found with session ID",
            "is not a UUID and does not match any session title"
        ]
    );
    assert!(!claude.is_bound_to_folder);
    assert!(claude.description.contains("Claude Code"));
    assert_eq!(claude.directory, PathBuf::from("/home/ada"));
    assert!(claude.work_folders.is_empty());
    assert_eq!(claude.timeout, Duration::from_secs(1800));
    assert_eq!(claude.output_bytes_max, 16 * 1024 * 1024);
    assert_eq!(claude.children_max.get(), 32);
    assert_eq!(claude.session_ttl, Duration::from_secs(86_400));
    assert_eq!(claude.sessions_max, 1000);
    let inherited = claude.variables.inherited();
    assert!(inherited.contains(&"HOME".to_owned()), "{inherited:?}");
}

#[test]
fn every_profile_is_read() {
    #[track_caller]
    fn check(profile: &str, fresh: &[&str], resumed: &[&str]) {
        let agent = server(&format!("profile = \"{profile}\""), &[]);
        assert_eq!(agent.template.arguments("-p", None, "/work"), fresh);
        assert_eq!(agent.template.arguments("-p", Some("s"), "/work"), resumed);
        assert!(agent.rules.session_pointer.is_some(), "{profile}");
        assert!(agent.rules.result_pointer.is_some(), "{profile}");
    }
    let codex = ["codex", "exec", "--json", "--skip-git-repo-check"];
    check(
        "codex",
        &[&codex[..], &["--", "-p"]].concat(),
        &[&codex[..], &["resume", "s", "--", "-p"]].concat(),
    );
    let gemini = ["gemini", "--output-format", "json"];
    check(
        "gemini",
        &[&gemini[..], &["--prompt=-p"]].concat(),
        &[&gemini[..], &["--resume=s", "--prompt=-p"]].concat(),
    );
    let opencode = ["opencode", "run", "--format", "json"];
    check(
        "opencode",
        &[&opencode[..], &["--", "-p"]].concat(),
        &[&opencode[..], &["--session=s", "--", "-p"]].concat(),
    );
}

#[test]
fn a_command_with_its_pointers_needs_no_profile() {
    let fields = r#"
command = ["claude", "-p", "{prompt}", "--output-format", "json"]
resume = ["--resume", "{session}"]
session_pointer = "/session_id"
result_pointer = "/result"
"#;
    let agent = server(fields, &[]);
    let fresh = ["claude", "-p", "do it", "--output-format", "json"];
    assert_eq!(agent.template.arguments("do it", None, "/work"), fresh);
    assert_eq!(
        agent.template.arguments("do it", Some("s"), "/work"),
        [&fresh[..], &["--resume", "s"]].concat()
    );
    assert_eq!(agent.rules.form, OutputForm::Json);
    assert_eq!(agent.rules.session_pointer, pointer("/session_id"));
    assert_eq!(agent.rules.result_pointer, pointer("/result"));
    assert_eq!(agent.rules.error_pointer, None);
    assert!(agent.rules.result_where.is_empty());
    assert!(agent.unknown_session.is_empty());
    assert!(!agent.description.is_empty());
}

#[test]
fn every_field_wins_over_the_profile() {
    let fields = r#"
profile = "codex"
command = ["/opt/codex", "exec", "--sandbox=workspace-write", "{resume}", "{prompt}"]
resume = ["resume", "--all", "{session}"]
output = "json"
session_pointer = "/id"
result_pointer = "/answer"
result_where = ["/done=true", "/kind=a=b"]
results = "joined"
error_pointer = ""
progress_pointer = "/step"
progress_where = []
unknown_session = ["gone"]
description = "Asks the house agent."
directory = "/srv/agent"
work_folders = ["/srv/projects", "/data"]
env = { API_KEY = "env:HELPER_KEY" }
inherit_env = ["CODEX_HOME"]
timeout_seconds = 86_400
output_bytes_max = 1024
children_max = 2
session_ttl_seconds = 60
sessions_max = 1
"#;
    let agent = server(fields, &[("HELPER_KEY", "s3cret")]);
    assert_eq!(
        agent.template.arguments("do it", Some("s"), "/work"),
        [
            "/opt/codex",
            "exec",
            "--sandbox=workspace-write",
            "resume",
            "--all",
            "s",
            "do it"
        ]
    );
    assert_eq!(agent.rules.form, OutputForm::Json);
    assert_eq!(agent.rules.session_pointer, pointer("/id"));
    assert_eq!(agent.rules.result_pointer, pointer("/answer"));
    assert_eq!(
        agent.rules.result_where,
        conditions(&["/done=true", "/kind=a=b"])
    );
    assert_eq!(agent.rules.results, Results::Joined);
    assert_eq!(agent.rules.error_pointer, None, "empty means none");
    assert_eq!(agent.rules.progress_pointer, pointer("/step"));
    assert!(agent.rules.progress_where.is_empty());
    assert_eq!(agent.unknown_session, ["gone"]);
    assert_eq!(agent.description, "Asks the house agent.");
    assert_eq!(agent.directory, PathBuf::from("/srv/agent"));
    let folders: Vec<PathBuf> = vec!["/srv/projects".into(), "/data".into()];
    assert_eq!(agent.work_folders, folders);
    assert_eq!(
        agent.variables.given(),
        [("API_KEY".to_owned(), "s3cret".to_owned())]
    );
    assert_eq!(agent.variables.inherited().last().unwrap(), "CODEX_HOME");
    assert_eq!(agent.timeout, Duration::from_secs(86_400));
    assert_eq!(agent.output_bytes_max, 1024);
    assert_eq!(agent.children_max.get(), 2);
    assert_eq!(agent.session_ttl, Duration::from_secs(60));
    assert_eq!(agent.sessions_max, 1);
    assert!(!format!("{agent:?}").contains("s3cret"));
}

#[test]
fn what_is_not_written_stays_as_the_profile_has_it() {
    let agent = server(
        "profile = \"codex\"\ncommand = [\"my-codex\", \"{resume}\", \"{prompt}\"]\nresults = \"joined\"",
        &[],
    );
    assert_eq!(
        agent.template.arguments("do it", Some("s"), "/work"),
        ["my-codex", "resume", "s", "do it"]
    );
    assert_eq!(agent.rules.results, Results::Joined);
    assert_eq!(agent.rules.form, OutputForm::JsonLines);
    assert_eq!(agent.rules.session_pointer, pointer("/thread_id"));

    let fresh = server("profile = \"codex\"\nresume = []", &[]);
    assert!(!fresh.template.can_resume());
}

#[test]
fn plain_text_has_nothing_to_point_to() {
    for profile in ["", "profile = \"claude\"\n"] {
        let fields = format!("{profile}command = [\"echo\", \"{{prompt}}\"]\noutput = \"text\"");
        let rules = server(&fields, &[]).rules;
        assert_eq!(rules.form, OutputForm::Text);
        assert_eq!(rules.session_pointer, None);
        assert_eq!(rules.result_pointer, None);
        assert!(rules.result_where.is_empty());
    }
}

#[test]
fn nothing_that_may_be_a_secret_is_shown() {
    let fields = "profile = \"claude\"\ncommand = [\"claude\", \"--key=s3cret\", \"{prompt}\"]\n\
                  resume = [\"s3cret{session}\"]\nenv = { KEY = \"s3cret\" }";
    let shown = format!("{:?}", server(fields, &[]));
    assert!(shown.contains("claude") && shown.contains("KEY"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");

    let file = "[[servers]]\nid = \"helper\"\nkind = \"agent\"\nprofile = \"claude\"\n\
                command = [\"claude\", \"s3cret\"]\nresume = [\"s3cret\\u0000\"]";
    let text = load(file, &[], &Flags::default()).unwrap_err().to_string();
    assert!(!text.contains("s3cret"), "{text}");
}

/// Refused with these parts, beside a profile unless the fields have one or a command.
#[track_caller]
fn check(fields: &str, parts: &[&str]) {
    let has_one = fields.contains("profile") || fields.contains("command");
    let profile = if has_one {
        ""
    } else {
        "profile = \"claude\"\n"
    };
    let file = format!("[[servers]]\nid = \"helper\"\nkind = \"agent\"\n{profile}{fields}");
    check_refused(&file, &[], parts);
}

#[test]
fn bad_commands_are_refused() {
    check_refused(
        "[[servers]]\nid = \"helper\"\nkind = \"agent\"\nresult_pointer = \"/a\"",
        &[],
        &[
            "servers[0].command",
            "it is missing, and so is a `profile`",
            "the first the name of a program",
        ],
    );
    check(
        "profile = \"cloude\"",
        &[
            "servers[0].profile = \"cloude\"",
            "allowed: \"none\", \"claude\", \"codex\", \"gemini\" or \"opencode\"",
        ],
    );
    #[track_caller]
    fn check_command(fields: &str, parts: &[&str]) {
        check(&format!("profile = \"claude\"\n{fields}"), parts);
    }
    check_command(
        "command = [\"claude\", \"-p\"]",
        &[
            "servers[0].command = [...]",
            "no argument of the command holds {prompt}",
        ],
    );
    check_command("command = []", &["servers[0].command = []", "no program"]);
    check_command(
        "command = [\"bin/claude\", \"{prompt}\"]",
        &["the program's path is relative"],
    );
    check_command(
        "command = [\"{prompt}\", \"{prompt}\"]",
        &["the program may not hold {prompt}"],
    );
    check_command(
        "command = [\"claude\", \"{prompt}\", \"{session}\"]",
        &["servers[0].command", "the command holds {session}"],
    );
    check_command(
        "command = [\"claude\", \"{prompt}\", \"{resume}\", \"{resume}\"]",
        &["{resume} is a duplicate"],
    );
    check_command(
        "command = [\"claude\", \"{prompt}\", \"-{resume}\"]",
        &["{resume} has to be an argument of its own"],
    );
    check_command(
        "resume = [\"--continue\"]",
        &[
            "servers[0].resume = [...]",
            "no argument that resumes holds {session}",
            "such as [\"--resume={session}\"]",
        ],
    );
    check_command(
        "resume = [\"{session}\", \"{resume}\"]",
        &["may not hold {resume}"],
    );
}

#[test]
fn bad_output_rules_are_refused() {
    check(
        "session_pointer = \"session_id\"",
        &[
            "servers[0].session_pointer = \"session_id\"",
            "a JSON pointer begins with \"/\"",
            "such as /item/text",
        ],
    );
    check(
        "progress_pointer = \"/a~b\"",
        &["servers[0].progress_pointer = \"/a~b\"", "\"~0\""],
    );
    check(
        "result_where = [\"/type\"]",
        &[
            "servers[0].result_where = \"/type\"",
            "it has no \"=\" between a JSON pointer and a text",
        ],
    );
    check(
        "progress_where = [\"type=a\"]",
        &["servers[0].progress_where", "begins with \"/\""],
    );
    check(
        "output = \"xml\"",
        &[
            "servers[0].output = \"xml\"",
            "\"json\", \"json_lines\" or \"text\"",
        ],
    );
    check("results = \"first\"", &["\"last\" or \"joined\""]);
    check(
        "result_pointer = \"\"",
        &[
            "servers[0].result_pointer = \"\"",
            "nothing says where the agent's answer stands",
        ],
    );
    check(
        "command = [\"agent\", \"{prompt}\"]",
        &[
            "servers[0].result_pointer",
            "it is missing",
            "output = \"text\"",
        ],
    );
    check(
        "output = \"text\"\nsession_pointer = \"/id\"",
        &["servers[0].session_pointer", "plain text"],
    );
}

#[test]
fn bad_folders_and_limits_are_refused() {
    check(
        "directory = \"~/work\"",
        &["servers[0].directory", "it is relative"],
    );
    check(
        "work_folders = [\"work\"]",
        &["= \"work\"", "it is relative"],
    );
    check(
        "work_folders = [\"/\"]",
        &["= \"/\"", "it is the root directory"],
    );
    check("timeout_seconds = 0", &["seconds from 1 to 86400"]);
    check("output_bytes_max = 1023", &["bytes from 1024 to 67108864"]);
    check("children_max = 0", &["processes from 1 to 4096"]);
    check("session_ttl_seconds = 0", &["seconds from 1 to 2592000"]);
    check("sessions_max = 0", &["conversations from 1 to 1000000"]);
    check(
        "inherit_env = [\"MOORING_STORE_URL\"]",
        &["the gateway's own"],
    );
    check(
        "cwd = \"/work\"",
        &[
            "servers[0].cwd",
            "only a server of kind \"stdio\" has this field",
        ],
    );
    check("promt = 1", &["servers[0].promt"]);
    check_refused(
        "[[servers]]\nid = \"helper\"\nkind = \"agent\"\nprofile = \"claude\"",
        &[
            ("HOME", "somewhere"),
            ("MOORING_STORE_PATH", "/data/sessions.db"),
        ],
        &["servers[0].directory", "HOME is not an absolute path"],
    );
    check_refused(
        "[[servers]]\nid = \"a\"\nkind = \"stdio\"\ncommand = [\"a\"]\nprofile = \"claude\"",
        &[],
        &[
            "servers[0].profile",
            "only a server of kind \"agent\" has this field",
        ],
    );
}

#[test]
fn a_group_holds_no_agent() {
    check_refused(
        "[[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"helper\"]\n\
         [[servers]]\nid = \"helper\"\nkind = \"agent\"\nprofile = \"claude\"",
        &[],
        &["servers[0].members = \"helper\"", "this is of kind agent"],
    );
}
