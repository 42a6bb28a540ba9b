//! Heartbeats, and which gateways there are.

use mooring_session::names::WorkerId;
use mooring_session::workers::Beat;

use super::super::link_state::Resend;
use super::ScriptedStore;
use super::script::{ScriptCall, ScriptReply};
use crate::error::StoreError;
use crate::lock::lock;
use crate::workers::WorkerView;

impl ScriptedStore {
    pub(in super::super) async fn beat(&self, beat: &Beat) -> Result<(), StoreError> {
        let read = self.read_gateways().await?;
        let mut call = ScriptCall::default();
        let table = self.keys.gateways();
        {
            let mut gateways = lock(&self.gateways);
            gateways
                .workers
                .beat(beat.clone(), read.mono(), read.now())?;
            let row = gateways.note_beat(beat, read.now());
            call.run("HSET", &table, &[beat.worker.as_str(), &row]);
            for forgotten in gateways.forgotten(read.now()) {
                call.run("HDEL", &table, &[forgotten.as_str()]);
            }
        }
        call.send(&self.link, Resend::Once).await.map(drop)
    }

    pub(in super::super) async fn gone(&self, worker: &WorkerId) -> Result<bool, StoreError> {
        let read = self.read_gateways().await?;
        let (was_alive, row) = {
            let mut gateways = lock(&self.gateways);
            let was_alive = gateways.workers.gone(worker, read.mono());
            (was_alive, gateways.note_gone(worker))
        };
        if let Some(row) = row {
            let mut call = ScriptCall::default();
            call.run("HSET", &self.keys.gateways(), &[worker.as_str(), &row]);
            call.send(&self.link, Resend::Once).await?;
        }
        Ok(was_alive)
    }

    pub(in super::super) async fn workers(&self) -> Result<Vec<WorkerView>, StoreError> {
        let read = self.read_gateways().await?;
        let views = lock(&self.gateways).workers.list(read.mono());
        let mut call = ScriptCall::default();
        for view in &views {
            call.run("ZCOUNT", &self.keys.driver(&view.worker), &["now", "+inf"]);
        }
        let mut reply = call.send(&self.link, Resend::Once).await?;
        let views = views.into_iter();
        views
            .map(|view| Ok(WorkerView::of(view, Some(reply.number()?))))
            .collect()
    }

    async fn read_gateways(&self) -> Result<ScriptReply, StoreError> {
        let mut call = ScriptCall::default();
        call.run("HGETALL", &self.keys.gateways(), &[]);
        let mut read = call.send(&self.link, Resend::Once).await?;
        let table = read.fields()?;
        lock(&self.gateways).note_table(&table, read.mono(), self.link.number());
        Ok(read)
    }
}
