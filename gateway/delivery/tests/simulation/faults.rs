//! Heartbeats, and what goes wrong with processes, instances and the store.

use mooring_session::workers::Drain;

use crate::fleet::{Fleet, Happening, PROCESSES};
use crate::gateway::Purpose;
use crate::support::server;
use crate::upstreams::Place;
impl Fleet {
    /// A heartbeat: once it is acknowledged, the process has exactly what the store says.
    pub(crate) fn beat(&mut self, number: usize) {
        let is_lost = self.is_storm() && self.chance.percent(10);
        let process = &mut self.processes[number];
        if !process.is_up || process.stalled_until > self.now || is_lost {
            return;
        }
        let worker = process.worker();
        self.node.beat(&worker, process.drain);
        process.beat_at = self.now;
        let held: Vec<Place> = process.connections.keys().cloned().collect();
        for place in held {
            let record = self.node.record(&place.0);
            let binding = record.and_then(|one| one.bindings.get(&server(place.1)).cloned());
            let connection = &self.processes[number].connections[&place];
            let is_named = binding.is_some_and(|binding| {
                binding.owner.as_ref() == Some(&worker) && binding.epoch == connection.epoch
            });
            if !is_named {
                self.close(number, &place);
            }
        }
    }

    /// Deletes an upstream session, with the connection that it may be.
    pub(crate) fn drop_session(&mut self, session: &str) {
        self.upstreams.delete(session);
        for process in &mut self.processes {
            (process.connections).retain(|_, held| held.session != session);
        }
    }

    pub(crate) fn close(&mut self, process: usize, place: &Place) {
        if let Some(connection) = self.processes[process].connections.remove(place) {
            self.upstreams.delete(&connection.session);
        }
    }

    pub(crate) fn start(&mut self, number: usize) {
        self.processes[number].start();
        self.beat(number);
    }

    pub(crate) fn stop(&mut self, number: usize) {
        let worker = self.processes[number].worker();
        if self.chance.percent(30) {
            self.node.gone(&worker);
        }
        self.processes[number].is_up = false;
        self.processes[number].connections.clear();
        self.upstreams.delete_all_at(worker.as_str());
        let gone: Vec<u64> = (self.jobs.iter())
            .filter(|(_, job)| job.process == number)
            .map(|(number, _)| *number)
            .collect();
        for job in gone {
            let job = self.jobs.remove(&job).unwrap();
            if let Purpose::Client(client) | Purpose::Report { client, .. } = job.purpose {
                self.next(client);
            }
        }
        let back = self.now + self.chance.between(100, 6_000);
        self.queue
            .post(back, Happening::Restart { process: number });
    }

    pub(crate) fn fault(&mut self) {
        let number = usize::try_from(self.chance.between(0, PROCESSES as u64 - 1)).unwrap();
        match self.chance.between(0, 13) {
            0..=1 if self.processes[number].is_up => self.stop(number),
            2..=3 => {
                let until = self.now + self.chance.between(50, 5_000);
                self.processes[number].stalled_until = until;
            }
            4 => self.processes[number].drain = Drain::Draining,
            5 if self.processes[number].drain == Drain::Draining => self.stop(number),
            6 if self.steps_clock => {
                let far = self.chance.pick(&[50, 3_000, 10_000, 3_600_000]);
                let by = i64::try_from(self.chance.between(0, 2 * far)).unwrap()
                    - i64::try_from(far).unwrap();
                self.node.step_clock(by);
            }
            6 => self.lose_writes(),
            7 if self.chance.percent(30) => self.node.promote(),
            8..=10 => self.upstreams.fail(&mut self.chance, self.now),
            11 => self.break_connection(number),
            _ => self.upstreams.recover(&mut self.chance),
        }
    }

    /// The store fails over to a replica that has not got its last writes.
    pub(crate) fn lose_writes(&mut self) {
        if let Some(replica) = self.replica.take() {
            self.node.fail_over_to(replica);
            // It takes a moment, or the numbers of this millisecond came again.
            self.node.pass(1);
            self.told.forget_all();
            self.upstreams.forget_owners();
            self.note("writes lost");
        }
    }

    /// The server behind an owned connection exits.
    pub(crate) fn break_connection(&mut self, process: usize) {
        if let Some(connection) = self.processes[process].connections.values_mut().next() {
            connection.is_open = false;
            let session = connection.session.clone();
            self.upstreams.delete(&session);
        }
    }
}
