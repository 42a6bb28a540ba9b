//! What was served before a reload.

use crate::http::App;
use mooring_settings::Settings;

/// The state before a reload, and the settings that it was built from.
pub(super) struct PreviousApp<'a> {
    pub(super) settings: &'a Settings,
    pub(super) app: &'a App,
}

/// What `previous` has, if none of the settings that it follows from have changed.
pub(super) fn unchanged<T, S: PartialEq>(
    settings: &Settings,
    previous: Option<&PreviousApp<'_>>,
    part_of: impl FnOnce(&App) -> T,
    inputs: impl Fn(&Settings) -> S,
) -> Option<T> {
    let previous = previous?;
    (inputs(previous.settings) == inputs(settings)).then(|| part_of(previous.app))
}
