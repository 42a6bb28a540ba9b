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

/// Why a text is no [`Pointer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// It has no `/` in front.
    #[error("a JSON pointer begins with \"/\"")]
    NoSlash,
    /// A `~` stands for nothing.
    #[error("in a JSON pointer, \"~\" is written \"~0\", and \"/\" within a name \"~1\"")]
    Escape,
}

impl Pointer {
    /// Reads a pointer as it is written.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        if !text.is_empty() && !text.starts_with('/') {
            return Err(PointerError::NoSlash);
        }
        let mut after_escapes = text.split(ESCAPE).skip(1);
        if !after_escapes.all(|rest| rest.starts_with(['0', '1'])) {
            return Err(PointerError::Escape);
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

/// Why a text is no [`Condition`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// The expected value is missing.
    #[error("it has no \"=\" between a JSON pointer and a text")]
    NoText,
    /// What is in front of the `=` is no pointer.
    #[error(transparent)]
    Pointer(#[from] PointerError),
}

impl Condition {
    /// Reads `/pointer=text`. The first `=` divides, so the pointer has none.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let (pointer, equals) = text.split_once(EQUALS).ok_or(ConditionError::NoText)?;
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
        assert_eq!(Pointer::parse("a/b"), Err(PointerError::NoSlash));
        assert_eq!(Pointer::parse("$.a"), Err(PointerError::NoSlash));
        for text in ["/a~", "/~2", "/a~~0", "/~/b"] {
            assert_eq!(Pointer::parse(text), Err(PointerError::Escape), "{text}");
        }
    }

    #[test]
    fn the_first_equals_sign_divides_a_condition() {
        let condition = Condition::parse("/a=b=c").unwrap();
        assert_eq!(condition.pointer.as_str(), "/a");
        assert_eq!(condition.equals, "b=c");
        assert_eq!(Condition::parse("/a"), Err(ConditionError::NoText));
        assert_eq!(
            Condition::parse("a=b"),
            Err(ConditionError::Pointer(PointerError::NoSlash))
        );
    }
}
