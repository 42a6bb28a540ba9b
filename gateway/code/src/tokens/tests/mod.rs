//! Tokens from end to end: what is found, what comes back, and what is left of the map when processes die.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod bounds;
mod calls;
mod damage;
mod finding;
mod keys;
mod processes;
mod round_trips;

use std::os::fd::OwnedFd;
use std::path::Path;

use regex::Regex;
use serde_json::Value;

use super::*;
use mooring_settings::{PersonalDataType, TokenizationSettings};

/// Every type, and a pattern.
fn everything() -> TokenizationSettings {
    TokenizationSettings {
        types: PersonalDataType::ALL.to_vec(),
        patterns: vec![(
            "IBAN".to_owned(),
            Regex::new(r"\bDE[0-9]{20}\b").unwrap().into(),
        )],
    }
}

fn directory(path: &Path) -> OwnedFd {
    std::fs::File::open(path).unwrap().into()
}

fn try_open(path: &Path, key: Option<&TokenKey>) -> Result<TokenMap, TokensError> {
    TokenMap::open(directory(path), key)
}

/// A gateway's tokens for the session whose host directory this is.
#[track_caller]
fn tokenizer(path: &Path) -> Tokenizer {
    Tokenizer::new(everything(), try_open(path, None).unwrap())
}

#[track_caller]
fn reveal(tokenizer: &Tokenizer, text: &str) -> Value {
    tokenizer.reveal_value(Value::from(text)).unwrap()
}
