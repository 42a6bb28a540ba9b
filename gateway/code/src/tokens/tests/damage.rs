//! Files that were cut off, damaged, or are none.

use super::*;

fn path(place: &Path) -> std::path::PathBuf {
    place.join("tokens")
}

/// A map of three addresses, as its file.
fn three() -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(place.path());
    for name in ["a", "b", "c"] {
        tokenizer.hide_text(&format!("{name}@example.com")).unwrap();
    }
    std::fs::read(path(place.path())).unwrap()
}

/// What a process leaves that is killed anywhere: what is whole counts, and the next one that writes goes on behind it.
#[test]
fn wherever_a_file_is_cut_off_what_is_whole_stays() {
    let whole = three();
    let place = tempfile::tempdir().unwrap();
    for length in 0..=whole.len() {
        let cut = &whole[..length];
        std::fs::write(path(place.path()), cut).unwrap();
        let lines = cut.iter().filter(|byte| **byte == b'\n').count();
        let kept = lines.saturating_sub(1);
        let tokenizer = tokenizer(place.path());
        let new = tokenizer.hide_text("z@example.com").unwrap();
        for tokenizer in [tokenizer, super::tokenizer(place.path())] {
            for (number, name) in (1..).zip(["a", "b", "c"]) {
                let token = format!("TKN_EMAIL_{number:06}");
                let value = reveal(&tokenizer, &token);
                let is_right = value == format!("{name}@example.com");
                // A line that only lacked its end is whole again with the next one.
                let is_unknown = number > kept && value == token;
                assert!(
                    is_right || is_unknown || token == new,
                    "cut at {length}: {value}"
                );
            }
            assert_eq!(reveal(&tokenizer, &new), "z@example.com");
            assert_eq!(tokenizer.hide_text("z@example.com").unwrap(), new);
        }
    }
}

/// Whatever byte is changed, no token stands for another value than before, and no number is given twice.
#[test]
fn a_damaged_line_is_never_a_wrong_answer() {
    let whole = three();
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let place = tempfile::tempdir().unwrap();
    for position in first..whole.len() {
        for change in [1, 0x80] {
            let mut damaged = whole.clone();
            damaged[position] ^= change;
            std::fs::write(path(place.path()), &damaged).unwrap();
            let tokenizer = tokenizer(place.path());
            let new = tokenizer.hide_text("z@example.com").unwrap();
            for (number, name) in (1..).zip(["a", "b", "c"]) {
                let token = format!("TKN_EMAIL_{number:06}");
                assert_ne!(new, token, "byte {position}");
                let value = reveal(&tokenizer, &token);
                let is_right = value == format!("{name}@example.com") || value == token.as_str();
                assert!(is_right, "byte {position}: {token} is {value}");
            }
            assert_eq!(reveal(&tokenizer, &new), "z@example.com");
        }
    }
}

#[test]
fn a_damaged_first_line_is_an_error() {
    #[track_caller]
    fn check(text: &[u8], expected: TokensError) {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(path(place.path()), text).unwrap();
        assert_eq!(try_open(place.path(), None).unwrap_err(), expected);
        assert_eq!(
            std::fs::read(path(place.path())).unwrap(),
            text,
            "left as it is"
        );
    }
    check(b"something else\n", TokensError::Damaged);
    check(b"mooring-tokens 2 x\n", TokensError::Newer(2));
    check(b"mooring-tokens 1 x plain -\n", TokensError::Damaged);
    check(
        b"mooring-tokens 1 0123456789abcdef0123456789abcdef rot13 -\n",
        TokensError::Damaged,
    );
    check(&[b'x'; 1000], TokensError::Damaged);
    check(b"\xff\n", TokensError::Damaged);
}

#[test]
fn what_is_no_file_is_an_error() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(path(place.path())).unwrap();
    let error = try_open(place.path(), None).unwrap_err();
    assert!(matches!(error, TokensError::Open(_)), "{error}");
    let link = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/etc/hostname", path(link.path())).unwrap();
    let error = try_open(link.path(), None).unwrap_err();
    assert!(matches!(error, TokensError::Open(_)), "{error}");
}

#[test]
fn a_file_that_became_shorter_lets_nothing_out() {
    let place = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(place.path());
    let hidden = tokenizer.hide_text("a@example.com").unwrap();
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(path(place.path()))
        .unwrap();
    file.set_len(10).unwrap();
    for result in [
        tokenizer.hide_text("b@example.com"),
        tokenizer.hide_text("a@example.com"),
    ] {
        assert_eq!(result.unwrap_err(), TokensError::Damaged);
    }
    let error = tokenizer.reveal_value(Value::from(hidden)).unwrap_err();
    assert_eq!(error, TokensError::Damaged);
    assert_eq!(
        tokenizer.hide_text("nothing in it").unwrap(),
        "nothing in it"
    );
}

#[test]
fn a_restart_keeps_the_map() {
    let place = tempfile::tempdir().unwrap();
    let before = tokenizer(place.path())
        .hide_text("a@example.com b@example.com")
        .unwrap();
    let after = tokenizer(place.path());
    assert_eq!(
        after.hide_text("b@example.com a@example.com").unwrap(),
        "TKN_EMAIL_000002 TKN_EMAIL_000001"
    );
    assert_eq!(reveal(&after, &before), "a@example.com b@example.com");
    assert_eq!(
        after.hide_text("c@example.com").unwrap(),
        "TKN_EMAIL_000003"
    );
}
