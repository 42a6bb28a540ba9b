//! What sessions cost that nobody uses at the moment: memory of the gateway and of Redis, each with 10,000
//! sessions bound to one upstream.

use anyhow::Context;
use tempfile::TempDir;

use crate::arrangement::Arrangement;
use crate::load;
use crate::upstream::Upstream;

const SESSIONS: usize = 10_000;

/// Opens the sessions one after another over one connection, and leaves them.
pub(crate) async fn measure(logs: &TempDir) -> anyhow::Result<String> {
    let upstream = Upstream::start(logs.path()).await?;
    let mut lines = vec![
        format!("### {SESSIONS} idle sessions, bound"),
        String::new(),
        "| | gateway RSS MiB before | after | Redis RSS MiB before | after |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for mut arrangement in [
        Arrangement::redis(&[upstream.port()]).await?,
        Arrangement::embedded(&[upstream.port()]).await?,
    ] {
        let (gateway_before, redis_before) = arrangement.cost()?;
        load::open_idle(&arrangement.target, SESSIONS)
            .await
            .context(arrangement.name)?;
        let (gateway, redis) = arrangement.cost()?;
        lines.push(format!(
            "| {} | {:.0} | {:.0} | {:.0} | {:.0} |",
            arrangement.name,
            gateway_before.resident_mib,
            gateway.resident_mib,
            redis_before.resident_mib,
            redis.resident_mib
        ));
    }
    Ok(lines.join("\n"))
}
