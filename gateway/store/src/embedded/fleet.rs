//! Workers and turns: commands on no record, or on more than one record.

use std::sync::Arc;
use std::time::Duration;

use mooring_session::names::WorkerId;
use mooring_session::refusal::Refusal;
use mooring_session::rules::RouteRequest;
use mooring_session::time::Millis;
use mooring_session::view::RecordView;
use mooring_session::workers::Beat;

use super::EmbeddedStore;
use super::database::{Database, NowRead};
use super::failure::TransactionError;
use super::row::{read_number, stored_number};
use crate::blockers::SessionBlockers;
use crate::error::StoreError;
use crate::events::WorkerEvent;
use crate::key::SessionKey;
use crate::status::AnsweredBy;
use crate::transition::{Explain, Get, GetBlockers};
use crate::turns::{self, DelegatedRoute, EnterReply, EnterRequest, LeaveRequest};
use crate::workers::WorkerView;

impl EmbeddedStore {
    pub(crate) async fn beat(&self, beat: &Beat) -> Result<(), StoreError> {
        let beat = beat.clone();
        self.write(move |transaction, known_workers, clock| {
            known_workers.beat(transaction, beat.clone(), clock)
        })
        .await
    }

    pub(crate) async fn gone(&self, worker: &WorkerId) -> Result<bool, StoreError> {
        let worker = worker.clone();
        self.write(move |transaction, known_workers, clock| {
            Ok(known_workers.gone(transaction, &worker, clock)?)
        })
        .await
    }

    pub(crate) async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        self.with_repair(Database::workers).await
    }

    pub(crate) async fn explain(&self, key: &SessionKey) -> Result<Vec<String>, StoreError> {
        let queues = self.queues.of_session(key);
        let session = key.digest();
        self.run(key, &Explain { session, queues }).await
    }

    pub(crate) async fn enter(
        &self,
        key: &SessionKey,
        request: &EnterRequest,
    ) -> Result<EnterReply, StoreError> {
        let here = self.read_here(key, |database| {
            database.read_now(key, &request.route(), |workers| {
                self.queues.enter(key, request, workers)
            })
        });
        let (routed, entered) = match here {
            Some(done) => done?,
            None => {
                let request = request.clone();
                self.run_in_order(key, move |database, key| {
                    let queues = Arc::clone(&database.queues);
                    database.transition_and(key, &request.route(), |workers| {
                        queues.enter(key, &request, workers)
                    })
                })
                .await?
            }
        };
        Ok(entered.with_route(routed, AnsweredBy::Store))
    }

    /// Turns are per process: another process over the file has its own.
    pub(crate) async fn blockers(&self, key: &SessionKey) -> Result<SessionBlockers, StoreError> {
        let blockers = self.run(key, &GetBlockers).await?;
        let turns = self.queues.views(key);
        Ok(SessionBlockers {
            turns: (self.is_private() || !turns.is_empty()).then_some(turns),
            ..blockers
        })
    }

    pub(crate) async fn delegate_route(
        &self,
        key: &SessionKey,
        request: &RouteRequest,
        lease: Millis,
    ) -> Result<DelegatedRoute, StoreError> {
        // Before the binding is read, so that no change of it is missed.
        let is_watched = (self.queues).watch(key, &request.server, &request.worker, lease);
        let routed = self.run(key, request).await?;
        Ok(DelegatedRoute {
            routed,
            delegated_for: is_watched.then_some(lease),
        })
    }

    pub(crate) async fn leave(
        &self,
        key: &SessionKey,
        request: &LeaveRequest,
    ) -> Result<(), StoreError> {
        let here = self.read_here(key, |database| {
            let NowRead { reply, used_at } = database.read_now(key, &Get, |_| Ok(()))?;
            let reply = reply.and_then(|(record, ())| Ok(database.leave(key, request, &record)?));
            Some(NowRead { reply, used_at })
        });
        if let Some(left) = here {
            return left;
        }
        let request = request.clone();
        self.run_in_order(key, move |database, key| {
            let record = database.transition(key, &Get)?;
            Ok(database.leave(key, &request, &record)?)
        })
        .await
    }

    /// Ends a turn, without its record: at once, or on the thread if the database is in use or a command on the session is
    /// on its way there. Returns whether it will: not if too many commands wait.
    pub(crate) fn end_turn(&self, key: &SessionKey, turn: &LeaveRequest) -> bool {
        if !self.pending.has(key)
            && let Ok(database) = self.database.try_lock()
        {
            database.end_turn(key, turn);
            return true;
        }
        let pending = self.pending.begin(key);
        let (key, turn) = (key.clone(), turn.clone());
        self.try_run(move |database| {
            let _until_done = pending;
            database.end_turn(&key, &turn);
        })
    }

    /// The thread is asked to check which workers are alive; the events are taken here, so that none is lost if the
    /// caller is dropped while the thread works.
    pub(crate) async fn wait_for_events(
        &self,
        worker: &WorkerId,
        timeout: Duration,
    ) -> Result<Vec<WorkerEvent>, StoreError> {
        let look = || async {
            let looked = self.run_on_thread(|database| {
                let workers = &database.known_workers.workers.at(database.clock.mono());
                database.queues.advance(workers);
                Ok(())
            });
            // If the thread is too busy, the next command makes the check.
            drop(looked.await);
        };
        Ok(self.queues.wait(worker, timeout, look).await)
    }
}

impl Database {
    /// Leaves the queue of a session with this record.
    fn leave(
        &self,
        key: &SessionKey,
        request: &LeaveRequest,
        record: &RecordView,
    ) -> Result<(), Refusal> {
        if record.principal != request.principal {
            return Err(Refusal::Denied);
        }
        let workers = &self.known_workers.workers.at(self.clock.mono());
        let result = self.queues.leave(key, request, workers);
        turns::left(result, record.state)
    }

    fn end_turn(&self, key: &SessionKey, turn: &LeaveRequest) {
        let workers = &self.known_workers.workers.at(self.clock.mono());
        // A refusal means that there is nothing to end.
        drop(self.queues.leave(key, turn, workers));
    }

    fn workers(&mut self) -> Result<Vec<WorkerView>, TransactionError> {
        let transaction = self.connection.transaction()?;
        self.known_workers.refresh(&transaction, &self.clock)?;
        let (now, mono) = (self.clock.now(), self.clock.mono());
        let mut count = transaction.prepare_cached(
            "SELECT driver, count(*) FROM bindings JOIN sessions USING (key)
             WHERE lifecycle = 'active' AND over_at > ?1 GROUP BY driver",
        )?;
        let driven = count
            .query_map([stored_number(now.unix_ms())], |row| {
                Ok((row.get::<_, String>(0)?, read_number(row, 1)?))
            })?
            .collect::<rusqlite::Result<std::collections::HashMap<_, _>>>()?;
        let known_workers = self.known_workers.workers.list(mono).into_iter();
        Ok(known_workers
            .map(|view| {
                let bindings = driven.get(view.worker.as_str()).copied().unwrap_or(0);
                WorkerView::of(view, Some(bindings))
            })
            .collect())
    }
}
