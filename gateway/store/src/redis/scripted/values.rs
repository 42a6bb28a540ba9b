//! Rates and sealed values.

use mooring_session::rules::{self, RateRequest, TheoreticalArrivalTime};

use super::super::link_state::Resend;
use super::ScriptedStore;
use super::attempts::{ATTEMPTS_MAX, pause_before};
use super::script::ScriptCall;
use crate::error::{NotReady, StoreError};
use crate::rate::RateReply;

impl ScriptedStore {
    /// The values of these strings, in their order.
    pub(in super::super) async fn get_values(
        &self,
        keys: impl Iterator<Item = String>,
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let mut call = ScriptCall::default();
        let mut count = 0;
        for key in keys {
            call.run("GET", &key, &[]);
            count += 1;
        }
        let mut reply = call.send(&self.link, Resend::Once).await?;
        (0..count).map(|_| reply.value()).collect()
    }

    /// The same string as the module's.
    pub(in super::super) async fn rate(
        &self,
        name: &str,
        request: &RateRequest,
    ) -> Result<RateReply, StoreError> {
        let key = self.keys.rate(name);
        // Those of this gateway, often one user's, are counted one after the other.
        let _locked = self.rate_locks.lock(&key).await;
        for attempt in 0..ATTEMPTS_MAX {
            pause_before(attempt).await;
            let mut call = ScriptCall::default();
            call.run("GET", &key, &[]);
            let mut read = call.send(&self.link, Resend::Once).await?;
            let stored = read.text()?;
            // A rate that cannot be read, which must have been edited by hand, counts as none.
            let spent = (stored.as_ref())
                .and_then(|text| TheoreticalArrivalTime::decode(text.as_bytes()).ok());
            let rated = rules::rate(spent, request, read.now());
            let Some(written) = rated.written else {
                return Ok(RateReply::of(rated));
            };
            let mut call = ScriptCall::default();
            call.check_text(&key, stored.as_deref());
            call.run("SET", &key, &[&written.encode()]);
            call.run(
                "PEXPIREAT",
                &key,
                &[&written.expires_at().unix_ms().to_string()],
            );
            // Counting a cost twice would refuse callers within the limit.
            if call.send(&self.link, Resend::Never).await?.has_run() {
                return Ok(RateReply::of(rated));
            }
        }
        let why = "BUSY other gateways count against this rate all the time";
        Err(StoreError::NotReady(NotReady::Answered(why.into())))
    }
}
