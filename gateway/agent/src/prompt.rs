//! The prompt of a program: one argument.

/// Longest prompt in bytes. Linux limits any single argument to less than 128 KiB (`MAX_ARG_STRLEN`), whatever the
/// total; the rest is for the text that a template puts around the prompt in the same argument.
pub const PROMPT_BYTES_MAX: usize = 100 * 1024;

/// Why a text is not a valid prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// Nothing is asked for.
    #[error("the prompt is empty")]
    Empty,
    /// It is too long for an argument.
    #[error("the prompt has {bytes} bytes; at most {PROMPT_BYTES_MAX} are passed on")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// An argument cannot contain NUL.
    #[error("the prompt contains a NUL character")]
    Nul,
}

/// Checks that a program can get this prompt unchanged.
///
/// # Errors
/// It cannot.
pub fn check_prompt(prompt: &str) -> Result<(), PromptError> {
    let bytes = prompt.len();
    if prompt.trim().is_empty() {
        Err(PromptError::Empty)
    } else if bytes > PROMPT_BYTES_MAX {
        Err(PromptError::TooLong { bytes })
    } else if prompt.contains('\0') {
        Err(PromptError::Nul)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_something_that_fits_one_argument() {
        let longest = "x".repeat(PROMPT_BYTES_MAX);
        assert_eq!(check_prompt("a\n\"b\" $(c) -- ä"), Ok(()));
        assert_eq!(check_prompt(&longest), Ok(()));
        let bytes = PROMPT_BYTES_MAX + 1;
        assert_eq!(
            check_prompt(&format!("{longest}x")),
            Err(PromptError::TooLong { bytes })
        );
        assert_eq!(check_prompt(" \n"), Err(PromptError::Empty));
        assert_eq!(check_prompt("a\0b"), Err(PromptError::Nul));
    }
}
