//! The value of each token of a session: an index in memory over a file on the volume, which all gateways of the
//! fleet append to.
//!
//! A value that is known is found in the index. One that is not is given the next number under the lock of the file, after
//! what others have appended in the meantime was read; so one value has one token in the whole fleet. Readers take no
//! lock: they stop at the last whole line, and whole lines are never taken back.
//!
//! A session has room for [`ENTRIES_MAX`] values of at most [`VALUE_BYTES_MAX`] bytes each and a file of [`FILE_BYTES_MAX`];
//! further values get a token that is never resolved, such as `TKN_EMAIL_OVERFLOW`.
//!
//! Invariant: the tokens that [`TokenMap::tokens_of`] returns are on the volume. An invalid line is skipped, and its
//! number is not reused.

mod error;
mod file;
mod form;
mod header;
mod index;

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use error::TokensError;

use super::key::TokenKey;
use super::token;
use file::MapFile;
use index::TokenIndex;
pub(super) use index::{PersonalValue, ValueType};

/// Most values of one session.
pub(super) const ENTRIES_MAX: u32 = 50_000;
/// Longest value.
pub(super) const VALUE_BYTES_MAX: usize = 8 * 1024;
/// Largest file of one session.
pub(super) const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The map of one session. Blocking: it reads and writes a file, and may wait for another process that does.
#[derive(Debug)]
pub(crate) struct TokenMap {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: MapFile,
    index: TokenIndex,
}

impl TokenMap {
    /// Opens the map of the session whose host directory (`<session>/.mooring`) this is; makes it where there is none. It
    /// is encrypted with the key, if there is one.
    ///
    /// # Errors
    /// [`TokensError`] names the step.
    pub(crate) fn open(directory: OwnedFd, key: Option<&TokenKey>) -> Result<Self, TokensError> {
        let mut file = MapFile::open(&directory, key)?;
        let mut index = TokenIndex::default();
        file.read_appended(&mut index)?;
        Ok(Self {
            state: Mutex::new(State { file, index }),
        })
    }

    /// The tokens of these values, in their order; those that are new are kept first.
    pub(super) fn tokens_of(&self, values: &[PersonalValue]) -> Result<Vec<String>, TokensError> {
        let mut state = self.state();
        state.refresh()?;
        if values.iter().any(|value| state.is_new(value)) {
            state.store_new(values)?;
        }
        Ok(values.iter().map(|value| state.token_of(value)).collect())
    }

    /// The values of tokens of these categories and numbers, in their order; none for one that is not known.
    pub(super) fn values_of(
        &self,
        tokens: &[(&str, u32)],
    ) -> Result<Vec<Option<PersonalValue>>, TokensError> {
        let mut state = self.state();
        state.refresh()?;
        let is_unknown = |state: &State| {
            let mut tokens = tokens.iter();
            tokens.any(|(category, number)| state.index.value(category, *number).is_none())
        };
        // A volume over a network may show an old length of the file, but not to a process that has its lock.
        if is_unknown(&state) {
            let State { file, index } = &mut *state;
            let lock = file.lock()?;
            file.read_appended(index)?;
            drop(lock);
        }
        let value =
            |(category, number): &(&str, u32)| state.index.value(category, *number).cloned();
        Ok(tokens.iter().map(value).collect())
    }

    /// A panic while the state was locked leaves the file as it was, and the index with no more than the file has.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn refresh(&mut self) -> Result<(), TokensError> {
        self.file.read_appended(&mut self.index)
    }

    /// Whether a value has no token yet and can have one.
    fn is_new(&self, value: &PersonalValue) -> bool {
        value.text.len() <= VALUE_BYTES_MAX && self.index.number(value).is_none() && self.has_room()
    }

    fn has_room(&self) -> bool {
        self.index.next_number() <= ENTRIES_MAX && self.file.length() < FILE_BYTES_MAX
    }

    /// Gives numbers to those that have none, as long as there is room, and appends them in one step.
    fn store_new(&mut self, values: &[PersonalValue]) -> Result<(), TokensError> {
        let lock = self.file.lock()?;
        self.file.read_appended(&mut self.index)?;
        if self.file.end_half_line()? {
            self.file.read_appended(&mut self.index)?;
        }
        let mut next = self.index.next_number();
        let mut appended = Vec::new();
        let mut given: HashSet<&PersonalValue> = HashSet::new();
        for value in values {
            let bytes = self.file.length() + u64::try_from(appended.len()).unwrap_or(u64::MAX);
            if next > ENTRIES_MAX || bytes >= FILE_BYTES_MAX {
                break;
            }
            if value.text.len() <= VALUE_BYTES_MAX
                && self.index.number(value).is_none()
                && given.insert(value)
            {
                appended.extend_from_slice(self.file.form().line(next, value)?.as_bytes());
                next += 1;
            }
        }
        let written = if appended.is_empty() {
            Ok(())
        } else {
            self.file.append(&appended)
        };
        drop(lock);
        written?;
        self.file.read_appended(&mut self.index)
    }

    fn token_of(&self, value: &PersonalValue) -> String {
        match self.index.number(value) {
            Some(number) => token::text(&value.category, number),
            None => token::overflow_text(&value.category),
        }
    }
}
