//! Sealed values: what the gateways keep encrypted under names of their choosing, until it is deleted.
//!
//! Invariant: no older value is ever read from memory: while the store is away, or serves from memory, there are none.

use mooring_session::Refusal;
use mooring_session::names::{NameError, Problem};

use super::{Store, on_backend};
use crate::error::StoreError;

/// Longest value in bytes.
pub const SEALED_BYTES_MAX: usize = 16 * 1024;
/// Longest name in bytes.
const NAME_BYTES_MAX: usize = 512;

impl Store {
    /// The values with these names, in their order; none for a name without a value.
    ///
    /// # Errors
    /// The store's own only.
    pub async fn get_sealed(&self, names: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        on_backend!("MGET", self.get_sealed(names))
    }

    /// Stores a value in place of any other with this name.
    ///
    /// # Errors
    /// Refused: `ERR` for a name or a value that is too long.
    pub async fn put_sealed(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        check("name", name.len(), NAME_BYTES_MAX)?;
        check("sealed value", value.len(), SEALED_BYTES_MAX)?;
        on_backend!("SET", self.put_sealed(name, value))
    }

    /// Deletes the values with these names. Returns whether there was one.
    ///
    /// # Errors
    /// The store's own only.
    pub async fn delete_sealed(&self, names: &[String]) -> Result<bool, StoreError> {
        if names.is_empty() {
            return Ok(false);
        }
        on_backend!("DEL", self.delete_sealed(names))
    }
}

fn check(what: &'static str, bytes: usize, bytes_max: usize) -> Result<(), StoreError> {
    match bytes > bytes_max {
        true => Err(StoreError::Refused(Refusal::Argument(NameError {
            what,
            problem: Problem::TooLong(bytes_max),
        }))),
        false => Ok(()),
    }
}
