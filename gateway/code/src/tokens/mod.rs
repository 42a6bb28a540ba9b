//! Tokens in the place of personal data: what an agent and its code see is `TKN_EMAIL_000001`, and what a tool gets is the
//! address.
//!
//! [`detect`] finds personal data in texts, [`map`] keeps the value of each token, [`Tokenizer`] puts the two
//! together for texts and for JSON, and [`TokenizingCallee`] does so for every call that code makes of a tool. Only the gateway
//! has the map, in a file that no code ever sees; it is the session's, so one session's tokens mean nothing in another.
//!
//! Invariant: where the map cannot be read or written, nothing goes out. A token that is not known is not touched, and no
//! token ever has two values.

mod detect;
mod draft;
mod key;
mod map;
mod token;
mod tokenizer;
mod tokenizing;

#[cfg(test)]
mod tests;

pub use key::{TokenKey, TokenKeyError};
pub(crate) use map::{TokenMap, TokensError};
pub(crate) use tokenizer::Tokenizer;
pub(crate) use tokenizing::{ArgumentTokenizer, TokenizingCallee};
