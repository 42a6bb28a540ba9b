//! The rate of requests of each user.

use mooring_session::names::Principal;
use mooring_usage::KeyedRates;

/// The rates of all users of this process.
pub type RequestRates = KeyedRates<Principal>;
