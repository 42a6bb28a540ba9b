//! What is refused: every problem at once, each with the key, the place, the value without secrets, and what
//! is allowed instead.

use std::path::Path;

use super::*;

/// Exactly one problem, and its text has every one of `parts`.
#[track_caller]
pub(super) fn check_refused(file: &str, variables: &[(&str, &str)], parts: &[&str]) {
    match load(file, variables, &Flags::default()) {
        Ok(_) => panic!("accepted: {file} {variables:?}"),
        Err(error) => check_text(&error, parts),
    }
}

#[track_caller]
pub(super) fn check_text(error: &SettingsError, parts: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.problems().len(), 1, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let file = "[affinity]\nttl_seconds = 0\nttl = 1\n[store]\nurl = \"ftp://x\"\n[[servers]]\nkind = \"http\"\n";
    let variables = [("MOORING_LOG_LEVEL", "loud")];
    let error = load(file, &variables, &Flags::default()).unwrap_err();
    let keys: Vec<&str> = error.problems().iter().map(|p| p.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "affinity.ttl",
            "store.url",
            "affinity.ttl_seconds",
            "log.level",
            "servers.id",
            "servers.instances"
        ]
    );
    assert!(error.to_string().starts_with("6 settings are refused"));
}

#[test]
fn a_delegation_is_off_or_long_enough() {
    let allowed = |ms: &str| {
        load(
            "",
            &[("MOORING_AFFINITY_DELEGATION_MS", ms)],
            &Flags::default(),
        )
    };
    assert!(allowed("0").is_ok() && allowed("1000").is_ok());
    check_refused(
        "[affinity]\ndelegation_ms = 999\n",
        &[],
        &["affinity.delegation_ms = 999", "0, or 1000 to 1800"],
    );
}

#[test]
fn unknown_names_are_refused_with_the_nearest_known_one() {
    check_refused(
        "[affinity]\nttl_second = 1",
        &[],
        &[
            "affinity.ttl_second  (m.toml, line 2)",
            "did you mean \"ttl_seconds\"?",
        ],
    );
    check_refused("[afinity]\n", &[], &["did you mean \"affinity\"?"]);
    check_refused("port = 1\n", &[], &["port", "listen, store, affinity"]);
    check_refused("listen = 1\n", &[], &["a table under a [listen] line"]);
    check_refused(
        "",
        &[("MOORING_AFINITY_ENABLED", "true")],
        &["environment", "did you mean MOORING_AFFINITY_ENABLED?"],
    );
    settings(
        "",
        &[
            ("MOORING_SERVICE_HOST", "10.0.0.1"),
            ("MOORING_CONFIG", "x"),
        ],
    );
}

#[test]
fn bad_values_are_refused_with_what_is_allowed() {
    #[track_caller]
    fn check(file: &str, parts: &[&str]) {
        check_refused(file, &[], parts);
    }
    check("[affinity\n", &["m.toml, line 1"]);
    check("a = 1\na = 2\n", &["m.toml, line 2", "duplicate key"]);
    check(
        "[affinity]\nttl_seconds = \"1h\"",
        &[
            "affinity.ttl_seconds = \"1h\"",
            "from 1 to 2592000, without a unit",
        ],
    );
    check("[affinity]\nttl_seconds = 2_592_001", &["= 2592001"]);
    check("[affinity]\nttl_seconds = -1", &["= -1"]);
    check("[affinity]\nttl_seconds = 1.5", &["= 1.5"]);
    check("[affinity]\nenabled = \"on\"", &["allowed: true or false"]);
    check(
        "[affinity]\nmax_sessions_per_principal = 1_000_000_001",
        &["of sessions from 0 to 1000000000, without a unit"],
    );
    check("[log]\nformat = \"xml\"", &["\"text\" or \"json\""]);
    check(
        "[auth]\nmode = \"api-key\"",
        &["auth.api_keys_file", "there are no keys"],
    );
    check(
        "[auth]\nmode = \"mtls\"",
        &["listen.tls_client_ca_file", "no client shows a certificate"],
    );
    check(
        "[listen]\nallowed_hosts = [\"*\"]\n[auth]\nmode = \"jwt\"\nissuer = \"https://a.example\"\n\
         audiences = [\"a\"]\ndpop_required = true",
        &["listen.public_url", "which the Host header would decide"],
    );
    check(
        "[listen]\ntls_client_crl_file = \"/etc/mooring/revoked.pem\"",
        &["listen.tls_client_crl_file", "no certificate that could be"],
    );
    check("[store]\nkey_prefix = \"mcpgw\"", &["the last one a colon"]);
    check("[store]\npath = \"sessions.db\"", &["it is relative"]);
    check("[store]\nurl = \"\"", &["it is empty"]);
    check("[worker]\nname = \"a b\"", &["letters, digits and . _ : -"]);
    check(
        "[listen]\naddress = \"localhost:4444\"",
        &["not an IP address"],
    );
    check(
        "[listen]\naddress = \"127.0.0.1\"",
        &["IP address and a port"],
    );
    check(
        "[listen]\nallowed_hosts = [\"::1\"]",
        &["stands in brackets"],
    );
    check(
        "[listen]\nallowed_hosts = [\"*\", \"a\"]",
        &["would mean nothing"],
    );
    check("[listen]\nallowed_origins = [\"*\"]", &["every web page"]);
    check("[listen]\nallowed_origins = \"https://a\"", &["not a list"]);
    check(
        "[listen]\nallowed_origins = [\"a.example\"]",
        &["not an http or https origin"],
    );
}

#[test]
fn certificates_for_redis_need_tls_and_each_other() {
    let tls = |url: &str, rest: &str| format!("[store]\nurl = \"{url}\"\n{rest}");
    let ca = "tls_ca_file = \"/ca.pem\"\n";
    for url in ["embedded", "redis://h", "redis+sentinel://h/s"] {
        check_refused(
            &tls(url, ca),
            &[],
            &["store.tls_ca_file", "names no server that speaks TLS"],
        );
    }
    for (written, missing) in [
        ("tls_cert_file", "tls_key_file"),
        ("tls_key_file", "tls_cert_file"),
    ] {
        let file = tls("rediss://h", &format!("{written} = \"/c.pem\"\n"));
        check_refused(&file, &[], &[&format!("store.{missing}"), "it is missing"]);
    }
    let both = format!("{ca}tls_cert_file = \"/c.pem\"\ntls_key_file = \"/c.key\"\n");
    for url in [
        "rediss://h",
        "redis://a,rediss://b",
        "rediss+sentinel://h/s",
    ] {
        let StoreLocation::Redis(found) = settings(&tls(url, &both), &[]).store.location else {
            panic!("{url} is not Redis");
        };
        let files = found.tls_files().unwrap();
        assert_eq!(files.ca_file.as_deref(), Some(Path::new("/ca.pem")));
        assert_eq!(files.client.as_ref().unwrap().key_file, Path::new("/c.key"));
        if let RedisTopology::Sentinels(service) = found.topology() {
            assert_eq!(&service.server_at("p", 1).tls_files, files);
        }
    }
}

#[test]
fn urls_of_stores_are_refused_with_the_reason() {
    #[track_caller]
    fn check(url: &str, parts: &[&str]) {
        check_refused("", &[("MOORING_STORE_URL", url)], parts);
    }
    check("redis+sentinel://a:1,b:2", &["it names no service"]);
    check("redis+cluster://a/1", &["only database 0"]);
    check("redis://host:port", &["invalid port number"]);
    check("redis://host/one", &["its database is no number"]);
    check(
        "rediss://host#insecure",
        &["the certificate of Redis is always verified"],
    );
    check("localhost:6379", &["no scheme"]);
    for url in [
        "redis://h",
        "rediss://u:p@h:1/2",
        "unix:///run/r.sock",
        "redis+unix:///r",
    ] {
        let found = settings("", &[("REDIS_URL", url)]).store.location;
        let StoreLocation::Redis(found) = found else {
            panic!("{url} is not Redis");
        };
        assert_eq!(found.secret(), url);
    }
}

#[test]
fn impossible_combinations_are_refused() {
    check_refused(
        "[listen]\naddress = \"0.0.0.0:4444\"",
        &[],
        &[
            "listen.address = \"0.0.0.0:4444\"",
            "m.toml, line 2",
            "auth.mode is \"none\"",
        ],
    );
    check_refused(
        "[auth]\nmode = \"trusted-header\"",
        &[],
        &["auth.trusted_peers", "at least one"],
    );
    check_refused(
        "[auth]\ntrusted_peers = [\"10.0.0.1\"]",
        &[],
        &["believes no header"],
    );
    check_refused(
        "[auth]\nmode = \"trusted-header\"\ntrusted_peers = [\"::1\"]\nteams_header = \"X-Mooring-User\"",
        &[],
        &["one header cannot mean two things"],
    );
    check_refused(
        "[listen]\nbody_bytes_max = 8192\nbody_budget_bytes = 8191",
        &[],
        &[
            "listen.body_budget_bytes",
            "would never fit",
            "8192 or more",
        ],
    );
    check_refused("[worker]\nbeat_ttl_ms = 999", &[], &["at least 1000"]);
    check_refused(
        "[upstream]\nclaim_lease_ms = 5000",
        &[],
        &["at least 10000"],
    );
    check_refused(
        &format!("[default]\nserver = \"other\"\n{ONE_SERVER}"),
        &[],
        &["default.server = \"other\"", "allowed: \"tools\""],
    );
    let open = "[listen]\naddress = \"0.0.0.0:4444\"\n[auth]\nmode = \"trusted-header\"\ntrusted_peers = [\"10.0.0.0/8\"]";
    assert!(settings(open, &[]).listen.address.ip().is_unspecified());
}

#[test]
fn a_proxy_that_could_be_anybody_or_a_header_that_is_anybodys_is_refused() {
    const TRUSTING: &str = "[auth]\nmode = \"trusted-header\"\n";
    for everybody in ["0.0.0.0/0", "::/0", "10.0.0.1/0"] {
        let file = format!("{TRUSTING}trusted_peers = [\"10.0.0.1\", \"{everybody}\"]");
        check_refused(
            &file,
            &[],
            &["auth.trusted_peers", everybody, "every address"],
        );
    }
    for header in [
        "host",
        "Connection",
        "authorization",
        "x-forwarded-for",
        "mcp-session-id",
    ] {
        let file = format!("{TRUSTING}trusted_peers = [\"10.0.0.1\"]\nuser_header = \"{header}\"");
        check_refused(&file, &[], &["auth.user_header", "meaning of its own"]);
    }
    let file =
        format!("{TRUSTING}trusted_peers = [\"10.0.0.0/8\"]\nuser_header = \"x-forwarded-user\"");
    assert!(load(&file, &[], &Flags::default()).is_ok());
}

#[test]
fn bad_servers_are_refused() {
    #[track_caller]
    fn check(fields: &str, parts: &[&str]) {
        let id = if fields.contains("id = ") {
            ""
        } else {
            "id = \"tools\"\n"
        };
        let instances = if ["instances", "kind", "type"]
            .iter()
            .any(|name| fields.contains(name))
        {
            ""
        } else {
            "instances = [\"http://a/\"]\n"
        };
        let file = format!("[[servers]]\n{id}{instances}{fields}");
        check_refused(&file, &[], parts);
    }
    check(
        "kind = \"stdoi\"\ncommand = [\"x\"]",
        &[
            "servers[0].kind = \"stdoi\"",
            "allowed: \"http\", \"code\", \"code_execution\", \"stdio\", \"sse\", \"group\", \"agent\" or \"admin\"",
        ],
    );
    check("type = \"agents\"", &["servers[0].type = \"agents\""]);
    check(
        "instances = [\"http://a/\"]\nkind = \"http\"\ntype = \"http\"",
        &["servers[0].type", "the same as another key"],
    );
    check("id = \"a__b\"", &["\"__\""]);
    check("id = \".a\"", &["the first a letter"]);
    check(
        &format!("id = \"{}\"", "a".repeat(61)),
        &["61 bytes, more than 60"],
    );
    check("instances = []", &["no instance"]);
    check("instances = [\"ftp://a/\"]", &["its scheme is \"ftp\""]);
    check("instances = [\"a:1/mcp\"]", &["its scheme"]);
    check("instances = [\"http://a/#x\"]", &["fragment"]);
    check(
        "instances = [\"http://a/\", \"http://A:80\"]",
        &["is a duplicate"],
    );
    check(
        &format!("instances = [\"http://a/{}\"]", "x".repeat(128)),
        &["more than 128"],
    );
    check("affinity = \"yes\"", &["\"inherit\", \"on\" or \"off\""]);
    check("instance = \"http://a/\"", &["did you mean \"instances\"?"]);
    check(
        "headers = { Host = \"a\" }",
        &["servers[0].headers.Host", "gateway's own"],
    );
    check(
        "headers = { A = \"env:NOT_THERE\" }",
        &["NOT_THERE", "not set"],
    );
    check_refused(
        &format!("{ONE_SERVER}{ONE_SERVER}"),
        &[],
        &[
            "servers[1].id",
            "another server has this id",
            "m.toml, line 5",
        ],
    );
    check_refused("servers = 1", &[], &["under a [[servers]] line"]);
}

#[test]
fn no_message_shows_a_secret() {
    let file = "[[servers]]\nid = \"t\"\ninstances = [\"http://u:s3cret@a/\"]\n\
                headers = { Authorization = \"s3cret\\n\" }\n[store]\npassword = \"s3cret\"\n";
    let variables = [("MOORING_STORE_URL", "redis+sentinel://u:s3cret@h")];
    let error = load(file, &variables, &Flags::default()).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.problems().len(), 4, "{text}");
    assert!(!text.contains("s3cret"), "{text}");
    let found = settings("", &[("REDIS_URL", "redis://u:s3cret@h")]);
    assert!(!format!("{found:?}").contains("s3cret"));
}

#[test]
fn bad_server_flags_are_refused() {
    #[track_caller]
    fn check(servers: &[&str], parts: &[&str]) {
        match load("", &[], &server_flags(servers)) {
            Ok(_) => panic!("accepted: {servers:?}"),
            Err(error) => check_text(&error, parts),
        }
    }
    check(&["http://b/?x=1"], &["no ID in front", "ID=URL[,URL]"]);
    check(&["a=http://b/", "a=http://c/"], &["named twice"]);
    check(&["a=b/c"], &["--server a", "not a URL"]);
    check(&["a="], &["--server a", "empty"]);
}

#[test]
fn unreadable_files_are_refused() {
    #[track_caller]
    fn check(flag: Option<&str>, variable: &str, parts: &[&str]) {
        let flags = Flags {
            config: flag.map(Into::into),
            ..Flags::default()
        };
        let environment = [(CONFIG_VARIABLE, variable)].into_iter().collect();
        check_text(&Settings::load(&environment, &flags).unwrap_err(), parts);
    }
    check(
        Some("/"),
        "/absent.toml",
        &["--config = \"/\"", "a directory"],
    );
    check(
        None,
        "/absent.toml",
        &["MOORING_CONFIG = \"/absent.toml\"", "cannot open"],
    );
}
