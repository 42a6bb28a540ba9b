//! How long clients of each kind went without a good reply, by the kind of fault. Printed, never asserted.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::client::{CLIENT_KINDS, ChaosClient, ClientKind};
use super::faults::{FAULT_KINDS, Fault};

/// A Markdown table: the time from the beginning of a fault to the next good reply, per client, beside how long the fault
/// itself lasted. Seconds, median and 99th percentile.
pub(super) fn recovery_table(faults: &[Fault], clients: &[ChaosClient]) -> String {
    let mut table = String::from(
        "| fault | times | lasted p50 / max | http p50 / p99 | stdio p50 / p99 | code p50 / p99 |\n\
         |---|---|---|---|---|---|\n",
    );
    for kind in FAULT_KINDS {
        let of_kind: Vec<&Fault> = faults.iter().filter(|fault| fault.kind == kind).collect();
        let lasted = of_kind.iter().map(|fault| fault.lifted - fault.began);
        let _ = write!(
            table,
            "| {kind:?} | {} | {} |",
            of_kind.len(),
            percentiles(lasted.collect(), 100)
        );
        for client_kind in CLIENT_KINDS {
            let waits = of_kind
                .iter()
                .flat_map(|fault| waits(fault, client_kind, clients));
            let _ = write!(table, " {} |", percentiles(waits.collect(), 99));
        }
        table.push('\n');
    }
    table
}

fn waits(
    fault: &Fault,
    kind: ClientKind,
    clients: &[ChaosClient],
) -> impl Iterator<Item = Duration> {
    let began = fault.began;
    let of_kind = clients.iter().filter(move |client| client.kind == kind);
    of_kind.filter_map(move |client| longest_silence(client.good_at(), began, fault.lifted))
}

/// The longest time without a good reply that begins while the fault lasts, or has begun before it.
fn longest_silence(good_at: &[Instant], began: Instant, lifted: Instant) -> Option<Duration> {
    let first = good_at.partition_point(|at| *at < began);
    let mut silences = Vec::new();
    let mut from = began;
    for at in good_at.get(first..)? {
        silences.push(at.duration_since(from));
        if *at > lifted {
            break;
        }
        from = *at;
    }
    silences.into_iter().max()
}

fn percentiles(mut durations: Vec<Duration>, high: usize) -> String {
    durations.sort_unstable();
    let at = |percent: usize| {
        let index = (durations.len() * percent / 100).min(durations.len().saturating_sub(1));
        durations.get(index).map_or(0.0, Duration::as_secs_f64)
    };
    format!("{:.2} / {:.2}", at(50), at(high))
}
