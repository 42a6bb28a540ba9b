//! The periodic work of this node, in small steps on the server's own clock.
//!
//! Invariants: the correctness of a session never depends on a tick, since every deadline is checked on use; a tick
//! only reports it in time. A tick works for about a millisecond; if more is left, the next one follows soon. A replica
//! publishes no event.
//!
//! Ticks come with the server's own (`hz`, ten a second by default). Timers, which ring sooner, are set only while work
//! is under way: with one set, the server refuses to unload the module. While `mooring.quiesce` is on none is set.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mooring_session::SessionPlace;
use mooring_session::StepProgress;
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::turns::TurnContext;

use crate::ffi::{Context, Level};
use crate::index_walk::rebuild_until;
use crate::keyspace;
use crate::module::Module;
use crate::rebuild::RebuildCause;
use crate::settings;
use crate::tick_schedule::TickCause;
use crate::worker_wait;

/// How soon the next tick comes while there is more to do: a step of a millisecond leaves three quarters of the time.
const BUSY_EVERY: Millis = Millis::new(4);
/// A deadline that is further away than this waits for a tick of the server.
const TIMER_MAX: Millis = Millis::new(1_000);
/// How long a tick works on the indexes.
const STEP: Duration = Duration::from_millis(1);
/// How many deadlines of sessions, turns and claims a tick passes, of each.
const PASSED_AT_ONCE: usize = 256;

/// Set where the indexes may be wrong: something happened that could not be followed.
static IN_DOUBT: AtomicBool = AtomicBool::new(false);

/// Lets the next tick rebuild all indexes from nothing.
pub(crate) fn doubt_the_indexes() {
    IN_DOUBT.store(true, Ordering::Relaxed);
}

/// Does what is due. Answers with the sessions whose expiry is to be told of, once the state is given up.
pub(crate) fn tick(module: &mut Module, context: &Context, cause: TickCause) -> Vec<SessionPlace> {
    if let TickCause::Server { hz } = cause {
        module.time.expect_ticks(hz);
    }
    let started = Instant::now();
    let mono = module.monotonic();
    if !module.tick_schedule.begin(cause, mono) {
        return Vec::new();
    }
    if !context.is_primary() {
        // Nobody beats to a replica, so it calls nobody dead.
        let mono = module.monotonic();
        module.workers.renew_grace(mono);
    }
    keyspace::catch_up(module, context);
    watch_clock(module, context);
    let now = Timestamp::from_unix_ms(context.unix_ms());
    let turns = advance_turns(module, now, mono);
    let (expired, sessions) = advance_sessions(module, context, now);
    let indexes = mend_indexes(module, context);
    module.blocked_clients.pass_deadlines(mono);
    worker_wait::serve(module);
    let busy = turns
        .and(sessions)
        .and(indexes)
        .eq(&StepProgress::More)
        .then(|| mono.plus(BUSY_EVERY));
    quiesce(module, context);
    if !settings::QUIESCE.get() {
        set_timer(module, context, mono, busy);
    }
    module.counters.note_tick(started.elapsed());
    expired
}

/// Looks whether the wall clock was set. Whoever decides by it alone that something is over looks first.
pub(crate) fn watch_clock(module: &mut Module, context: &Context) {
    let now = Timestamp::from_unix_ms(context.unix_ms());
    let Some(step) = module.clock.observe(now, module.time.real()) else {
        return;
    };
    let line = format!(
        "the wall clock was set by {} ms: nothing is reaped for a minute, and workers get their grace again",
        step.by_ms
    );
    context.log(Level::Warning, &line);
    module.counters.clock_steps += 1;
    let mono = module.monotonic();
    module.workers.renew_grace(mono);
    module.rebuild_all(context, RebuildCause::ClockStep);
}

fn advance_turns(module: &mut Module, now: Timestamp, mono: Monotonic) -> StepProgress {
    let workers = module.workers.at(mono);
    let mut context = TurnContext {
        now,
        mono,
        limits: settings::turn_limits(),
        workers: &workers,
        news: &mut module.news,
    };
    let turns = module.turns.advance(&mut context, PASSED_AT_ONCE);
    turns.and(module.news.advance(mono, &workers, PASSED_AT_ONCE))
}

fn advance_sessions(
    module: &mut Module,
    context: &Context,
    now: Timestamp,
) -> (Vec<SessionPlace>, StepProgress) {
    let mut expired = Vec::new();
    let mut advanced = StepProgress::Done;
    for database in module.indexes.databases() {
        let keys = module.indexes.of_mut(database).advance(now, PASSED_AT_ONCE);
        if keys.len() >= PASSED_AT_ONCE {
            advanced = StepProgress::More;
        }
        expired.extend(keys.into_iter().map(|key| SessionPlace { database, key }));
    }
    for place in &expired {
        module.drop_session(place);
    }
    // The primary tells, and its replicas' subscribers hear it from nobody else.
    if !context.is_serving_primary() {
        expired.clear();
    }
    (expired, advanced)
}

fn mend_indexes(module: &mut Module, context: &Context) -> StepProgress {
    if IN_DOUBT.swap(false, Ordering::Relaxed) {
        module.indexes.begin_anew();
        module.rebuild_all(context, RebuildCause::Doubt);
    }
    if !module.indexes.follow_the_setting() {
        module.rebuild_all(context, RebuildCause::Prefixes);
    }
    let now = Instant::now();
    // First, or what is dropped while one rebuild follows another would pile up in memory.
    let is_in_parts = module.indexes.take_apart_until(now + STEP / 2);
    let rebuilt = rebuild_until(module, context, now + STEP);
    if is_in_parts {
        StepProgress::More
    } else {
        rebuilt
    }
}

/// While `mooring.quiesce` is on: wakes who waits, and stops the timer, so that the server lets the module go.
pub(crate) fn quiesce(module: &mut Module, context: &Context) {
    if settings::QUIESCE.get() {
        module.tick_schedule.stop(context);
        module.blocked_clients.wake_all();
    }
}

/// Sets the timer to what comes first: more work, or a deadline of a turn or a claim.
fn set_timer(module: &mut Module, context: &Context, mono: Monotonic, busy: Option<Monotonic>) {
    let deadlines = [module.turns.next_deadline(), module.news.next_deadline()];
    let due = deadlines
        .into_iter()
        .flatten()
        .filter(|due| *due <= mono.plus(TIMER_MAX))
        .map(|due| due.max(mono.plus(BUSY_EVERY)))
        .chain(busy)
        .min();
    if let Some(due) = due {
        module.tick_schedule.set_timer(context, mono, due);
    }
}
