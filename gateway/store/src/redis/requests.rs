//! Long client requests as plain strings of Redis, `<prefix>request:<name>`, with expiry.

use super::failure::invalid_reply;
use super::{RedisStore, Resend, reply};
use crate::error::StoreError;
use crate::request_name::{REQUEST_KEPT, RequestName};

impl RedisStore {
    pub(crate) async fn publish_request(
        &self,
        name: &RequestName,
        tag: u128,
    ) -> Result<(), StoreError> {
        let mut command = redis::cmd("SET");
        command
            .arg(self.request_key(name))
            .arg(format!("{tag:032x}"))
            .arg("EX")
            .arg(REQUEST_KEPT.as_secs());
        self.send(&command, "SET", Resend::Once).await.map(drop)
    }

    pub(crate) async fn find_request(
        &self,
        name: &RequestName,
    ) -> Result<Option<u128>, StoreError> {
        let mut command = redis::cmd("GET");
        command.arg(self.request_key(name));
        let value = self.send(&command, "GET", Resend::Once).await?;
        let text = reply::optional_text(value).map_err(invalid_reply("GET"))?;
        Ok(text.and_then(|text| u128::from_str_radix(&text, 16).ok()))
    }

    fn request_key(&self, name: &RequestName) -> String {
        format!("{}request:{}", self.prefix, name.as_str())
    }
}
