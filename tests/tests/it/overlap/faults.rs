//! What happens to the fleet, at random: each gateway and Redis have a lane of faults of their own, so that faults of
//! different parts meet.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::future::try_join_all;
use mooring_tests::network_link::Held;
use mooring_tests::wall_clock::WallClock;
use tokio::sync::RwLock;
use tokio::time::sleep;

use super::aim::{Aim, Moment};
use super::arrangement::{Arrangement, LinkedGateway, StorePair};

/// The longest pause between two faults of a lane, in milliseconds: some come before the fleet has recovered.
const PAUSE_MS: Range<u64> = 20..1_500;
/// How long a fault lasts, in milliseconds: up to about a moment in which something is noticed, around the lease of a turn
/// (1.8 s) and its end at the holder, or anything.
const LASTS_MS: [Range<u64>; 3] = [20..450, 1_300..2_300, 20..5_000];
/// Redis is away for less: nothing runs meanwhile.
const REDIS_AWAY_MS: Range<u64> = 20..2_500;
/// Between the moment of a call and its fault, in microseconds: about how long a call takes.
const INTO_CALL_US: Range<u64> = 0..4_000;
/// How far a wall clock is stepped, in milliseconds.
const CLOCK_STEPS_MS: [i64; 4] = [-30_000, -1_700, 1_700, 30_000];
/// The end of a freeze in the log of faults.
const CONTINUED: &str = "Continued";
/// How long a gateway may take to go on where it was frozen.
const CONTINUES_WITHIN: Duration = Duration::from_millis(100);
/// How long the ends of closed connections are on their way at most, on a busy machine.
const ENDS_ARRIVE_WITHIN: Duration = Duration::from_millis(100);

/// What happens to a gateway.
#[derive(Clone, Copy, Debug)]
enum GatewayFault {
    /// SIGKILL, and a new process.
    Killed,
    /// The same as a call is sent.
    KilledAtCall,
    /// SIGSTOP and SIGCONT.
    Frozen,
    /// The same as a call is sent.
    FrozenAtCall,
    /// The same as a session pauses.
    FrozenIdle,
    /// Its link to Redis holds bytes back. They arrive late.
    Held(Held),
    /// The same, and the connections are closed before they arrive.
    Cut(Held),
    /// Its connections to Redis are closed.
    Disconnected,
}

/// What happens to Redis, or to all gateways at once.
#[derive(Clone, Copy, Debug)]
enum StoreFault {
    /// Redis closes every connection.
    ClientsKilled,
    /// Redis closes the connection for wake-ups of one gateway.
    WakeUpsKilled,
    /// SIGSTOP and SIGCONT.
    Frozen,
    /// SIGKILL, and a new process on the same data.
    Restarted,
    /// FAILOVER to the replica.
    HandedOver,
    /// SIGKILL, and the replica is promoted.
    Promoted,
    /// The wall clock of Redis is wrong for a while.
    ClockStepped,
    /// That of the gateways is.
    GatewayClocksStepped,
}

/// The faults of a run.
pub(super) struct Faults<'a> {
    left: AtomicUsize,
    lasts_max: Duration,
    aim: &'a Aim,
    /// Closing connections in Redis, and links that hold their ends back, exclude each other: a gateway that lives and
    /// learns late that Redis has closed its connection for wake-ups may let two calls run at once. That is a stated bound.
    ends_arrive: RwLock<()>,
    /// A gateway is started while Redis is there.
    redis_is_there: RwLock<()>,
    began: Instant,
    log: Mutex<Vec<(Duration, String)>>,
}

impl<'a> Faults<'a> {
    /// `began` is when the witness was started.
    pub(super) fn new(count: usize, lasts_max: Duration, aim: &'a Aim, began: Instant) -> Self {
        Self {
            left: count.into(),
            lasts_max,
            aim,
            ends_arrive: RwLock::default(),
            redis_is_there: RwLock::default(),
            began,
            log: Mutex::default(),
        }
    }

    /// Injects all of them.
    pub(super) async fn inject(
        &self,
        arrangement: &mut Arrangement,
        random: &mut fastrand::Rng,
    ) -> anyhow::Result<()> {
        let Arrangement {
            gateways,
            stores,
            gateway_clock,
            redis_clock,
            ..
        } = arrangement;
        let lanes = gateways.iter_mut().map(|linked| {
            let random = fastrand::Rng::with_seed(random.u64(..));
            self.run_gateway_lane(linked, random)
        });
        let lanes = try_join_all(lanes.collect::<Vec<_>>());
        let random = fastrand::Rng::with_seed(random.u64(..));
        let store_lane = self.run_store_lane(stores, (redis_clock, gateway_clock), random);
        tokio::try_join!(lanes, store_lane)?;
        Ok(())
    }

    /// What happened, by the kind of fault.
    pub(super) fn summary(&self) -> String {
        let mut counts = std::collections::BTreeMap::<String, usize>::new();
        for (_, fault) in &*self.log() {
            let kind = fault.split(" @").next().unwrap_or_default();
            if kind != CONTINUED {
                *counts.entry(kind.to_owned()).or_default() += 1;
            }
        }
        format!("{counts:?}")
    }

    /// What happened shortly before and at this time.
    pub(super) fn around(&self, at: Duration) -> Vec<String> {
        let log = self.log();
        let is_near = |(began, _): &&(Duration, String)| {
            *began <= at && *began + Duration::from_secs(8) >= at
        };
        let near: Vec<String> = (log.iter().filter(is_near))
            .map(|(began, fault)| format!("{:.1} ms: {fault}", began.as_secs_f64() * 1e3))
            .collect();
        near
    }

    fn log(&self) -> std::sync::MutexGuard<'_, Vec<(Duration, String)>> {
        self.log.lock().unwrap()
    }

    /// Whether there is one more, which has begun with this.
    async fn next(&self, random: &mut fastrand::Rng) -> bool {
        sleep(Duration::from_millis(random.u64(PAUSE_MS))).await;
        let order = Ordering::SeqCst;
        self.left
            .fetch_update(order, order, |left| left.checked_sub(1))
            .is_ok()
    }

    fn note(&self, fault: &str, place: &str, lasts: Duration) {
        let text = format!("{fault} @{place} for {} ms", lasts.as_millis());
        self.log().push((self.began.elapsed(), text));
    }

    async fn run_gateway_lane(
        &self,
        linked: &mut LinkedGateway,
        mut random: fastrand::Rng,
    ) -> anyhow::Result<()> {
        while self.next(&mut random).await {
            let fault = gateway_fault(&mut random);
            let range = LASTS_MS[random.usize(..LASTS_MS.len())].clone();
            let lasts = Duration::from_millis(random.u64(range)).min(self.lasts_max);
            let number = linked.number;
            self.inflict_on_gateway(linked, fault, lasts, &mut random)
                .await
                .with_context(|| format!("{fault:?} of gateway {number}"))?;
        }
        Ok(())
    }

    async fn inflict_on_gateway(
        &self,
        linked: &mut LinkedGateway,
        fault: GatewayFault,
        lasts: Duration,
        random: &mut fastrand::Rng,
    ) -> anyhow::Result<()> {
        let number = linked.number;
        let moment = match fault {
            GatewayFault::FrozenAtCall | GatewayFault::KilledAtCall => Some(Moment::Call),
            GatewayFault::FrozenIdle => Some(Moment::Idle),
            _ => None,
        };
        let mut session = None;
        if let Some(moment) = moment {
            session = self.aim.wait_for(number, moment).await;
            sleep(Duration::from_micros(random.u64(INTO_CALL_US))).await;
        }
        let note = || self.note(&format!("{fault:?}"), &format!("gateway {number}"), lasts);
        match fault {
            GatewayFault::Killed | GatewayFault::KilledAtCall => {
                note();
                linked.kill()?;
                let _redis_is_there = self.redis_is_there.read().await;
                linked.start_again().await
            }
            GatewayFault::Frozen | GatewayFault::FrozenAtCall | GatewayFault::FrozenIdle => {
                note();
                linked.gateway.process().stop()?;
                let set_frozen_at = |gateway| {
                    if let Some(session) = &session {
                        session.set_frozen_at(gateway);
                    }
                };
                set_frozen_at(Some(number));
                sleep(lasts).await;
                self.note(CONTINUED, &format!("gateway {number}"), lasts);
                linked.gateway.process().cont()?;
                sleep(CONTINUES_WITHIN).await;
                set_frozen_at(None);
                Ok(())
            }
            GatewayFault::Held(held) | GatewayFault::Cut(held) => {
                let _ends_are_late = self.ends_arrive.read().await;
                note();
                linked.link.hold(held);
                sleep(lasts).await;
                if matches!(fault, GatewayFault::Cut(_)) {
                    linked.link.close_connections();
                }
                linked.link.hold(Held::Nothing);
                sleep(ENDS_ARRIVE_WITHIN).await;
                Ok(())
            }
            GatewayFault::Disconnected => {
                note();
                linked.link.close_connections();
                Ok(())
            }
        }
    }

    async fn run_store_lane(
        &self,
        stores: &mut StorePair,
        clocks: (&WallClock, &WallClock),
        mut random: fastrand::Rng,
    ) -> anyhow::Result<()> {
        while self.next(&mut random).await {
            let fault = store_fault(&mut random);
            let lasts = Duration::from_millis(random.u64(REDIS_AWAY_MS)).min(self.lasts_max);
            self.inflict_on_store(stores, clocks, fault, lasts, &mut random)
                .await
                .with_context(|| format!("{fault:?}"))?;
        }
        Ok(())
    }

    async fn inflict_on_store(
        &self,
        stores: &mut StorePair,
        (redis_clock, gateway_clock): (&WallClock, &WallClock),
        fault: StoreFault,
        lasts: Duration,
        random: &mut fastrand::Rng,
    ) -> anyhow::Result<()> {
        let note = || self.note(&format!("{fault:?}"), "Redis", lasts);
        match fault {
            StoreFault::ClientsKilled => {
                let _ends_arrive = self.ends_arrive.write().await;
                note();
                let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
                stores.primary().cli(&kill)?;
                sleep(ENDS_ARRIVE_WITHIN).await;
            }
            StoreFault::WakeUpsKilled => {
                let _ends_arrive = self.ends_arrive.write().await;
                note();
                kill_wake_ups(stores, random)?;
                sleep(ENDS_ARRIVE_WITHIN).await;
            }
            StoreFault::Frozen => {
                let _redis_is_away = self.redis_is_there.write().await;
                note();
                stores.primary().process().stop()?;
                sleep(lasts).await;
                stores.primary().process().cont()?;
            }
            StoreFault::Restarted | StoreFault::HandedOver | StoreFault::Promoted => {
                let _redis_is_away = self.redis_is_there.write().await;
                note();
                match fault {
                    StoreFault::Restarted => stores.restart().await?,
                    StoreFault::HandedOver => stores.hand_over().await?,
                    _ => stores.promote().await?,
                }
            }
            StoreFault::ClockStepped | StoreFault::GatewayClocksStepped => {
                let clock = match fault {
                    StoreFault::ClockStepped => redis_clock,
                    _ => gateway_clock,
                };
                note();
                clock.set(CLOCK_STEPS_MS[random.usize(..CLOCK_STEPS_MS.len())])?;
                sleep(lasts).await;
                clock.set(0)?;
            }
        }
        Ok(())
    }
}

/// Closes the connection for wake-ups of one gateway, if one is open.
fn kill_wake_ups(stores: &mut StorePair, random: &mut fastrand::Rng) -> anyhow::Result<()> {
    let clients = stores
        .primary()
        .cli(&["CLIENT", "LIST", "TYPE", "normal"])?;
    let id_of = |line: &str| {
        let is_waiting = line.contains("cmd=worker.wait");
        let id = line.split(' ').find_map(|word| word.strip_prefix("id="));
        id.filter(|_| is_waiting).map(str::to_owned)
    };
    let waiting: Vec<String> = clients.lines().filter_map(id_of).collect();
    if let Some(id) = random.choice(&waiting) {
        // It may be gone by itself by now.
        let _ = stores.primary().cli(&["CLIENT", "KILL", "ID", id]);
    }
    Ok(())
}

fn gateway_fault(random: &mut fastrand::Rng) -> GatewayFault {
    let held = [
        Held::Everything,
        Held::Requests,
        Held::Replies,
        Held::Marked,
    ];
    match random.u8(..100) {
        0..10 => GatewayFault::Killed,
        10..20 => GatewayFault::KilledAtCall,
        20..30 => GatewayFault::Frozen,
        30..55 => GatewayFault::FrozenAtCall,
        55..65 => GatewayFault::FrozenIdle,
        65..80 => GatewayFault::Held(held[random.usize(..held.len())]),
        80..92 => GatewayFault::Cut(held[random.usize(..held.len())]),
        _ => GatewayFault::Disconnected,
    }
}

fn store_fault(random: &mut fastrand::Rng) -> StoreFault {
    match random.u8(..100) {
        0..20 => StoreFault::ClientsKilled,
        20..50 => StoreFault::WakeUpsKilled,
        50..64 => StoreFault::Frozen,
        64..74 => StoreFault::Restarted,
        74..82 => StoreFault::HandedOver,
        82..90 => StoreFault::Promoted,
        90..95 => StoreFault::ClockStepped,
        _ => StoreFault::GatewayClocksStepped,
    }
}
