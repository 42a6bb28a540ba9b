//! What operators want of the fleet while Redis may be away: memory has none of it, and what a gateway read last stays in
//! force.

use super::FallbackStore;
use crate::desired_state::{DesiredFields, DesiredWrite};
use crate::error::StoreError;

impl FallbackStore {
    pub(crate) async fn desired_state_version(&self) -> Result<u64, StoreError> {
        self.shared.present().await?.desired_state_version().await
    }

    pub(crate) async fn desired_fields(&self) -> Result<DesiredFields, StoreError> {
        self.shared.present().await?.desired_fields().await
    }

    pub(crate) async fn write_desired_fields(
        &self,
        write: &DesiredWrite,
    ) -> Result<bool, StoreError> {
        self.shared
            .present()
            .await?
            .write_desired_fields(write)
            .await
    }
}
