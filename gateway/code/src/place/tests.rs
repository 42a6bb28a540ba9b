//! Places, as tables: the id's formula, slugs that read alike, and keys that are read back.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::Path;

use mooring_session::names::{Principal, ServerName, SessionId};

use super::{CodePlace, PlaceError, UserSlug};
use mooring_settings::Language;

fn principal(text: &str) -> Principal {
    Principal::parse(text.as_bytes()).unwrap()
}

fn place(server: &str, user: &str, language: Language) -> Result<CodePlace, PlaceError> {
    let server = ServerName::parse(server.as_bytes()).unwrap();
    CodePlace::new(&server, &principal(user), language)
}

/// The SHA-256 of `sandbox:alice@example.com:python` begins with these 24 digits, as `sha256sum` says.
const ALICE_PYTHON: &str = "fe9c9b3fdc124c2d2b2e3792";
const ALICE_SLUG: &str = "alice-example-com-ff8d9819fc0e12bf";

#[test]
fn the_id_is_the_formula_of_adr_0042() {
    let alice = place("sandbox", "alice@example.com", Language::Python).unwrap();
    assert_eq!(alice.id().as_str(), ALICE_PYTHON);
    assert_eq!(alice.slug().as_str(), ALICE_SLUG);
    assert_eq!(
        alice.key("mcpgw:"),
        format!("mcpgw:code_exec_session:sandbox:{ALICE_SLUG}:python")
    );
    assert_eq!(
        alice.relative_path(),
        Path::new("sandbox").join(ALICE_SLUG).join(ALICE_PYTHON)
    );
}

#[test]
fn two_principals_that_read_alike_never_meet() {
    let dotted = place("sandbox", "a.b@example.com", Language::Python).unwrap();
    let hyphened = place("sandbox", "a-b@example.com", Language::Python).unwrap();
    assert_eq!(dotted.slug().as_str(), "a-b-example-com-a6f1bad172104d25");
    assert_eq!(hyphened.slug().as_str(), "a-b-example-com-29728d50f93d4ebe");
    assert_ne!(dotted.key("p:"), hyphened.key("p:"));
    assert_ne!(dotted.id(), hyphened.id());
    assert_ne!(dotted.relative_path(), hyphened.relative_path());
}

#[test]
fn a_slug_is_readable_bounded_and_no_path() {
    for (text, readable) in [
        ("Alice", "alice"),
        ("../../etc/passwd", "etc-passwd"),
        ("@@@", "user"),
        ("\u{7528}\u{6237}", "user"),
        (
            "a-very-long-name.with.many.parts@department.example.com",
            "a-very-long-name-with-many-parts-departm",
        ),
        (&"-x".repeat(30), "x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x-x"),
    ] {
        let slug = UserSlug::of(&principal(text));
        let (head, hash) = slug.as_str().rsplit_once('-').unwrap();
        assert_eq!((head, hash.len()), (readable, 16), "{text}");
    }
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
    let (owner, id) = (principal("alice@example.com"), alice.id().clone());
    let key = alice.key("mcpgw:");
    let read =
        |key: &str, id: &SessionId, who: &Principal| CodePlace::of_key("mcpgw:", key, id, who);
    assert_eq!(read(&key, &id, &owner), Some(alice));
    assert_eq!(read(&key, &id, &principal("mallory@example.com")), None);
    let foreign = SessionId::parse(ALICE_PYTHON.as_bytes()).unwrap();
    assert_eq!(read(&key, &foreign, &owner), None);
    for wrong in [
        "mcpgw:session_affinity:abc".to_owned(),
        format!("other:code_exec_session:sandbox:{ALICE_SLUG}:typescript"),
        format!("mcpgw:code_exec_session:sandbox:{ALICE_SLUG}"),
        format!("mcpgw:code_exec_session:sandbox:{ALICE_SLUG}:javascript"),
        format!("mcpgw:code_exec_session:../x:{ALICE_SLUG}:typescript"),
        format!("{key}:more"),
    ] {
        assert_eq!(read(&wrong, &id, &owner), None, "{wrong}");
    }
}

#[test]
fn a_place_is_never_shown() {
    let alice = place("sandbox", "alice@example.com", Language::Python).unwrap();
    let shown = format!("{alice:?} {:?}", alice.slug());
    assert!(!shown.contains("alice") && !shown.contains(ALICE_PYTHON));
}
