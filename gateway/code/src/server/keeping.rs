//! Looking after the records of all code servers, for as long as the process serves.

use std::sync::Arc;
use std::time::Duration;

use super::{CodeStorage, Services};
use crate::records::keep;

/// Ends the records of runs that died with their gateway, and removes old ones, until it is stopped.
pub async fn keep_records(services: Arc<Services>, interval: Duration) {
    if let Ok(CodeStorage { records, .. }) = &services.storage {
        keep(records, &services.ids, services.sessions.store(), interval).await;
    }
}
