//! What was served before a reload.

use crate::http::App;
use mooring_settings::Settings;

/// The state before a reload, and the settings that it was built from.
pub(super) struct PreviousApp<'a> {
    pub(super) settings: &'a Settings,
    pub(super) app: &'a App,
}
