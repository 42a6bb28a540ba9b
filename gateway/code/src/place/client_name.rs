//! The name by which a client asks for a session of its own, where `code.session_by` is `client`.
//!
//! Invariant: it has no dot, colon or slash, so that a key and the material of an id are read in one way only.

/// The name of a client, so that the agents of one user do not share files: 1 to 32 letters, digits, `_` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientName(Box<str>);

/// Most bytes of a name.
const BYTES_MAX: usize = 32;

/// Why a text is no name of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header Mooring-Client has to be 1 to {BYTES_MAX} letters, digits, _ and -")]
pub struct ClientNameError;

impl ClientName {
    /// The HTTP header that has it.
    pub const HEADER: &str = "mooring-client";

    /// The name that these bytes are.
    ///
    /// # Errors
    /// It is empty, too long, or has another byte.
    pub fn parse(bytes: &[u8]) -> Result<Self, ClientNameError> {
        let is_known = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
        match std::str::from_utf8(bytes) {
            Ok(name) if (1..=BYTES_MAX).contains(&name.len()) && bytes.iter().all(is_known) => {
                Ok(Self(name.into()))
            }
            _ => Err(ClientNameError),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
