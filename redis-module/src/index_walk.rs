//! The rebuild of indexes: a walk over the keys of each database, in the background.
//!
//! The walk reads every key again. Entries of the index whose keys it did not find are then removed, so a rebuild also
//! corrects an index that was updated all the time. Invariant: a step exceeds its time by at most one batch of keys.

use std::time::{Duration, Instant};

use mooring_session::StepProgress;

use crate::ffi::{Context, Level, OwnedText, ScanState};
use crate::keyspace;
use crate::module::Module;
use crate::rebuild::{IndexWalk, WalkStage};

/// How many entries are swept between two reads of the clock.
const SWEPT_AT_ONCE: usize = 256;
/// How often a long walk logs its progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Continues the rebuild until `until`. Leaves another database selected.
pub(crate) fn rebuild_until(
    module: &mut Module,
    context: &Context,
    until: Instant,
) -> StepProgress {
    while Instant::now() < until && !module.rebuild.is_loading() {
        let Some(mut walk) = module.rebuild.take_walk() else {
            return StepProgress::Done;
        };
        if !context.select(walk.database) {
            continue;
        }
        match step(&mut walk, module, context) {
            StepProgress::More => module.rebuild.put_back(walk),
            StepProgress::Done => report(&walk, context, "is whole"),
        }
    }
    if module.rebuild.is_running() {
        StepProgress::More
    } else {
        StepProgress::Done
    }
}

fn step(walk: &mut IndexWalk, module: &mut Module, context: &Context) -> StepProgress {
    if walk.reported.elapsed() >= PROGRESS_EVERY {
        walk.reported = Instant::now();
        report(walk, context, "is being rebuilt");
    }
    match &mut walk.stage {
        WalkStage::Sweep => module
            .indexes
            .of_mut(walk.database)
            .end_sweep(SWEPT_AT_ONCE),
        WalkStage::Scan(scan) => {
            let mut names = Vec::new();
            let keys = &mut walk.keys;
            let state = scan.step(context, |key| {
                *keys += 1;
                if keyspace::may_be_ours(key) {
                    names.push(OwnedText::new(key));
                }
            });
            for name in &names {
                keyspace::refresh(module, context, name.text());
            }
            walk.sessions += names.len() as u64;
            if state == ScanState::Done {
                walk.stage = WalkStage::Sweep;
            }
            StepProgress::More
        }
    }
}

fn report(walk: &IndexWalk, context: &Context, how: &str) {
    let line = format!(
        "index of database {} {how}: {} keys in {} ms",
        walk.database,
        walk.sessions,
        walk.started.elapsed().as_millis()
    );
    context.log(Level::Notice, &line);
}
