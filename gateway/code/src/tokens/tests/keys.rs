//! Maps that are encrypted.

use super::*;

fn key(byte: u8) -> TokenKey {
    TokenKey::new([byte; 32])
}

#[test]
fn an_encrypted_map_shows_nothing_and_comes_back() {
    let place = tempfile::tempdir().unwrap();
    let open = || Tokenizer::new(everything(), try_open(place.path(), Some(&key(1))).unwrap());
    let hidden = open().hide_text("ada@example.com 123-45-6789").unwrap();
    assert_eq!(hidden, "TKN_EMAIL_000001 TKN_SSN_000002");
    let file = std::fs::read_to_string(place.path().join("tokens")).unwrap();
    let lines: Vec<&str> = file.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].contains("chacha20-poly1305"));
    assert_eq!(reveal(&open(), &hidden), "ada@example.com 123-45-6789");

    let plain = tempfile::tempdir().unwrap();
    tokenizer(plain.path())
        .hide_text("ada@example.com")
        .unwrap();
    let plain = std::fs::read_to_string(plain.path().join("tokens")).unwrap();
    let body = |line: &str| line.split(' ').nth(1).unwrap().to_owned();
    assert_ne!(
        body(lines[1]).len(),
        body(plain.lines().nth(1).unwrap()).len()
    );
}

#[test]
fn a_wrong_key_is_an_error_and_nothing_else() {
    let place = tempfile::tempdir().unwrap();
    try_open(place.path(), Some(&key(1))).unwrap();
    let wrong = try_open(place.path(), Some(&key(2))).unwrap_err();
    assert_eq!(wrong, TokensError::WrongKey);
    assert_eq!(
        try_open(place.path(), None).unwrap_err(),
        TokensError::NoKey
    );
    assert!(wrong.to_string().contains("code.tokens_key_file"));
    let plain = tempfile::tempdir().unwrap();
    try_open(plain.path(), None).unwrap();
    let error = try_open(plain.path(), Some(&key(1))).unwrap_err();
    assert_eq!(error, TokensError::NotEncrypted);
}

/// Lines that were moved to another number, or to another session, are not believed.
#[test]
fn a_line_is_bound_to_its_place() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |place: &Path| Tokenizer::new(everything(), try_open(place, Some(&key(1))).unwrap());
    open(one.path())
        .hide_text("ada@example.com bob@example.com")
        .unwrap();
    open(other.path()).hide_text("eve@example.com").unwrap();
    let read = |place: &Path| std::fs::read_to_string(place.join("tokens")).unwrap();
    let (mine, theirs) = (read(one.path()), read(other.path()));
    let mine: Vec<&str> = mine.lines().collect();
    let theirs = theirs.lines().nth(1).unwrap().to_owned();
    std::fs::write(
        one.path().join("tokens"),
        format!("{}\n{theirs}\n{}\n", mine[0], mine[2]),
    )
    .unwrap();
    let tokenizer = open(one.path());
    assert_eq!(reveal(&tokenizer, "TKN_EMAIL_000001"), "TKN_EMAIL_000001");
    assert_eq!(reveal(&tokenizer, "TKN_EMAIL_000002"), "bob@example.com");
}
