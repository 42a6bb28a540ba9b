//! The periodic work of this node, in small steps on the server's own clock.
//!
//! Invariants: the correctness of a session never depends on a tick, since every deadline is checked on use; a tick
//! only reports it in time. A tick works for about a millisecond; if more is left, the next one follows soon. A replica
//! publishes no event.
//!
//! Ticks come with the server's own (`hz`, ten a second by default). Timers, which fire sooner, are set only while
//! there is work: with a timer set, the server refuses to unload the module. While `mooring.quiesce` is on, none is
//! set.

use std::time::{Duration, Instant};

use mooring_session::SessionPlace;
use mooring_session::StepProgress;
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::turns::{TurnContext, Turns};

use crate::event_connections::EventConnections;
use crate::ffi::{Context, Level};
use crate::guard;
use crate::index_walk::rebuild_until;
use crate::keyspace;
use crate::module::Module;
use crate::rebuild::RebuildCause;
use crate::settings;
use crate::tick_schedule::TickCause;
use crate::worker_wait;

/// How soon the next tick comes while there is more to do: a step takes a millisecond, which leaves three quarters of
/// the time.
const BUSY_EVERY: Millis = Millis::new(4);
/// A deadline that is further away than this waits for a tick of the server.
const TIMER_MAX: Millis = Millis::new(1_000);
/// How long a tick works on the indexes.
const STEP: Duration = Duration::from_millis(1);
/// How many deadlines a tick processes, of sessions, turns and claims each.
const DEADLINES_AT_ONCE: usize = 256;

/// Does the due work. Returns the sessions whose expiry is to be published after the state is unlocked.
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
        // Workers send no beats to a replica, so it declares none dead.
        let mono = module.monotonic();
        module.workers.renew_grace(mono);
    }
    keyspace::catch_up(module, context);
    watch_clock(module, context);
    let now = Timestamp::from_unix_ms(context.unix_ms());
    let turns = advance_turns(module, now, mono);
    let (expired, sessions) = advance_sessions(module, context, now);
    let indexes = maintain_indexes(module, context);
    module.blocked_clients.wake_timed_out(mono);
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

/// Checks whether the wall clock was set. Call it before a decision that depends on the wall clock alone.
pub(crate) fn watch_clock(module: &mut Module, context: &Context) {
    let now = Timestamp::from_unix_ms(context.unix_ms());
    let Some(step) = module.clock.observe(now, module.time.real()) else {
        return;
    };
    let line = format!(
        "the wall clock was set by {} ms: nothing is reaped for a minute, and the grace period of workers starts again",
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
        events: &mut module.events,
    };
    let ended = end_delegations(
        &mut module.turns,
        &mut module.event_connections,
        &mut context,
    );
    let turns = module.turns.advance(&mut context, DEADLINES_AT_ONCE);
    let events = module.events.advance(mono, &workers, DEADLINES_AT_ONCE);
    ended.and(turns).and(events)
}

/// Ends the delegations of workers that no longer wait for events.
fn end_delegations(
    turns: &mut Turns,
    connections: &mut EventConnections,
    context: &mut TurnContext<'_>,
) -> StepProgress {
    for _ in 0..DEADLINES_AT_ONCE {
        let Some(worker) = connections.due(context.mono).cloned() else {
            return StepProgress::Done;
        };
        if turns.end_delegations(&worker, context, DEADLINES_AT_ONCE) == StepProgress::More {
            return StepProgress::More;
        }
        connections.forget(&worker);
    }
    StepProgress::More
}

fn advance_sessions(
    module: &mut Module,
    context: &Context,
    now: Timestamp,
) -> (Vec<SessionPlace>, StepProgress) {
    let mut expired = Vec::new();
    let mut advanced = StepProgress::Done;
    for database in module.indexes.databases() {
        let keys = module
            .indexes
            .of_mut(database)
            .advance(now, DEADLINES_AT_ONCE);
        if keys.len() >= DEADLINES_AT_ONCE {
            advanced = StepProgress::More;
        }
        expired.extend(keys.into_iter().map(|key| SessionPlace { database, key }));
    }
    for place in &expired {
        module.drop_session(place);
    }
    // Only the primary publishes the expiry of sessions.
    if !context.is_serving_primary() {
        expired.clear();
    }
    (expired, advanced)
}

fn maintain_indexes(module: &mut Module, context: &Context) -> StepProgress {
    if guard::take_scheduled_rebuild() {
        module.indexes.reset();
        module.rebuild_all(context, RebuildCause::Inconsistent);
    }
    if !module.indexes.are_prefixes_current() {
        module.rebuild_all(context, RebuildCause::Prefixes);
    }
    let now = Instant::now();
    // First, because otherwise dropped indexes would accumulate while one rebuild follows another.
    let has_dropped = module.indexes.free_dropped_until(now + STEP / 2);
    let rebuilt = rebuild_until(module, context, now + STEP);
    if has_dropped {
        StepProgress::More
    } else {
        rebuilt
    }
}

/// While `mooring.quiesce` is on: wakes the waiting clients and stops the timer, so that the server can unload the
/// module.
pub(crate) fn quiesce(module: &mut Module, context: &Context) {
    if settings::QUIESCE.get() {
        module.tick_schedule.stop(context);
        module.blocked_clients.wake_all();
    }
}

/// Sets the timer for the earliest of: more work, or a deadline of a turn, a claim or a connection for events.
fn set_timer(module: &mut Module, context: &Context, mono: Monotonic, busy: Option<Monotonic>) {
    let deadlines = [
        module.turns.next_deadline(),
        module.events.next_deadline(),
        module.event_connections.next_deadline(),
    ];
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
