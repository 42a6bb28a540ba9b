//! Text that is truncated at a limit of bytes.

/// The start of a text, at most `bytes_max` bytes.
#[derive(Debug)]
pub(super) struct TruncatedText {
    text: String,
    bytes_max: usize,
    is_cut: bool,
}

impl TruncatedText {
    /// An empty text with this limit.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            text: String::new(),
            bytes_max,
            is_cut: false,
        }
    }

    /// Appends as much as fits, in whole characters. Once truncated, nothing is appended.
    pub(super) fn push(&mut self, text: &str) {
        if self.is_cut {
            return;
        }
        let room = self.bytes_max.saturating_sub(self.text.len());
        let end = text.floor_char_boundary(room);
        self.text.push_str(text.get(..end).unwrap_or_default());
        self.is_cut = end < text.len();
    }

    /// Clears the text.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.bytes_max);
    }

    /// Whether it is empty and nothing was truncated.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && !self.is_cut
    }

    /// The text, and whether it was truncated.
    pub(super) fn into_text(self) -> (String, bool) {
        (self.text, self.is_cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        #[track_caller]
        fn check(bytes_max: usize, texts: &[&str], expected: &str, is_cut: bool) {
            let mut kept = TruncatedText::new(bytes_max);
            for text in texts {
                kept.push(text);
            }
            assert_eq!(kept.into_text(), (expected.to_owned(), is_cut));
        }
        check(4, &["ab", "cd"], "abcd", false);
        check(4, &["abcd", ""], "abcd", false);
        check(4, &["abcdä"], "abcd", true);
        check(4, &["abcä"], "abc", true);
        check(4, &["abcä", "d"], "abc", true);
        check(0, &["a"], "", true);
    }
}
