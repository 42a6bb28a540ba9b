//! The meaning of the figures in SESSION.STATS and INFO.
//!
//! Invariant: the section lists exactly the figures of the reply: redis-module/tests/server/metadata.rs compares them.

use super::{put, text};
use crate::failure::CODES;
use crate::figures::{FIGURES, Figure};

/// The section of the page.
pub(super) fn section(page: &mut String) {
    put(
        page,
        "\n## Figures\n\nIn INFO each has `mooring_` before its name. Counters start at zero whenever the module is \
         loaded.\n\n| figure | meaning |\n|---|---|",
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
