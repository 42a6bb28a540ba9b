//! `mooring reload`

use super::gateway::Gateway;
use super::output::{ClientError, CommandOutput, printed};
use super::table::printable;
use crate::reload::ReloadReport;

pub(super) async fn run(gateway: &Gateway, is_json: bool) -> Result<CommandOutput, ClientError> {
    let report = gateway.post_root("admin/reload").await?;
    Ok(printed(&report, is_json, |report| {
        let report: ReloadReport = serde_json::from_value(report.clone()).unwrap_or_default();
        // A later gateway may report what this command does not know. Names are as untrusted as the gateway.
        let lines = report.to_string();
        let lines: Vec<String> = lines.lines().map(printable).collect();
        lines.join("\n") + "\n"
    }))
}
