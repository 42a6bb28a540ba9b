//! What the figures mean that SESSION.STATS and INFO tell.
//!
//! Invariant: these are all figures and no other: redis-module/tests/server/metadata.rs compares them with the answer.

use super::{put, text};
use crate::failure::CODES;
use crate::figures::{FIGURES, Figure};

/// The section of the page.
pub(super) fn section(page: &mut String) {
    put(
        page,
        "\n## Figures\n\nIn INFO each has `mooring_` before its name. Counters begin at zero with every load of the \
         module.\n\n| figure | meaning |\n|---|---|",
    );
    for Figure { name, meaning, .. } in FIGURES {
        put(page, &format!("| `{}` | {meaning} |", text(name)));
    }
    for code in CODES {
        let name = code.to_lowercase();
        put(
            page,
            &format!("| `failures_{name}` | a command was refused with `{code}` |"),
        );
    }
}
