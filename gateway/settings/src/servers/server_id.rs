//! The names of servers.

use std::fmt;

use crate::reader::Reason;

/// The id of the default server, which exists if no server is configured.
const STANDARD_ID: &str = "sandbox";

/// The name of a server: 1 to 60 bytes of `[A-Za-z0-9._-]`, first a letter or digit, without `__`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(String);

impl ServerId {
    /// The id of the default server.
    pub(super) fn standard() -> Self {
        Self(STANDARD_ID.to_owned())
    }

    pub(super) fn parse(text: &str) -> Result<Self, Reason> {
        let known = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        if text.contains("__") {
            return Err(
                "\"__\" separates a server from its tool in a group's tool names".to_owned(),
            );
        }
        if !text.starts_with(|first: char| first.is_ascii_alphanumeric())
            || !text.chars().all(known)
        {
            return Err(String::new());
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
