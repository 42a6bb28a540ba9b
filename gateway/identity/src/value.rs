//! Which values can be users, teams, roles and scopes, wherever they come from.

use mooring_session::names::Principal;

/// Longest team, role or scope in bytes.
const ITEM_BYTES_MAX: usize = 128;

/// Why a list of teams, roles or scopes is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidItems {
    /// Whether the only fault is that there are too many.
    pub(crate) are_too_many: bool,
}

/// The user of this name. The name that the gateway itself uses at servers is reserved.
pub(crate) fn principal(text: &str) -> Option<Principal> {
    if !is_printable(text) || text.trim() != text {
        return None;
    }
    let named = Principal::parse(text.as_bytes()).ok()?;
    (named != Principal::gateway()).then_some(named)
}

/// Trimmed, without empty ones and duplicates.
pub(crate) fn distinct_items<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    items_max: usize,
) -> Result<Vec<String>, InvalidItems> {
    let mut items: Vec<String> = Vec::new();
    let texts = texts.into_iter().map(str::trim);
    for item in texts.filter(|item| !item.is_empty()) {
        if !is_printable(item) || item.len() > ITEM_BYTES_MAX {
            return Err(InvalidItems {
                are_too_many: false,
            });
        }
        if items.iter().any(|other| other == item) {
            continue;
        }
        if items.len() == items_max {
            return Err(InvalidItems { are_too_many: true });
        }
        items.push(item.to_owned());
    }
    Ok(items)
}

fn is_printable(text: &str) -> bool {
    !text.chars().any(char::is_control)
}
