//! Histories as lists of Redis, `<prefix>session_history:<digest>`, with expiry. A stream of as few entries would take ten
//! times the memory: its first node alone has 4 KiB.

use futures_util::future::try_join;
use mooring_session::time::Millis;
use redis::{Cmd, Value};

use super::failure::invalid_reply;
use super::reply::{Problem, text};
use super::{RedisStore, Resend};
use crate::error::StoreError;
use crate::history::HistoryWrite;

impl RedisStore {
    /// Room is made before, so that a user who may not do that adds nothing. The rest leaves in one write.
    pub(crate) async fn append_history(&self, write: &HistoryWrite) -> Result<(), StoreError> {
        let key = self.history_key(&write.session);
        let mut trim = redis::cmd("LTRIM");
        trim.arg(&key);
        match write.entries_max.saturating_sub(write.entries.len()) {
            // Keeps none.
            0 => trim.arg((1, 0)),
            kept => trim.arg((format!("-{kept}"), -1)),
        };
        self.send(&trim, "LTRIM", Resend::Once).await?;
        let mut add = redis::cmd("RPUSH");
        add.arg(&key).arg(&write.entries);
        let expire = expiry(&key, write.keep);
        // A repetition would add the entries twice.
        let adding = self.send(&add, "RPUSH", Resend::Never);
        let expiring = self.send(&expire, "PEXPIRE", Resend::Never);
        try_join(adding, expiring).await.map(drop)
    }

    pub(crate) async fn read_history(&self, session: &str) -> Result<Vec<String>, StoreError> {
        let mut command = redis::cmd("LRANGE");
        command.arg((self.history_key(session), "0", "-1"));
        let value = self.send(&command, "LRANGE", Resend::Once).await?;
        entries(value).map_err(invalid_reply("LRANGE"))
    }

    pub(crate) async fn renew_history(
        &self,
        session: &str,
        keep: Millis,
    ) -> Result<(), StoreError> {
        let command = expiry(&self.history_key(session), keep);
        self.send(&command, "PEXPIRE", Resend::Once).await.map(drop)
    }

    fn history_key(&self, session: &str) -> String {
        format!("{}session_history:{session}", self.prefix)
    }
}

fn expiry(key: &str, keep: Millis) -> Cmd {
    let mut command = redis::cmd("PEXPIRE");
    command.arg((key, keep.get()));
    command
}

/// Parses the reply of LRANGE.
fn entries(reply: Value) -> Result<Vec<String>, Problem> {
    let values = reply.into_sequence();
    let values = values.map_err(|_| "it is no list".to_owned())?;
    Ok(values.iter().filter_map(text).map(str::to_owned).collect())
}
