//! Places, as tables: the id's formula, slugs that read alike, and keys that are read back.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;

use mooring_session::names::{Principal, ServerName, SessionId};

use super::{ClientName, CodePlace, PlaceError};
use mooring_settings::Language;
use mooring_store::SessionKey;

fn principal(text: &str) -> Principal {
    Principal::parse(text.as_bytes()).unwrap()
}

fn place(server: &str, user: &str, language: Language) -> Result<CodePlace, PlaceError> {
    let server = ServerName::parse(server.as_bytes()).unwrap();
    CodePlace::new(&server, &principal(user), language, None)
}

/// The SHA-256 of `sandbox:alice@example.com:python` begins with these 24 digits, as `sha256sum` says.
const ALICE_PYTHON: &str = "fe9c9b3fdc124c2d2b2e3792";
const ALICE_SLUG: &str = "alice-example-com-ff8d9819fc0e12bf";

#[test]
fn the_id_is_the_formula_of_adr_0042() {
    let alice = place("sandbox", "alice@example.com", Language::Python).unwrap();
    assert_eq!(alice.id.as_str(), ALICE_PYTHON);
    assert_eq!(alice.slug.as_str(), ALICE_SLUG);
    assert_eq!(
        alice.relative_path(),
        Path::new("sandbox").join(ALICE_SLUG).join(ALICE_PYTHON)
    );
}

#[test]
fn two_principals_that_read_alike_never_meet() {
    let dotted = place("sandbox", "a.b@example.com", Language::Python).unwrap();
    let hyphened = place("sandbox", "a-b@example.com", Language::Python).unwrap();
    assert_eq!(dotted.slug.as_str(), "a-b-example-com-a6f1bad172104d25");
    assert_eq!(hyphened.slug.as_str(), "a-b-example-com-29728d50f93d4ebe");
    assert_ne!(dotted.id, hyphened.id);
    assert_ne!(dotted.relative_path(), hyphened.relative_path());
}

#[test]
fn javascript_is_typescripts_session_and_case_matters() {
    for (text, expected) in [
        ("python", Some(Language::Python)),
        ("typescript", Some(Language::TypeScript)),
        ("javascript", Some(Language::TypeScript)),
        ("Python", None),
        ("", None),
        ("ruby", None),
    ] {
        assert_eq!(Language::parse(text), expected, "{text}");
    }
}

#[test]
fn a_servers_name_is_no_path_trick() {
    for (server, good) in [
        ("sandbox", true),
        ("a.b_c-d", true),
        ("9", true),
        (".locks", false),
        ("..", false),
        ("a/b", false),
        ("a:b", false),
        ("a__b", false),
        ("-a", false),
        ("a%2f", false),
    ] {
        assert_eq!(
            place(server, "alice", Language::Python).is_ok(),
            good,
            "{server}"
        );
    }
}

#[test]
fn a_key_is_read_back_where_it_belongs_to_the_record() {
    let alice = place("sandbox", "alice@example.com", Language::TypeScript).unwrap();
    let (owner, id) = (principal("alice@example.com"), alice.id.clone());
    let code_key = |server: &str, language: &str| {
        let server = ServerName::parse(server.as_bytes()).unwrap();
        SessionKey::code("mcpgw:", &server, ALICE_SLUG, language, &id).unwrap()
    };
    let key = code_key("sandbox", "typescript");
    assert_eq!(
        key.secret(),
        format!("mcpgw:code_exec_session:sandbox:{ALICE_SLUG}:typescript")
    );
    assert_eq!(CodePlace::of_key(&key, &id, &owner), Some(alice));
    let mallory = principal("mallory@example.com");
    assert_eq!(CodePlace::of_key(&key, &id, &mallory), None);
    let foreign = SessionId::parse(ALICE_PYTHON.as_bytes()).unwrap();
    assert_eq!(CodePlace::of_key(&key, &foreign, &owner), None);
    let server = ServerName::parse(b"sandbox").unwrap();
    for wrong in [
        SessionKey::mcp("mcpgw:", &id),
        SessionKey::agent("mcpgw:", &server, ALICE_SLUG, "typescript", &id).unwrap(),
        code_key("sandbox", "javascript"),
        code_key("../x", "typescript"),
    ] {
        assert_eq!(CodePlace::of_key(&wrong, &id, &owner), None, "{wrong:?}");
    }
}

#[test]
fn a_client_that_is_named_has_a_place_of_its_own() {
    let server = ServerName::parse(b"sandbox").unwrap();
    let alice = principal("alice@example.com");
    let of = |client: Option<&str>| {
        let client = client.map(|name| ClientName::parse(name.as_bytes()).unwrap());
        CodePlace::new(&server, &alice, Language::Python, client.as_ref()).unwrap()
    };
    let (shared, editor, other) = (of(None), of(Some("editor")), of(Some("Editor")));
    assert!(editor.is_of_client() && !shared.is_of_client());
    assert_ne!(editor.id, shared.id);
    assert_ne!(editor.id, other.id);
    assert_eq!(editor.slug, shared.slug);
    let key = |language: &str, place: &CodePlace| {
        SessionKey::code("mcpgw:", &server, ALICE_SLUG, language, &place.id).unwrap()
    };
    let read =
        |language, place: &CodePlace| CodePlace::of_key(&key(language, place), &place.id, &alice);
    assert_eq!(read("python.editor", &editor), Some(editor.clone()));
    assert_eq!(read("python.editor", &shared), None);
    assert_eq!(read("python", &editor), None);
    assert_eq!(read("python.a.b", &editor), None);
}

#[test]
fn the_name_of_a_client_is_short_and_plain() {
    let longest = "a".repeat(32);
    for (name, good) in [
        ("editor", true),
        ("Claude_Code-2", true),
        (longest.as_str(), true),
        ("", false),
        (&format!("{longest}a"), false),
        ("a.b", false),
        ("a:b", false),
        ("a/b", false),
        ("a b", false),
        ("\u{e9}", false),
    ] {
        assert_eq!(ClientName::parse(name.as_bytes()).is_ok(), good, "{name}");
    }
}

#[test]
fn a_place_is_never_shown() {
    let alice = place("sandbox", "alice@example.com", Language::Python).unwrap();
    let shown = format!("{alice:?} {:?}", alice.slug);
    assert!(!shown.contains("alice") && !shown.contains(ALICE_PYTHON));
}
