//! How a run is repeated, as requests ask for it and records say it.

use serde::Serialize;
use strum::{Display, EnumString, IntoStaticStr, VariantNames};

/// How a run is repeated.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantNames,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ReplayMode {
    /// The record answers the calls.
    #[default]
    Recorded,
    /// The tools answer them, again.
    Live,
}
