//! The settings about the other workers: what a process listens on, what it tells the others, whose keys it believes,
//! and what is refused because a server's sessions could not be reached without it.

use super::refused::check_refused;
use super::*;

const CHILD_SERVER: &str = "[[servers]]\nid = \"files\"\nkind = \"stdio\"\ncommand = [\"npx\"]\n";
const REDIS: (&str, &str) = ("REDIS_URL", "redis://127.0.0.1");

#[track_caller]
fn peers(file: &str, variables: &[(&str, &str)]) -> PeerSettings {
    settings(file, variables).worker.peers
}

#[test]
fn the_defaults_serve_one_machine() {
    let settings = settings(CHILD_SERVER, &[]);
    assert!(settings.needs_peers());
    let peers = settings.worker.peers;
    assert_eq!(peers.listen.to_string(), "127.0.0.1:0");
    assert_eq!(peers.advertise, None);
    assert_eq!(
        peers.fleet_keys_file,
        Some(FleetKeysFile::BesideStore(
            "/home/ada/.local/state/mooring/sessions.db.keys".into()
        ))
    );
}

#[test]
fn a_key_file_is_used_with_every_store() {
    let keys = ("MOORING_WORKER_FLEET_KEYS_FILE", "/run/secrets/fleet.keys");
    let given = Some(FleetKeysFile::Given("/run/secrets/fleet.keys".into()));
    assert_eq!(peers(CHILD_SERVER, &[keys, REDIS]).fleet_keys_file, given);
    assert_eq!(peers(CHILD_SERVER, &[keys]).fleet_keys_file, given);
    assert_eq!(peers(ONE_SERVER, &[REDIS]).fleet_keys_file, None);
}

#[test]
fn advertised_addresses_have_one_spelling() {
    #[track_caller]
    fn check(written: &str, advertised: &str) {
        let file =
            format!("[worker]\npeer_listen = \"0.0.0.0:4445\"\npeer_advertise = \"{written}\"\n");
        let peers = peers(&format!("{file}{CHILD_SERVER}"), &[]);
        assert_eq!(peers.advertise.unwrap().as_str(), advertised);
    }
    check("Gateway-1.Internal:4445", "gateway-1.internal:4445");
    check("10.0.0.7:80", "10.0.0.7:80");
    check("[FD00:0::7]:4445", "[fd00::7]:4445");
}

#[test]
fn bad_addresses_and_paths_are_refused() {
    #[track_caller]
    fn check(line: &str, parts: &[&str]) {
        check_refused(&format!("[worker]\n{line}"), &[], parts);
    }
    check(
        "peer_listen = \"gateway-1:4445\"",
        &["names are not looked up"],
    );
    let advertise =
        |value: &str| format!("peer_listen = \"0.0.0.0:4445\"\npeer_advertise = \"{value}\"");
    check(&advertise("gateway-1"), &["it has no port"]);
    check(&advertise("gateway-1:0"), &["at port 0"]);
    check(&advertise("gateway-1:70000"), &["\"70000\" is not a port"]);
    check(&advertise("fd00::7:4445"), &["stands in brackets"]);
    check(&advertise("0.0.0.0:4445"), &["a wildcard address"]);
    check(&advertise("[::]:4445"), &["a wildcard address"]);
    check(&advertise("http://a:1"), &["worker.peer_advertise"]);
    check(
        "peer_advertise = \"10.0.0.7:4445\"",
        &[
            "worker.peer_listen = \"127.0.0.1:0\"",
            "port 0 leaves it to the system",
        ],
    );
    check("fleet_keys_file = \"fleet.keys\"", &["it is relative"]);
    check("fleet_keys_file = \"/etc/\"", &["it names a directory"]);
    check("stop_patience_ms = 600_001", &["from 0 to 600000"]);
}

#[test]
fn what_sessions_in_one_worker_need_is_refused_where_it_is_missing() {
    check_refused(
        CHILD_SERVER,
        &[REDIS],
        &[
            "worker.fleet_keys_file  (default)",
            "it is missing: the sessions of server \"files\", of kind \"stdio\", live in one worker",
            "head -c 32 /dev/urandom | xxd -p -c 64 > fleet.keys",
        ],
    );
    check_refused(
        "[[servers]]\nid = \"old\"\nkind = \"sse\"\ninstances = [\"http://a/sse\"]",
        &[REDIS],
        &["worker.fleet_keys_file", "\"old\", of kind \"sse\""],
    );
    for wildcard in ["0.0.0.0:4445", "[::]:0"] {
        check_refused(
            &format!("[worker]\npeer_listen = \"{wildcard}\"\n{CHILD_SERVER}"),
            &[],
            &[
                "worker.peer_advertise  (default)",
                &format!("worker.peer_listen is {wildcard}, which is no address"),
                "such as gateway-1.internal:4445",
            ],
        );
    }
    let unused = format!("[worker]\npeer_listen = \"0.0.0.0:4445\"\n{ONE_SERVER}");
    assert_eq!(peers(&unused, &[REDIS]).advertise, None, "nobody needs it");
}

#[test]
fn workers_that_others_may_not_reach_are_remarked_on() {
    #[track_caller]
    fn check(store: &str, listen: &str, is_remarked: bool) {
        let variables = [
            ("MOORING_STORE_URL", store),
            ("MOORING_WORKER_PEER_LISTEN", listen),
            ("MOORING_WORKER_FLEET_KEYS_FILE", "/fleet.keys"),
        ];
        let remarks = load(CHILD_SERVER, &variables, &Flags::default())
            .unwrap()
            .remarks
            .join("\n");
        assert_eq!(
            remarks.contains("workers on other machines cannot reach"),
            is_remarked,
            "{store} {listen}: {remarks}"
        );
    }
    check("redis://redis.internal", "127.0.0.1:0", true);
    check("rediss://10.0.0.9:6380", "[::1]:4445", true);
    check("redis://redis.internal", "10.0.0.7:0", false);
    check("redis://localhost", "127.0.0.1:0", false);
    check("redis://[::1]:6379", "127.0.0.1:0", false);
    check("unix:///run/redis.sock", "127.0.0.1:0", false);
    check("embedded", "127.0.0.1:0", false);
}
