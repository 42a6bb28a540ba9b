//! The directories in texts for models: those that the policy allows to read and write, and no others.
//!
//! Invariant: a path that is named here is one that the sandbox and the file tools allow to use so.

use mooring_sandbox::tree::{Mount, TreeAccess, VirtualPath};

/// The directories of a policy, in words.
pub(super) struct DirectoryWords {
    writable: Vec<String>,
    read_only: Vec<String>,
    denied: Vec<String>,
    is_whole: bool,
}

impl DirectoryWords {
    pub(super) fn of(access: &TreeAccess) -> Self {
        let shown = |paths: &[VirtualPath]| paths.iter().map(VirtualPath::to_string).collect();
        Self {
            writable: shown(&access.writable()),
            read_only: shown(&access.read_only()),
            denied: shown(access.denied()),
            is_whole: access.is_whole(),
        }
    }

    /// All of them, as a sentence of the instructions.
    pub(super) fn sentence(&self) -> String {
        if self.is_whole {
            return "Directories: /scratch for work and /results for what should be found later (both yours, read and \
                    write), /tools and /skills (read-only)."
                .to_owned();
        }
        let mut parts = Vec::new();
        if !self.writable.is_empty() {
            parts.push(format!(
                "{} (yours, read and write)",
                listed(&self.writable, "and")
            ));
        }
        if !self.read_only.is_empty() {
            parts.push(format!("{} (read-only)", listed(&self.read_only, "and")));
        }
        let denied = match self.denied.as_slice() {
            [] => String::new(),
            denied => format!("; nothing in {} can be used", listed(denied, "or")),
        };
        format!("Directories: {}{denied}.", parts.join(", "))
    }

    /// Where files are kept for later calls.
    pub(super) fn kept_in(&self) -> Option<String> {
        (!self.writable.is_empty()).then(|| listed(&self.writable, "and"))
    }

    /// The advice for work that takes longer than a run may.
    pub(super) fn advice_to_split(&self) -> String {
        match self.writable.first() {
            Some(path) => format!("split the work, and keep what is done in {path}"),
            None => "split the work".to_owned(),
        }
    }

    /// What can be written to: one of these.
    pub(super) fn written_to(&self) -> Option<String> {
        (!self.writable.is_empty()).then(|| listed(&self.writable, "or"))
    }

    /// What can be listed: one of these.
    pub(super) fn browsed(&self) -> String {
        let parts = [(&self.writable, "yours"), (&self.read_only, "read-only")];
        let parts = parts.into_iter().filter(|(paths, _)| !paths.is_empty());
        let parts = parts.map(|(paths, what)| format!("of {} ({what})", listed(paths, "or")));
        parts.collect::<Vec<_>>().join(", or ")
    }
}

/// The sentence about other servers' tools in `/tools`, empty if none is readable; `imports` is an example.
pub(super) fn tools_sentence(access: &TreeAccess, imports: &str) -> String {
    if !access.leads_to_readable(&VirtualPath::of(Mount::Tools)) {
        return String::new();
    }
    let catalog = match VirtualPath::parse("/tools/_catalog.json") {
        Ok(path) if access.allows_reading(&path) => " or in /tools/_catalog.json",
        _ => "",
    };
    format!(
        " /tools has the tools of other servers as functions: find them by tool_search{catalog}, and call them from code, \
         such as {imports}. What they return need not be printed: filter and combine it there."
    )
}

/// "a, b and c".
fn listed(paths: &[String], last: &str) -> String {
    match paths {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn access(lists: [&[&str]; 3]) -> TreeAccess {
        let [readable, writable, denied] = lists.map(|paths| {
            let parsed = paths.iter().map(|path| VirtualPath::parse(path).unwrap());
            parsed.collect::<Vec<_>>()
        });
        TreeAccess::new(&readable, &writable, &denied)
    }

    #[test]
    fn whole_trees_are_described_as_they_are() {
        let words = DirectoryWords::of(&TreeAccess::WHOLE);
        assert_eq!(words.kept_in().unwrap(), "/scratch and /results");
        assert_eq!(words.written_to().unwrap(), "/scratch or /results");
        assert_eq!(
            words.browsed(),
            "of /scratch or /results (yours), or of /skills or /tools (read-only)"
        );
        let tools = tools_sentence(&TreeAccess::WHOLE, "x");
        assert!(tools.contains("or in /tools/_catalog.json"), "{tools}");
    }

    #[test]
    fn what_is_withheld_is_not_described() {
        let trees = ["/scratch", "/tools/github"];
        let narrow = access([&trees, &["/scratch/out", "/results"], &["/scratch/private"]]);
        let words = DirectoryWords::of(&narrow);
        assert_eq!(
            words.sentence(),
            "Directories: /scratch/out (yours, read and write), /scratch and /tools/github (read-only); nothing in \
             /scratch/private can be used."
        );
        assert_eq!(
            words.advice_to_split(),
            "split the work, and keep what is done in /scratch/out"
        );
        let tools = tools_sentence(&narrow, "x");
        assert!(!tools.is_empty() && !tools.contains("_catalog"), "{tools}");
    }

    #[test]
    fn where_nothing_can_be_written_nothing_is_kept() {
        let narrow = access([&["/scratch"], &[], &[]]);
        let words = DirectoryWords::of(&narrow);
        assert_eq!(words.sentence(), "Directories: /scratch (read-only).");
        assert_eq!((words.kept_in(), words.written_to()), (None, None));
        assert_eq!(words.advice_to_split(), "split the work");
        assert_eq!(words.browsed(), "of /scratch (read-only)");
        assert_eq!(tools_sentence(&narrow, "x"), "");
    }
}
