//! Counts over the file, by its columns.

use mooring_session::Liveness as _;
use mooring_session::names::WorkerId;
use rusqlite::params;

use super::EmbeddedStore;
use super::database::Database;
use super::failure::TransactionError;
use super::row::stored_number;
use crate::error::StoreError;
use crate::key::Family;
use crate::session_counts::{InstanceCount, OwnerCount, SessionCounts};

/// Rows of active sessions whose keys are between two texts.
const ACTIVE: &str = "s.key >= ?1 AND s.key < ?2 AND s.lifecycle = 'active' AND s.over_at > ?3";

impl EmbeddedStore {
    pub(crate) async fn count(&self, family: Family) -> Result<Option<SessionCounts>, StoreError> {
        let head = family.head(&self.prefix);
        self.with_repair(move |database| database.count(family, &head))
            .await
            .map(Some)
    }
}

impl Database {
    fn count(&mut self, family: Family, head: &str) -> Result<SessionCounts, TransactionError> {
        let transaction = self.connection.transaction()?;
        self.known_workers.refresh(&transaction, &self.clock)?;
        let now = stored_number(self.clock.now().unix_ms());
        // A head ends with a colon, and this is the first text after all that begin with it.
        let end = format!("{};", head.strip_suffix(':').unwrap_or(head));
        let server = match family {
            Family::Mcp => "''",
            // Up to the first colon after the head.
            Family::Code | Family::Agent => {
                "substr(s.key, length(?1) + 1, instr(substr(s.key, length(?1) + 1), ':') - 1)"
            }
        };
        let mut counts = SessionCounts {
            complete: true,
            ..SessionCounts::default()
        };
        let sql = format!("SELECT {server}, COUNT(*) FROM sessions s WHERE {ACTIVE} GROUP BY 1");
        let mut statement = transaction.prepare_cached(&sql)?;
        let mut rows = statement.query(params![head, end, now])?;
        while let Some(row) = rows.next()? {
            let server: String = row.get(0)?;
            counts.active.push((server.into(), number(row.get(1)?)));
        }
        let sql = format!(
            "SELECT b.server, b.instance, COUNT(*) FROM sessions s JOIN bindings b ON b.key = s.key WHERE {ACTIVE} \
             GROUP BY 1, 2"
        );
        let mut statement = transaction.prepare_cached(&sql)?;
        let mut rows = statement.query(params![head, end, now])?;
        while let Some(row) = rows.next()? {
            let (server, instance): (String, String) = (row.get(0)?, row.get(1)?);
            counts.instances.push(InstanceCount {
                server: server.into(),
                instance: instance.into(),
                bindings: number(row.get(2)?),
            });
        }
        let sql = format!(
            "SELECT b.owner, COUNT(*) FROM sessions s JOIN bindings b ON b.key = s.key WHERE {ACTIVE} \
             AND b.owner IS NOT NULL GROUP BY 1"
        );
        let mut statement = transaction.prepare_cached(&sql)?;
        let mut rows = statement.query(params![head, end, now])?;
        let workers = self.known_workers.workers.at(self.clock.mono());
        while let Some(row) = rows.next()? {
            let owner: String = row.get(0)?;
            let Ok(worker) = WorkerId::parse(owner.as_bytes()) else {
                continue;
            };
            counts.owners.push(OwnerCount {
                alive: workers.is_alive(worker.as_str()),
                worker,
                bindings: number(row.get(1)?),
            });
        }
        Ok(counts)
    }
}

fn number(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}
