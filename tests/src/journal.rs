//! The file that fixtures write to as things happen, whichever process they are: the order of its lines is the order
//! of the events.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::wait;

/// What happened.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A process has started.
    Started,
    /// It has answered an `initialize`.
    Initialized,
    /// A call of `slow` or `hang` began.
    Begin,
    /// It came to its end.
    End,
    /// Its client withdrew it.
    Cancelled,
    /// The process exited by itself. A killed one cannot report that.
    Stopped,
}

/// One line.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Entry {
    /// What happened.
    pub event: Event,
    /// The name of the instance.
    pub instance: String,
    /// Its process id.
    pub pid: u32,
    /// The session, as its transport names it.
    pub session: Option<String>,
    /// The `token` that the caller gave the call.
    pub token: Option<String>,
}

/// A journal in a temporary directory.
#[derive(Debug)]
pub struct Journal {
    directory: TempDir,
}

impl Journal {
    /// A new one, empty.
    pub fn new() -> anyhow::Result<Self> {
        let directory = TempDir::with_prefix("mooring-journal-").context("make a directory")?;
        Ok(Self { directory })
    }

    /// The file, for the argument `--journal` of a fixture.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("journal")
    }

    /// Everything so far, in order.
    pub fn entries(&self) -> anyhow::Result<Vec<Entry>> {
        read(&self.path())
    }

    /// The entries of one kind so far, in order.
    pub fn of(&self, event: Event) -> anyhow::Result<Vec<Entry>> {
        let mut entries = self.entries()?;
        entries.retain(|entry| entry.event == event);
        Ok(entries)
    }

    /// The tokens of the entries of one kind so far, in order.
    pub fn tokens_of(&self, event: Event) -> anyhow::Result<Vec<String>> {
        let entries = self.of(event)?;
        Ok(entries
            .into_iter()
            .filter_map(|entry| entry.token)
            .collect())
    }

    /// Waits until there are at least `count` entries of one kind; these, in order.
    pub async fn wait_for(
        &self,
        event: Event,
        count: usize,
        limit: Duration,
    ) -> anyhow::Result<Vec<Entry>> {
        let what = format!("{count} times {event:?} in the journal");
        let waited = wait::until(&what, limit, async || {
            let entries = self.of(event)?;
            Ok((entries.len() >= count).then_some(entries))
        });
        waited
            .await
            .with_context(|| format!("{:?}", self.entries().unwrap_or_default()))
    }

    /// The most calls that ran at the same time so far, by the order of their begins and ends.
    pub fn overlap_max(&self) -> anyhow::Result<usize> {
        Ok(overlap_max(&self.entries()?))
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<Entry>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).context("read the journal"),
    };
    text.lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("read {line}")))
        .collect()
}

fn overlap_max(entries: &[Entry]) -> usize {
    let mut running = 0_usize;
    let mut most = 0;
    for entry in entries {
        match entry.event {
            Event::Begin => running += 1,
            Event::End | Event::Cancelled => running = running.saturating_sub(1),
            Event::Started | Event::Initialized | Event::Stopped => {}
        }
        most = most.max(running);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::{Entry, Event, overlap_max};

    #[test]
    fn calls_overlap_where_one_begins_before_another_ends() {
        let check = |events: &[Event], most| {
            let entries: Vec<Entry> = events
                .iter()
                .map(|event| Entry {
                    event: *event,
                    instance: "a".to_owned(),
                    pid: 1,
                    session: None,
                    token: None,
                })
                .collect();
            assert_eq!(overlap_max(&entries), most, "{events:?}");
        };
        check(&[Event::Started, Event::Initialized, Event::Stopped], 0);
        check(
            &[Event::Begin, Event::End, Event::Begin, Event::Cancelled],
            1,
        );
        check(&[Event::Begin, Event::Begin, Event::End, Event::End], 2);
        check(&[Event::Begin, Event::End, Event::Begin, Event::Begin], 2);
    }
}
