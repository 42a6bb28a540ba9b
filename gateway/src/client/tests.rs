//! Targets and printed output.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use serde_json::json;

use super::events::length_ms;
use super::table::{cell, fields, printable, table};
use super::*;
use crate::cli::{CallerArguments, EXIT_BAD_SETTINGS, EXIT_SERVICE_MISSING};

fn at(gateway: &str) -> CallerArguments {
    CallerArguments {
        gateway: Some(gateway.to_owned()),
        ..CallerArguments::default()
    }
}

fn target(arguments: &ClientArguments) -> GatewayTarget {
    GatewayTarget::of_code_server(arguments, None).unwrap()
}

#[test]
fn a_gateway_is_named_by_a_url_or_an_address() {
    for (given, url) in [
        ("http://127.0.0.1:4444", "http://127.0.0.1:4444"),
        ("https://gateway.example/", "https://gateway.example"),
        ("127.0.0.1:4444", "http://127.0.0.1:4444"),
    ] {
        let arguments = ClientArguments {
            caller: at(given),
            ..ClientArguments::default()
        };
        let found = target(&arguments);
        assert_eq!(found.gateway, url);
        assert_eq!(found.server, "sandbox");
        Gateway::new(found).unwrap();
    }
    for given in ["ftp://x", "http://", "http:///path", "not a url"] {
        let arguments = ClientArguments {
            caller: at(given),
            ..ClientArguments::default()
        };
        let refused = Gateway::new(target(&arguments)).unwrap_err();
        assert_eq!(refused.exit_code(), EXIT_BAD_SETTINGS, "{given}");
    }
}

#[test]
fn who_asks_stands_in_headers() {
    let arguments = ClientArguments {
        caller: CallerArguments {
            user: Some("ada@example.org".to_owned()),
            roles: Some("skills.approve,servers.read".to_owned()),
            ..at("http://x")
        },
        server: Some("other".to_owned()),
        ..ClientArguments::default()
    };
    let found = target(&arguments);
    assert_eq!(found.server, "other");
    assert_eq!(
        found.headers.get("x-mooring-user").unwrap(),
        "ada@example.org"
    );
    assert_eq!(
        found.headers.get("x-mooring-roles").unwrap(),
        "skills.approve,servers.read"
    );
    assert!(found.headers.get("x-mooring-teams").is_none());
    let forged = ClientArguments {
        caller: CallerArguments {
            user: Some("ada\r\nx-mooring-roles: admin".to_owned()),
            ..at("http://x")
        },
        ..arguments
    };
    assert!(matches!(
        GatewayTarget::of_code_server(&forged, None),
        Err(ClientError::Flag(_))
    ));
}

#[test]
fn lengths_of_time() {
    for (text, ms) in [
        ("30s", 30_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
    ] {
        assert_eq!(length_ms(text).unwrap(), ms);
    }
    for text in [
        "",
        "5",
        "h",
        "-1h",
        "1w",
        "1.5h",
        "99999999999999999999d",
        "18446744073709551615d",
    ] {
        assert!(length_ms(text).is_err(), "{text}");
    }
}

#[test]
fn tables_are_aligned_and_cells_are_cut() {
    let rows = [
        vec!["a".to_owned(), "x".repeat(100)],
        vec!["äöü".to_owned(), "two\nlines".to_owned()],
    ];
    let expected = format!("ID   TEXT\na    {}…\näöü  two lines\n", "x".repeat(79));
    assert_eq!(table(&["ID", "TEXT"], &rows), expected);
}

#[test]
fn what_is_printed_does_not_drive_a_terminal() {
    assert_eq!(
        printable("a\tb\n\u{1b}[2J\r\u{7}é"),
        "a\tb\n\\u{1b}[2J\\u{d}\\u{7}é"
    );
    assert_eq!(printable("\u{202e}abc"), "\\u{202e}abc");
    let skill = json!({"name": "a\u{1b}]0;x\u{7}", "none": null});
    assert_eq!(
        fields(&skill, &[("name", "/name")]),
        "name  a\\u{1b}]0;x\\u{7}\n"
    );
    assert_eq!(cell(&skill, "/none"), "-");
}

#[tokio::test]
async fn a_gateway_that_is_not_there_is_a_missing_service() {
    // A port that was just free and that no other process was given.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let arguments = ClientArguments {
        caller: at(&address.to_string()),
        ..ClientArguments::default()
    };
    let gateway = Gateway::new(target(&arguments)).unwrap();
    let error = gateway.get(&["skills"], &[]).await.unwrap_err();
    assert_eq!(error.exit_code(), EXIT_SERVICE_MISSING);
}
