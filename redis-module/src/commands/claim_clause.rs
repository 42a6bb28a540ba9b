//! What BIND and REBIND say alike of the claim they ask for: `LEASE ms INSTANCES n instance... [OWNED]`, its parts in any
//! order and among the options of the command's own.

use mooring_session::names::InstanceName;
use mooring_session::rules::Ownership;
use mooring_session::time::Millis;

use crate::arguments::{OptionWord, Parser, Words, required};
use crate::failure::Failure;
use crate::registrar::ArgumentSpec;

/// One part of the clause.
#[derive(Clone, Copy)]
pub(super) enum Part {
    /// How long the claim holds.
    Lease,
    /// Where it may go.
    Instances,
    /// Only the caller can drive it.
    Owned,
}

impl Part {
    /// The word that the part begins with, among the options of a command that calls it `meaning`.
    pub(super) const fn option<T: Copy>(self, meaning: T) -> OptionWord<T> {
        let word = match self {
            Self::Lease => "LEASE",
            Self::Instances => "INSTANCES",
            Self::Owned => "OWNED",
        };
        OptionWord::once(word, meaning)
    }
}

/// The lease, for COMMAND DOCS.
pub(super) const LEASE: ArgumentSpec = ArgumentSpec::integer(c"ms").after(c"LEASE");
/// The instances.
pub(super) const INSTANCES: ArgumentSpec = ArgumentSpec::block(
    c"candidates",
    c"INSTANCES",
    &[
        ArgumentSpec::integer(c"n"),
        ArgumentSpec::text(c"instance").multiple(),
    ],
);
/// The word for ownership.
pub(super) const OWNED: ArgumentSpec = ArgumentSpec::word(c"owned", c"OWNED");

/// The clause as far as it was read.
pub(super) struct ClaimClause {
    lease: Option<Millis>,
    instances: Option<Vec<InstanceName>>,
    ownership: Ownership,
}

impl ClaimClause {
    /// Nothing was read.
    pub(super) const fn new() -> Self {
        Self {
            lease: None,
            instances: None,
            ownership: Ownership::Shared,
        }
    }

    /// Reads what follows the word of one part.
    pub(super) fn take<'a>(
        &mut self,
        part: Part,
        words: &mut Parser<impl Words<'a>>,
    ) -> Result<(), Failure> {
        match part {
            Part::Lease => self.lease = Some(words.lease()?),
            Part::Instances => self.instances = Some(words.instances()?),
            Part::Owned => self.ownership = Ownership::Owned,
        }
        Ok(())
    }

    /// The whole clause.
    ///
    /// # Errors
    /// `ERR` where the lease or the instances are missing.
    pub(super) fn whole(self) -> Result<(Millis, Vec<InstanceName>, Ownership), Failure> {
        let lease = required("LEASE", self.lease)?;
        let instances = required("INSTANCES", self.instances)?;
        Ok((lease, instances, self.ownership))
    }
}
