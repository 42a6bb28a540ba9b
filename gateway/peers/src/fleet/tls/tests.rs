//! Handshakes in memory, with different rings, boots and clocks.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

use std::time::Duration;

use rustls::pki_types::{ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, ClientConnection, Error, ServerConnection};

use super::*;

const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn worker(id: &str) -> WorkerId {
    WorkerId::parse(id.as_bytes()).unwrap()
}

fn tls(id: &str, keys: &[&str]) -> FleetTls {
    let keys: Vec<_> = keys.iter().map(|key| key.as_bytes()).collect();
    FleetTls::new(&worker(id), &KeyRing::of(&keys)).unwrap()
}

/// Connects one to the other, which has to be `to`; the error of the side that refuses first.
fn connect(client: Arc<ClientConfig>, server: Arc<ServerConfig>, to: &str) -> Result<(), Error> {
    let name = ServerName::try_from(tls_name(&worker(to))).unwrap();
    let mut client = ClientConnection::new(client, name).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut bytes = Vec::new();
        server.write_tls(&mut bytes).unwrap();
        client.read_tls(&mut bytes.as_slice()).unwrap();
        client.process_new_packets()?;
    }
    Ok(())
}

/// `a` connects to `b:1`.
fn connect_rings(asking: &[&str], asked: &[&str]) -> Result<(), Error> {
    let (a, b) = (tls("a:1", asking), tls("b:1", asked));
    connect(a.client(), b.server(), "b:1")
}

#[test]
fn keys_can_be_changed_while_the_fleet_works() {
    let steps: &[&[&str]] = &[&["old"], &["old", "new"], &["new", "old"], &["new"]];
    for pair in steps.windows(2) {
        assert_eq!(connect_rings(pair[0], pair[1]), Ok(()), "{pair:?}");
        assert_eq!(connect_rings(pair[1], pair[0]), Ok(()), "{pair:?}");
    }
}

#[test]
fn each_side_refuses_what_none_of_its_keys_signed() {
    let unknown = Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
    // The client refuses, the server refuses, and so would a client that is accepted.
    assert_eq!(connect_rings(&["old"], &["new"]), unknown);
    assert_eq!(connect_rings(&["new", "old"], &["old"]), unknown);
    assert_eq!(connect_rings(&["old"], &["new", "old"]), unknown);
}

#[test]
fn a_certificate_is_of_one_boot() {
    let (a, b) = (tls("a:1", &["k"]), tls("b:1", &["k"]));
    for other in ["b:2", "c:1", "a:1", "b:1:1"] {
        let refused = connect(a.client(), b.server(), other);
        assert!(
            matches!(
                refused,
                Err(Error::InvalidCertificate(
                    CertificateError::NotValidForNameContext { .. }
                ))
            ),
            "{other}: {refused:?}"
        );
    }
}

#[test]
fn a_name_is_found_for_every_worker_id() {
    let long = "x".repeat(128);
    let ids = [
        "a",
        "a:",
        "host_1:4444:b1",
        "[fd00::7]:1:b",
        "!~|@/?",
        &long,
    ];
    let names: std::collections::BTreeSet<_> = ids.iter().map(|id| tls_name(&worker(id))).collect();
    assert_eq!(names.len(), ids.len());
    for id in ids {
        let (a, b) = (tls("a:1", &["k"]), tls(id, &["k"]));
        assert_eq!(connect(a.client(), b.server(), id), Ok(()), "{id}");
    }
}

#[test]
fn clocks_need_not_agree() {
    #[derive(Debug)]
    struct Clock(Duration);
    impl TimeProvider for Clock {
        fn current_time(&self) -> Option<UnixTime> {
            Some(UnixTime::since_unix_epoch(self.0))
        }
    }
    let (a, b) = (tls("a:1", &["k"]), tls("b:1", &["k"]));
    for [asking, asked] in [[10, 500], [500, 10]] {
        let (mut client, mut server) = ((*a.client()).clone(), (*b.server()).clone());
        client.time_provider = Arc::new(Clock(YEAR * asking));
        server.time_provider = Arc::new(Clock(YEAR * asked));
        let connected = connect(Arc::new(client), Arc::new(server), "b:1");
        assert_eq!(connected, Ok(()), "{asking} {asked}");
    }
}

#[test]
fn nothing_shows_a_key() {
    assert_eq!(format!("{:?}", tls("a:1", &["k"])), "FleetTls(a:1)");
}
