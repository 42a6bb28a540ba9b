//! The RATE command.

use mooring_session::rules::RateRequest;
use mooring_session::time::Millis;
use redis::Value;

use super::failure::invalid_reply;
use super::reply::{Fields, Problem};
use super::{RedisStore, Resend};
use crate::error::StoreError;
use crate::rate::RateReply;

impl RedisStore {
    /// The same, which nothing replaces.
    pub(crate) async fn rate_shared(
        &self,
        name: &str,
        request: &RateRequest,
    ) -> Result<RateReply, StoreError> {
        self.rate(name, request).await
    }

    /// The key is `<prefix>rate:<name>`.
    pub(crate) async fn rate(
        &self,
        name: &str,
        request: &RateRequest,
    ) -> Result<RateReply, StoreError> {
        if let Some(scripted) = &self.scripted {
            return scripted.rate(name, request).await;
        }
        let word = "SESSION.RATE";
        let mut command = redis::cmd(word);
        command
            .arg(format!("{}rate:{name}", self.prefix))
            .arg(("LIMIT", request.limit))
            .arg(("WINDOW", request.window.get(), "COST", request.cost));
        // After a lost reply it is unknown whether the cost was counted. Counting it twice would refuse callers within
        // the limit.
        let value = self.send(&command, word, Resend::Never).await?;
        rated(value).map_err(invalid_reply(word))
    }
}

/// Parses the reply of RATE.
pub(super) fn rated(value: Value) -> Result<RateReply, Problem> {
    let mut fields = Fields::of(value)?;
    Ok(RateReply {
        allowed: fields.truth("allowed")?,
        remaining: fields.number("remaining")?,
        retry_after: Millis::new(fields.number("retry_after_ms")?),
    })
}
