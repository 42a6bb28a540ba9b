//! What may be handed to a program as its prompt: one argument.

/// Longest prompt, in bytes. Linux refuses a program any single argument of 128 KiB or more (`MAX_ARG_STRLEN`), however
/// little else it is given; the rest of that is for what a template writes around the prompt in the same argument.
pub const PROMPT_BYTES_MAX: usize = 100 * 1024;

/// Why a text cannot be a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PromptError {
    /// Nothing is asked for.
    #[error("the prompt is empty")]
    Empty,
    /// No program can be given it.
    #[error("the prompt has {bytes} bytes; at most {PROMPT_BYTES_MAX} are passed on")]
    TooLong {
        /// How many it has.
        bytes: usize,
    },
    /// An argument ends there.
    #[error("the prompt contains a NUL character")]
    Nul,
}

/// Whether a program can be given this prompt, whole and as it is.
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
