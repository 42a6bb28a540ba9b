//! Progress text: what an agent is doing, for people who wait.

/// Longest progress text, in bytes; a longer one is cut.
pub(super) const PROGRESS_BYTES_MAX: usize = 512;
/// Ends a truncated text; counts towards the limit.
const MORE: char = '…';

/// One line without control characters; none if nothing is left. Each run of whitespace becomes one space.
pub(super) fn line(text: &str) -> Option<String> {
    let room = PROGRESS_BYTES_MAX.saturating_sub(MORE.len_utf8());
    let mut line = String::new();
    let mut is_spaced = false;
    for character in text.trim_start().chars() {
        if character.is_whitespace() {
            is_spaced = true;
            continue;
        }
        if character.is_control() {
            continue;
        }
        let needed = character.len_utf8().saturating_add(usize::from(is_spaced));
        if line.len().saturating_add(needed) > room {
            line.push(MORE);
            break;
        }
        if std::mem::take(&mut is_spaced) {
            line.push(' ');
        }
        line.push(character);
    }
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn it_is_one_line_without_control_characters() {
        let text = " I will\r\n\tlook\u{1b}[31m at\u{0}\u{9b} it \n";
        assert_eq!(line(text).unwrap(), "I will look[31m at it");
        assert_eq!(line(" \n\u{7}\u{0} "), None);
        assert_eq!(line(""), None);
    }

    #[test]
    fn a_long_one_is_cut() {
        let long = "ä ".repeat(PROGRESS_BYTES_MAX);
        let cut = line(&long).unwrap();
        assert!(cut.len() <= PROGRESS_BYTES_MAX && cut.len() > PROGRESS_BYTES_MAX - 6);
        assert!(cut.ends_with("ä…"), "{cut}");
    }
}
