//! Parts of requests that gateways make.

use std::collections::BTreeMap;

use mooring_session::names::{LabelName, LabelValue, NameError, Token};

/// A random token, which nothing else has.
///
/// # Errors
/// Never in practice: thirty-two hex digits are a valid token.
pub fn fresh_token() -> Result<Token, NameError> {
    Token::parse(format!("{:032x}", rand::random::<u128>()).as_bytes())
}

/// Labels from pairs. A pair that is out of the limits of a label is left out: labels are a convenience.
pub fn labels(pairs: &[(&[u8], &str)]) -> BTreeMap<LabelName, LabelValue> {
    pairs
        .iter()
        .filter_map(|(name, value)| {
            let name = LabelName::parse(name).ok()?;
            let value = LabelValue::parse(value.as_bytes()).ok()?;
            Some((name, value))
        })
        .collect()
}
