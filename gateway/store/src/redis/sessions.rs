//! LIST and REAP: sessions in the server's indexes; and EXPLAIN.
//!
//! A Redis may also have sessions outside of this gateway's prefix, and each family of keys has its own reaper: LIST
//! and REAP select one family by the pattern of its keys.

use mooring_session::index::{Filter, SearchPart};
use mooring_session::names::WorkerId;
use mooring_session::view::RecordView;
use redis::{Cmd, Value};

use super::failure::invalid_reply;
use super::reply::{Fields, Problem, bytes, text};
use super::{RedisStore, Resend};
use crate::blockers::SessionBlockers;
use crate::error::StoreError;
use crate::key::{Family, SessionKey};
use crate::query::{Cursor, Order, PAGE_MAX, SessionPage, SessionQuery, key_pattern};
use crate::transition::{Get, GetBlockers};

/// The name of LIST.
pub(super) const LIST: &str = "SESSION.LIST";

impl RedisStore {
    pub(crate) async fn list(&self, query: &SessionQuery) -> Result<SessionPage, StoreError> {
        if let Some(scripted) = &self.scripted {
            return scripted.list(query).await;
        }
        // The same refusal as by the rules for an invalid query.
        let filter = query.filter(&self.prefix).map_err(StoreError::Refused)?;
        match self.page_of(query).await {
            // An older module refuses the words of a search: what it lists is compared here.
            Err(StoreError::Reply { .. }) if query.digest.is_some() || query.text.is_some() => {
                let plain = SessionQuery {
                    digest: None,
                    text: None,
                    ..query.clone()
                };
                let mut page = self.page_of(&plain).await?;
                page.sessions
                    .retain(|(key, record)| is_found(&filter, key, record));
                Ok(page)
            }
            page => page,
        }
    }

    async fn page_of(&self, query: &SessionQuery) -> Result<SessionPage, StoreError> {
        if let Some(cluster) = self.servers.cluster() {
            return Box::pin(cluster.list(&self.prefix, query)).await;
        }
        let command = list(&self.prefix, query);
        let value = self.send(&command, LIST, Resend::Once).await?;
        page(&self.prefix, value).map_err(invalid_reply(LIST))
    }

    pub(crate) async fn explain(&self, key: &SessionKey) -> Result<Vec<String>, StoreError> {
        if let Some(scripted) = &self.scripted {
            return scripted.explain(key).await;
        }
        let name = "SESSION.EXPLAIN";
        let mut command = redis::cmd(name);
        command.arg(key.secret());
        let value = self.send(&command, name, Resend::Once).await?;
        redis::from_redis_value(value).map_err(|error| invalid_reply(name)(error.to_string()))
    }

    pub(crate) async fn blockers(&self, key: &SessionKey) -> Result<SessionBlockers, StoreError> {
        if let Some(scripted) = &self.scripted {
            return scripted.blockers(key).await;
        }
        match self.run(key, &GetBlockers).await {
            // An older module refuses the word.
            Err(StoreError::Reply { .. }) => Ok(SessionBlockers {
                record: self.run(key, &Get).await?,
                cleaning: None,
                turns: None,
            }),
            blockers => blockers,
        }
    }

    pub(crate) async fn reap(
        &self,
        worker: &WorkerId,
        family: Family,
        count: usize,
    ) -> Result<Vec<SessionKey>, StoreError> {
        if let Some(scripted) = &self.scripted {
            return scripted.reap(worker, family, count).await;
        }
        let name = "SESSION.REAP";
        let mut command = redis::cmd(name);
        command
            .arg((worker.as_str(), "COUNT", count.clamp(1, PAGE_MAX)))
            .arg(("MATCH", key_pattern(family, &self.prefix, None)));
        // Those of a primary that is away wait.
        let replies = self.servers.send_to_all(&command, Resend::Once).await;
        let (replies, _) = replies.some(name)?;
        let keys = replies.into_iter().map(|value| reaped(&self.prefix, value));
        let keys: Result<Vec<_>, Problem> = keys.collect();
        let mut keys = in_turn(keys.map_err(invalid_reply(name))?);
        keys.retain(|key| key.family() == family);
        keys.truncate(count);
        Ok(keys)
    }
}

/// The first of each list, then the second of each, and so on, so that none waits for another.
fn in_turn<T>(lists: Vec<Vec<T>>) -> Vec<T> {
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let length = all.len();
        all.extend(lists.iter_mut().filter_map(Iterator::next));
        if all.len() == length {
            return all;
        }
    }
}

/// Whether a session that was listed is the one to find.
fn is_found(filter: &Filter, key: &SessionKey, record: &RecordView) -> bool {
    let bytes = key.secret().as_bytes();
    let is_text = |text: &SearchPart| text.is_in_view(bytes, record);
    filter.admits_key(bytes) && filter.text.as_ref().is_none_or(is_text)
}

/// The LIST command for a query.
pub(super) fn list(prefix: &str, query: &SessionQuery) -> Cmd {
    let mut command = redis::cmd(LIST);
    let filters = [
        ("PRINCIPAL", query.principal.as_ref().map(|it| it.as_str())),
        ("SERVER", query.server.as_ref().map(|it| it.as_str())),
        ("INSTANCE", query.instance.as_ref().map(|it| it.as_str())),
        ("OWNER", query.owner.as_ref().map(|it| it.as_str())),
        ("DIGEST", query.digest.as_deref()),
        ("TEXT", query.text.as_deref()),
        ("STATE", query.state.map(|it| it.as_str())),
        ("CURSOR", query.cursor.as_ref().map(Cursor::as_str)),
    ];
    for (word, value) in filters {
        command.arg(value.map(|value| (word, value)));
    }
    let pattern = key_pattern(query.family, prefix, query.id_pattern.as_deref());
    let order = match query.order {
        Order::Newest => "newest",
        Order::Oldest => "oldest",
    };
    command
        .arg(("MATCH", pattern, "ORDER", order))
        .arg(("COUNT", query.count.clamp(1, PAGE_MAX)));
    command
}

/// Parses the reply of LIST.
pub(super) fn page(prefix: &str, value: Value) -> Result<SessionPage, Problem> {
    let mut fields = Fields::of(value)?;
    let listed = |value| listed(prefix, value);
    Ok(SessionPage {
        complete: fields.truth("complete")?,
        cursor: fields
            .take("cursor")
            .as_ref()
            .and_then(text)
            .and_then(Cursor::of),
        sessions: fields
            .list("sessions", listed)?
            .into_iter()
            .flatten()
            .collect(),
    })
}

fn listed(prefix: &str, value: Value) -> Result<Option<(SessionKey, RecordView)>, Problem> {
    let mut fields = Fields::of(value)?;
    let Some(key) = fields.key(prefix)? else {
        return Ok(None);
    };
    Ok(Some((key, fields.record()?)))
}

/// Parses the reply of REAP.
pub(super) fn reaped(prefix: &str, value: Value) -> Result<Vec<SessionKey>, Problem> {
    let named = |value: Value| {
        let key = bytes(&value).ok_or_else(|| "a key is no text".to_owned())?;
        Ok(SessionKey::named(prefix, key))
    };
    let keys = Fields::of(value)?.list("keys", named)?;
    Ok(keys.into_iter().flatten().collect())
}
