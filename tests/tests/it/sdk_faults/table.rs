//! The table of `docs/compatibility.md`: what the users of each client see of each fault.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, ensure};
use mooring_tests::paths;

use super::outcome::{Cell, Sign, signs_in};
use super::scene::Fault;

/// The cell for a fault that does not meet a kind of server.
const NO_CELL: &str = "-";

/// What was seen, by client and kind of server, then by the fault's title.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeMap<(String, &'static str), BTreeMap<&'static str, BTreeSet<Sign>>>);

impl Seen {
    pub(super) fn insert(
        &mut self,
        client: &str,
        kind: &'static str,
        fault: Fault,
        signs: BTreeSet<Sign>,
    ) {
        let row = self.0.entry((client.to_owned(), kind)).or_default();
        row.insert(fault.title(), signs);
    }

    /// As the page has it.
    pub(super) fn table(&self) -> String {
        let titles = Fault::ALL.map(Fault::title);
        let mut table = format!(
            "| client | server | {} |\n|{}\n",
            titles.join(" | "),
            "---|".repeat(titles.len() + 2)
        );
        for ((client, kind), row) in &self.0 {
            let cells = titles.map(|title| match row.get(title) {
                Some(signs) => Cell(signs).to_string(),
                None => NO_CELL.to_owned(),
            });
            let _ = writeln!(table, "| {client} | {kind} | {} |", cells.join(" | "));
        }
        table
    }

    /// Nothing was seen that the page does not say. A client between two calls may see less than the page says.
    pub(super) fn compare_with_page(&self) -> anyhow::Result<()> {
        let page = paths::workspace().join("docs/compatibility.md");
        let page = std::fs::read_to_string(&page).with_context(|| page.display().to_string())?;
        let rows: Vec<Vec<&str>> = (page.lines())
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        let mut wrong = Vec::new();
        for ((client, kind), row) in &self.0 {
            let said = (rows.iter())
                .find(|cells| cells.first() == Some(&&**client) && cells.get(1) == Some(kind));
            for (column, fault) in Fault::ALL.into_iter().enumerate() {
                let Some(seen) = row.get(fault.title()) else {
                    continue;
                };
                let cell = said.and_then(|cells| cells.get(column + 2));
                if !cell.is_some_and(|cell| seen.is_subset(&signs_in(cell))) {
                    let seen = Cell(seen);
                    wrong.push(format!(
                        "{} of {client} at {kind}: {seen}, not {cell:?}",
                        fault.title()
                    ));
                }
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }
}
