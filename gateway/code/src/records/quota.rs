//! How many bytes records take: of a server, and of each of its users.
//!
//! Invariant: what is counted of a finished run is counted once, and remembered: its record does not change any more.

use std::collections::{BTreeMap, HashMap};
use std::io;

use super::id::{RunId, name_mark};
use super::list;
use crate::volume::Area;

/// The size and the owner of a finished run's record.
#[derive(Clone, Debug)]
pub(super) struct RecordSize {
    user: Box<str>,
    bytes: u64,
}

/// The sizes of a server's finished runs, kept from one pass to the next.
pub(super) type RecordSizes = BTreeMap<RunId, RecordSize>;

/// The records counted so far in a pass, which goes from the newest to the oldest.
#[derive(Debug)]
pub(super) struct QuotaCount {
    bytes_max: u64,
    user_bytes_max: u64,
    bytes: u64,
    bytes_of: HashMap<Box<str>, u64>,
    known: RecordSizes,
    seen: RecordSizes,
}

impl QuotaCount {
    pub(super) fn new(bytes_max: u64, user_bytes_max: u64, known: RecordSizes) -> Self {
        Self {
            bytes_max,
            user_bytes_max,
            bytes: 0,
            bytes_of: HashMap::new(),
            known,
            seen: RecordSizes::new(),
        }
    }

    /// Counts the record of one run. Says whether the newer ones had taken all that its server or its user may have: so
    /// the newest record stays, however large it is.
    pub(super) fn is_used_up(
        &mut self,
        area: &Area,
        id: &RunId,
        files: &[String],
        has_ended: bool,
    ) -> io::Result<bool> {
        let size = match self.known.remove(id) {
            Some(size) => size,
            None => measure_record(area, id, files)?,
        };
        let of_user = self.bytes_of.entry(size.user.clone()).or_default();
        let is_used_up = self.bytes >= self.bytes_max || *of_user >= self.user_bytes_max;
        *of_user = of_user.saturating_add(size.bytes);
        self.bytes = self.bytes.saturating_add(size.bytes);
        if has_ended {
            self.seen.insert(id.clone(), size);
        }
        Ok(is_used_up)
    }

    /// The sizes to keep. A complete pass has seen every record that is left.
    pub(super) fn into_sizes(mut self, is_whole_pass: bool) -> RecordSizes {
        if !is_whole_pass {
            self.seen.append(&mut self.known);
        }
        self.seen
    }
}

fn measure_record(area: &Area, id: &RunId, files: &[String]) -> io::Result<RecordSize> {
    let day = id.day();
    let mut bytes = 0_u64;
    for file in files {
        // Pruned meanwhile by another gateway.
        let length = area.length(&format!("{day}/{file}"))?.unwrap_or(0);
        bytes = bytes.saturating_add(length);
    }
    // What cannot be read has no user, and counts for the server.
    let user = list::read_start(area, id).map_or_else(|_| String::new(), |begun| begun.user_email);
    Ok(RecordSize {
        user: name_mark(&user).into(),
        bytes,
    })
}
