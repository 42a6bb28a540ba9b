//! `mooring sessions why`: what calls of a session wait for.

use serde_json::json;

use super::outcome::{Outcome, SessionsError};
use super::target::StoreTarget;
use crate::client::table::printable;
use mooring_admin::sessions::{SessionName, find_session};
use mooring_session::Refusal;
use mooring_store::{StoreError, unix_now_ms};

pub(super) async fn run(
    target: &StoreTarget,
    named: &str,
    is_json: bool,
) -> Result<Outcome, SessionsError> {
    let store = target.open().await?;
    let found = find_session(&store, SessionName::parse(named)?).await?;
    let blockers = match store.blockers(&found.key).await {
        Err(StoreError::Refused(Refusal::NoSession)) => return Err(SessionsError::NoSuchSession),
        blockers => blockers?,
    };
    let sentences = blockers.sentences(unix_now_ms());
    if is_json {
        let shown = json!({
            "session": &*found.key.digest(),
            "state": blockers.record.state.as_str(),
            "turns": blockers.turns,
            "cleaning": blockers.cleaning,
            "sentences": sentences,
        });
        return Ok(Outcome::printed(format!("{shown}\n")));
    }
    let mut text = String::new();
    for sentence in sentences {
        text.push_str(&printable(&sentence).replace(['\n', '\t'], " "));
        text.push('\n');
    }
    Ok(Outcome::printed(text))
}
