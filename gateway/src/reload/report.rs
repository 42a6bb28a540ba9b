//! What a reload has done: the same in the log, at the command line and over HTTP.

use std::fmt;

use mooring_settings::{ServerId, SettingsChanges};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a reload has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct ReloadReport {
    /// The ids of servers that are new.
    pub servers_added: Vec<String>,
    /// The ids of servers that are defined otherwise than before.
    pub servers_changed: Vec<String>,
    /// The ids of servers that are no longer served. Their sessions end.
    pub servers_removed: Vec<String>,
    /// The keys of changed settings that are applied.
    pub settings_applied: Vec<String>,
    /// The keys of changed settings that need a restart.
    pub settings_need_restart: Vec<String>,
    /// Remarks on the settings, as sentences.
    pub remarks: Vec<String>,
}

/// Why a reload has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    /// The settings, or the files that they name, cannot be used; every problem.
    #[error("settings not reloaded, and nothing was changed: {}", .0.join("\n"))]
    Refused(Vec<String>),
    /// The gateway stops.
    #[error("settings not reloaded: the gateway is stopping")]
    Stopping,
}

impl ReloadReport {
    /// The report of these changes.
    #[must_use]
    pub fn new(changes: &SettingsChanges, remarks: Vec<String>) -> Self {
        let ids = |ids: &[ServerId]| ids.iter().map(|id| id.as_str().to_owned()).collect();
        Self {
            servers_added: ids(&changes.servers_added),
            servers_changed: ids(&changes.servers_changed),
            servers_removed: ids(&changes.servers_removed),
            settings_applied: changes.applied.clone(),
            settings_need_restart: changes.needs_restart.clone(),
            remarks,
        }
    }

    /// Writes it to the log.
    pub(crate) fn log(&self) {
        for remark in &self.remarks {
            tracing::warn!("{remark}");
        }
        let list = |items: &[String]| items.join(", ");
        tracing::info!(
            servers_added = list(&self.servers_added),
            servers_changed = list(&self.servers_changed),
            servers_removed = list(&self.servers_removed),
            settings_applied = list(&self.settings_applied),
            "settings reloaded"
        );
        if !self.settings_need_restart.is_empty() {
            let settings = list(&self.settings_need_restart);
            tracing::warn!(settings, "changed settings need a restart");
        }
    }
}

impl fmt::Display for ReloadReport {
    /// One line for each kind of change.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = [
            ("servers added", &self.servers_added),
            ("servers changed", &self.servers_changed),
            ("servers removed", &self.servers_removed),
            ("settings applied", &self.settings_applied),
            ("settings that need a restart", &self.settings_need_restart),
        ];
        for (what, items) in lines {
            if !items.is_empty() {
                writeln!(formatter, "{what}: {}", items.join(", "))?;
            }
        }
        if lines.iter().all(|(_, items)| items.is_empty()) {
            writeln!(formatter, "nothing has changed")?;
        }
        for remark in &self.remarks {
            writeln!(formatter, "remark: {remark}")?;
        }
        Ok(())
    }
}
