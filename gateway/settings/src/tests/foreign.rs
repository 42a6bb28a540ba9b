//! Settings as other programs have them: which are accepted, and what is suggested for those that are not.

use super::refused::check_refused;
use super::*;

#[track_caller]
fn command(settings: &Settings, id: &str) -> Vec<String> {
    match &settings.server(id).unwrap().kind {
        ServerKind::Stdio(stdio) => {
            let program = std::iter::once(stdio.command.program().to_owned());
            program.chain(stdio.command.arguments().to_vec()).collect()
        }
        other => panic!("{id} is of kind {}", other.name()),
    }
}

#[test]
fn a_command_may_be_a_text_with_its_arguments_beside_it() {
    #[track_caller]
    fn check(fields: &str, expected: &[&str]) {
        let file = format!("[[servers]]\nid = \"files\"\n{fields}\n");
        assert_eq!(
            command(&settings(&file, &[]), "files"),
            expected,
            "{fields}"
        );
    }
    let words = ["npx", "-y", "server", "/my data"];
    check(
        "command = [\"npx\", \"-y\", \"server\", \"/my data\"]",
        &words,
    );
    check(
        "command = \"npx\"\nargs = [\"-y\", \"server\", \"/my data\"]",
        &words,
    );
    check("command = \"npx -y server '/my data'\"", &words);
    check(
        "command = [\"npx\", \"-y\"]\nargs = [\"server\", \"/my data\"]",
        &words,
    );
    check("kind = \"stdio\"\ncommand = \"npx\"", &["npx"]);
    // With `args` the text is the program, also where it has a space.
    check(
        "command = \"/opt/my app/run\"\nargs = []",
        &["/opt/my app/run"],
    );
}

#[test]
fn a_flag_and_the_environment_name_programs_too() {
    let flags = server_flags(&[
        "memory=npx -y @modelcontextprotocol/server-memory",
        "tools=http://127.0.0.1:9001/mcp",
        "own=/usr/bin/server --path \"/my data\"",
    ]);
    let variables = [(
        "MOORING_SERVERS",
        "files=npx server /data\n\n  http=http://127.0.0.1:9002/mcp\ntools=http://127.0.0.1:9/other\n",
    )];
    let settings = load("", &variables, &flags).unwrap().settings;
    assert_eq!(
        command(&settings, "memory"),
        ["npx", "-y", "@modelcontextprotocol/server-memory"]
    );
    assert_eq!(
        command(&settings, "own"),
        ["/usr/bin/server", "--path", "/my data"]
    );
    assert_eq!(command(&settings, "files"), ["npx", "server", "/data"]);
    let instance = |id: &str| {
        http(&settings, id)
            .instances
            .first()
            .unwrap()
            .name()
            .to_owned()
    };
    assert_eq!(instance("http"), "http://127.0.0.1:9002/mcp");
    assert_eq!(instance("tools"), "http://127.0.0.1:9001/mcp", "the flag's");
    for bad in ["tools=localhost:9001/mcp", "tools=127.0.0.1:9001"] {
        let error = load("", &[], &server_flags(&[bad]))
            .unwrap_err()
            .to_string();
        assert!(error.contains("URL"), "{bad}: {error}");
    }
}

#[test]
fn other_programs_names_are_translated() {
    #[track_caller]
    fn check(line: &str, suggested: &str) {
        let file = format!("[[servers]]\nid = \"tools\"\ninstances = [\"http://a/\"]\n{line}");
        let hint = format!("did you mean \"{suggested}\"?");
        check_refused(&file, &[], &[&hint]);
    }
    check("ulr = \"http://a/\"", "instances");
    check("url = \"http://a/\"", "instances");
    check("serverUrl = \"http://a/\"", "instances");
    check("transport = \"http\"", "kind");
    check("knid = \"http\"", "kind");
    check("header = {}", "headers");
    check("instnces = []", "instances");
    let foreign = "[mcpServers.x]\ncommand = \"npx\"";
    check_refused(foreign, &[], &["did you mean \"servers\"?"]);
}

#[test]
fn a_list_that_lost_its_quotes_in_a_shell_is_named() {
    check_refused(
        "",
        &[("CODE_EXECUTION_DEFAULT_TOOL_DENY_PATTERNS", "[a__*,b__*]")],
        &["a shell takes the quotes out"],
    );
    let hosts = [("MOORING_LISTEN_ALLOWED_HOSTS", "[::1],[::2]")];
    load("", &hosts, &Flags::default()).unwrap();
}

#[test]
fn authentication_that_contextforge_was_asked_for_is_not_left_out() {
    let asked = ("AUTH_REQUIRED", "True");
    check_refused(
        "",
        &[asked],
        &["auth.mode = \"none\"", "AUTH_REQUIRED is true", "\"jwt\""],
    );
    load("", &[("AUTH_REQUIRED", "false")], &Flags::default()).unwrap();
    let by_proxy = [
        asked,
        ("MOORING_AUTH_MODE", "trusted-header"),
        ("MOORING_AUTH_TRUSTED_PEERS", "127.0.0.1"),
    ];
    load("", &by_proxy, &Flags::default()).unwrap();
}
