//! Where things stand in an agent's output: JSON pointers, and conditions that a value has to meet.
//!
//! Invariant: a pointer that exists is one of RFC 6901, so looking it up cannot fail for its form.

/// What begins the escapes of a pointer.
const ESCAPE: char = '~';
/// What stands between a condition's pointer and its text.
const EQUALS: char = '=';

/// A JSON pointer (RFC 6901): empty for the whole value, else `/` before every step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer(String);

const NO_SLASH: &str = "a JSON pointer begins with \"/\"";
const BAD_ESCAPE: &str =
    "in a JSON pointer, \"~\" is written \"~0\", and \"/\" within a name \"~1\"";

impl Pointer {
    /// Reads a pointer as it is written.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if !text.is_empty() && !text.starts_with('/') {
            return Err(NO_SLASH);
        }
        let mut after_escapes = text.split(ESCAPE).skip(1);
        if !after_escapes.all(|rest| rest.starts_with(['0', '1'])) {
            return Err(BAD_ESCAPE);
        }
        Ok(Self(text.to_owned()))
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What has to stand somewhere. Written `/item/type=agent_message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Where.
    pub pointer: Pointer,
    /// What: a text as it is, anything else as compact JSON, such as `true`.
    pub equals: String,
}

const NO_TEXT: &str = "it has no \"=\" between a JSON pointer and a text";

impl Condition {
    /// Reads `/pointer=text`. The first `=` divides, so the pointer has none.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (pointer, equals) = text.split_once(EQUALS).ok_or(NO_TEXT)?;
        Ok(Self {
            pointer: Pointer::parse(pointer)?,
            equals: equals.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn what_is_no_pointer_is_refused() {
        assert_eq!(Pointer::parse("a/b"), Err(NO_SLASH));
        assert_eq!(Pointer::parse("$.a"), Err(NO_SLASH));
        for text in ["/a~", "/~2", "/a~~0", "/~/b"] {
            assert_eq!(Pointer::parse(text), Err(BAD_ESCAPE), "{text}");
        }
    }

    #[test]
    fn the_first_equals_sign_divides_a_condition() {
        let condition = Condition::parse("/a=b=c").unwrap();
        assert_eq!(condition.pointer.as_str(), "/a");
        assert_eq!(condition.equals, "b=c");
        assert_eq!(Condition::parse("/a"), Err(NO_TEXT));
        assert_eq!(Condition::parse("a=b"), Err(NO_SLASH));
    }
}
