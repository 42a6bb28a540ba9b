//! What one user's calls cost while another user floods the gateway, and how much memory the flood takes.
//!
//! Invariant: of each flood so much is on its way that the shares of the flooding user are used up; what counts is that none
//! of the other's calls fails, and that the gateway's memory stays below a bound that follows from its settings. What makes
//! the flood, and its upstream servers, run only while the other's client, its upstream server and the gateway leave a
//! processor free, so that the other user waits for nothing but the gateway.

mod floods;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use mooring_tests::client::HttpClient;
use mooring_tests::code::CodeVolume;
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::{Gateway, Settings};
use mooring_tests::hook::{Hook, HookAnswer};
use mooring_tests::session::McpSession;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

pub(crate) use self::floods::noisy;
use self::floods::{FLOODS, Flood, start_flood};
use crate::rig::resident_peak_kib;
use crate::user_shares::{BOB, open_as};

const MIB: usize = 1024 * 1024;
/// Each budget, and the longest event.
const BUDGET: usize = 64 * MIB;
const EVENT_BYTES_MAX: usize = 8 * MIB;
/// Three times what a user may take of both budgets, and a process without load with what docs/limits.md lists besides.
const RESIDENT_MAX: usize = 3 * 2 * BUDGET / 4 + 128 * MIB;
/// How long a flood lasts before and while calls are measured.
const STRENGTH_AFTER: Duration = Duration::from_secs(3);
const CALLS: usize = 1000;
/// After so many failed calls there is nothing more to measure.
const FAILURES_MAX: usize = 10;
/// Names another build of the gateway, such as an optimized one.
const PROGRAM_VARIABLE: &str = "MOORING_FLOODED_PROGRAM";

/// Threads at the lowest priority, for the flood and its upstream servers. Threads and processes that they start inherit
/// it.
struct LowPriority(Option<Runtime>);

impl LowPriority {
    fn start() -> anyhow::Result<Self> {
        let building = std::thread::spawn(|| {
            lower_priority()?;
            let mut builder = Builder::new_multi_thread();
            anyhow::Ok(builder.worker_threads(2).enable_all().build()?)
        });
        let runtime = building.join();
        Ok(Self(Some(runtime.ok().context("it panicked")??)))
    }

    /// Runs this on one more such thread; what it spawns runs on the others.
    async fn run<T: Send + 'static, F: Future<Output = anyhow::Result<T>>>(
        &self,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> anyhow::Result<T> {
        let runtime = self.0.as_ref().context("it has not ended")?;
        let (done, result) = oneshot::channel();
        let handle = runtime.handle().clone();
        std::thread::spawn(move || {
            let worked = lower_priority().and_then(|()| handle.block_on(work()));
            drop(done.send(worked));
        });
        result.await?
    }
}

/// Has this thread run only where nothing else wants a processor. By niceness alone (setpriority(2)) it would keep the
/// processor for the rest of its time slice, some milliseconds, when something else wakes up: several times what a call
/// takes.
fn lower_priority() -> anyhow::Result<()> {
    let thread = std::fs::read_link("/proc/thread-self").context("find this thread")?;
    let thread = thread.file_name().context("find this thread")?;
    let lowered = Command::new("chrt")
        .args(["--idle", "--pid", "0"])
        .arg(thread)
        .status()
        .context("start chrt")?;
    ensure!(lowered.success(), "chrt: {lowered}");
    Ok(())
}

impl Drop for LowPriority {
    fn drop(&mut self) {
        // This is inside of another runtime, which must not wait.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The gateway and what is behind it.
struct Scene {
    gateway: Arc<Gateway>,
    id: u32,
    client: HttpClient,
    low: LowPriority,
    /// The upstream server of the user who does not flood.
    _calm: Fixture,
    /// Answers lists of ten thousand tools, interim responses and comments, as the call says.
    _noisy: JoinSet<()>,
    _fixture: Fixture,
    _hook: Hook,
    _volume: CodeVolume,
}

impl Scene {
    async fn start() -> anyhow::Result<Self> {
        let low = LowPriority::start()?;
        let (fixture, noisy, url, hook) = low
            .run(async || {
                let (noisy, url) = noisy().await?;
                let hook = Hook::start(|_| HookAnswer::allowed()).await?;
                Ok((Fixture::start("one").await?, noisy, url, hook))
            })
            .await?;
        let calm = Fixture::start("calm").await?;
        let server = |id: &str, url: &str| {
            format!(
                "[[servers]]\nid = \"{id}\"\naffinity = \"on\"\nconcurrency = \"parallel\"\ninstances = [{url:?}]\n"
            )
        };
        let toml = [
            // What users share is one thread, and everything else has the other processor.
            format!(
                "[worker]\nthreads = 1\n\
                 [listen]\nbody_budget_bytes = {BUDGET}\n\
                 [upstream]\nreply_budget_bytes = {BUDGET}\nevent_bytes_max = {EVENT_BYTES_MAX}\n\
                 [[calls.hooks]]\nurl = {:?}\nwhen = [\"after\"]\nservers = [\"hooked\"]\n",
                hook.url()
            ),
            server("tools", &fixture.url()),
            server("calm", &calm.url()),
            server("hooked", &fixture.url()),
            server("noisy", &url),
            server("guarded", &fixture.url()) + "allow = [{ tools = [\"increment\"] }]\n",
            "[[servers]]\nid = \"sandbox\"\nkind = \"code\"\nallow = [{}]\n".to_owned(),
            "[[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"tools\", \"noisy\"]\n"
                .to_owned(),
        ]
        .concat();
        let volume = CodeVolume::new()?;
        let mut settings = Settings::toml(toml).users_by_header().env(
            "MOORING_CODE_BASE_DIR",
            &volume.path().display().to_string(),
        );
        if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
            settings = settings.program(Path::new(&program));
        }
        let mut gateway = Gateway::start("flooded", settings).await?;
        Ok(Self {
            id: gateway.process().id(),
            gateway: Arc::new(gateway),
            client: HttpClient::new(Duration::from_secs(120)),
            low,
            _calm: calm,
            _noisy: noisy,
            _fixture: fixture,
            _hook: hook,
            _volume: volume,
        })
    }

    async fn session(&self, user: &str, server: &str) -> anyhow::Result<McpSession> {
        open_as(&self.client, &self.gateway, user, server).await
    }

    /// What another user's calls are like.
    async fn measure(&self, bob: &mut McpSession) -> anyhow::Result<Measured> {
        let mut latencies = Vec::with_capacity(CALLS);
        let mut failures = Vec::new();
        let (all_begun, used) = (Instant::now(), processor_seconds(self.id)?);
        for _ in 0..CALLS {
            let begun = Instant::now();
            let called = bob.increment().await;
            latencies.push(begun.elapsed().as_secs_f64() * 1e3);
            if let Err(failure) = called {
                failures.push(format!("{failure:#}"));
            }
            if failures.len() >= FAILURES_MAX {
                break;
            }
        }
        let used = processor_seconds(self.id)? - used;
        latencies.sort_by(f64::total_cmp);
        Ok(Measured {
            latencies,
            failures,
            processors: used / all_begun.elapsed().as_secs_f64(),
        })
    }

    /// Lets the peak of the memory begin again.
    fn reset_peak(&self) -> anyhow::Result<()> {
        let file = format!("/proc/{}/clear_refs", self.id);
        Ok(std::fs::write(file, "5")?)
    }

    /// Starts a flood of Ada's.
    async fn flood(&self, flood: Flood) -> anyhow::Result<JoinSet<()>> {
        let gateway = Arc::clone(&self.gateway);
        self.low
            .run(async move || start_flood(flood, &gateway).await)
            .await
    }
}

/// What another user's calls were like for some time.
struct Measured {
    /// Sorted, in milliseconds.
    latencies: Vec<f64>,
    /// Why calls failed.
    failures: Vec<String>,
    /// How much of a processor the gateway took meanwhile.
    processors: f64,
}

impl Measured {
    fn part(&self, part: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let at = (last as f64 * part) as usize;
        self.latencies.get(at).copied().unwrap_or_default()
    }
}

/// The processor time of a process so far, in seconds.
fn processor_seconds(id: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("a name")?;
    let ticks = |at| -> anyhow::Result<f64> {
        let field = fields.split_whitespace().nth(at).context("a field")?;
        Ok(field.parse()?)
    };
    // utime and stime (proc_pid_stat(5)), in hundredths of a second.
    Ok((ticks(11)? + ticks(12)?) / 100.0)
}

/// Prints a row for each flood. Its figures are in docs/benchmarks.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak"]
#[allow(clippy::print_stdout, reason = "the table is what the test is for")]
async fn soak_one_users_floods_beside_anothers_calls() -> anyhow::Result<()> {
    println!(
        "| flood | p50 ms | p99 ms | p50 x alone | p99 x alone | failures | processors | peak MiB |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut problems = Vec::new();
    let only = std::env::var("MOORING_FLOODS").unwrap_or_default();
    for flood in FLOODS {
        if !only.is_empty() && !only.split(',').any(|name| name == format!("{flood:?}")) {
            continue;
        }
        let scene = Scene::start().await?;
        let mut bob = scene.session(BOB, "calm").await?;
        scene.measure(&mut bob).await?;
        let alone = scene.measure(&mut bob).await?;
        scene.reset_peak()?;
        let _tasks = scene.flood(flood).await?;
        tokio::time::sleep(STRENGTH_AFTER).await;
        let beside = scene.measure(&mut bob).await?;
        let peak = usize::try_from(resident_peak_kib(scene.id)?)? * 1024;
        let slower = |at| beside.part(at) / alone.part(at);
        println!(
            "| {flood:?} | {:.2} | {:.2} | {:.1} | {:.1} | {} | {:.2} | {} |",
            beside.part(0.5),
            beside.part(0.99),
            slower(0.5),
            slower(0.99),
            beside.failures.len(),
            beside.processors,
            peak / MIB
        );
        let failures = alone.failures.iter().chain(&beside.failures);
        let failed = failures.map(|failure| format!("{flood:?}: a call failed: {failure}"));
        problems.extend(failed);
        if peak > RESIDENT_MAX {
            problems.push(format!("{flood:?}: {} MiB", peak / MIB));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
    Ok(())
}
