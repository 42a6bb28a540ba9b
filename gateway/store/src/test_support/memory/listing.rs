//! LIST and REAP over memory.

use mooring_session::Tuning;
use mooring_session::context::{Context, NoIndex};
use mooring_session::index::{self, Glob, Reaper};
use mooring_session::names::WorkerId;
use mooring_session::refusal::Refusal;
use mooring_session::view::RecordView;

use super::{ADVANCED_MAX, MemoryStore, State};
use crate::error::StoreError;
use crate::key::{Family, SessionKey};
use crate::query::{Cursor, PAGE_MAX, SessionPage, SessionQuery, key_pattern};

impl MemoryStore {
    pub(crate) async fn list(&self, query: &SessionQuery) -> Result<SessionPage, StoreError> {
        let filter = query.filter(&self.prefix)?;
        let cursor = query.cursor.as_ref().map_or(Cursor::EDGE, Cursor::as_str);
        let after = index::Cursor::parse(cursor.as_bytes()).map_err(Refusal::from)?;
        let (now, mono) = self.moment();
        let mut state = self.state();
        let count = query.count.clamp(1, PAGE_MAX);
        let page = state
            .session_index
            .index()
            .page(&filter, query.order, after, count, now);
        let next = page.next.map(|next| next.to_string());
        let keys = page.sessions.iter();
        let keys = keys.filter_map(|listed| SessionKey::named(&self.prefix, listed.key));
        let keys = keys.collect();
        let keys = state.living(keys, now);
        let State {
            sessions, workers, ..
        } = &*state;
        let context = Context {
            now,
            floor: 0,
            tuning: &Tuning::default(),
            workers: &workers.at(mono),
            node: &NoIndex,
        };
        let view = |key: SessionKey| {
            let record = sessions.record(&key)?;
            let is_wanted = filter.admits(key.secret().as_bytes(), record, now);
            is_wanted.then(|| (key, RecordView::of(record, &context)))
        };
        Ok(SessionPage {
            complete: true,
            cursor: next.as_deref().and_then(Cursor::of),
            sessions: keys.into_iter().filter_map(view).collect(),
        })
    }

    pub(crate) async fn reap(
        &self,
        worker: &WorkerId,
        family: Family,
        count: usize,
    ) -> Result<Vec<SessionKey>, StoreError> {
        let (now, mono) = self.moment();
        let mut state = self.state();
        let State {
            session_index,
            workers,
            ..
        } = &mut *state;
        let index = session_index.index();
        index.advance(now, ADVANCED_MAX);
        let reaper = Reaper {
            worker,
            workers: &workers.at(mono),
            now,
            pattern: Glob::parse(key_pattern(family, &self.prefix, None).as_bytes()).ok(),
            count: count.min(PAGE_MAX),
        };
        let named = |key: &[u8]| {
            let key = SessionKey::named(&self.prefix, key)?;
            (key.family() == family).then_some(key)
        };
        let is_free = |key: &[u8]| named(key).is_some_and(|key| !self.queues.holds(&key, None));
        let keys = index.due(&reaper, is_free).into_iter();
        let keys = keys.filter_map(named).collect();
        Ok(state.living(keys, now))
    }
}
