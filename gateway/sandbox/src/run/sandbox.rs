//! A sandbox that was tested: it prepares each run, has it watched, and hands back what it wrote.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::begun::BegunHelper;
use super::error::RunError;
use super::private::PrivateDirectory;
use super::probe_error::ProbeError;
use super::pump::Pump;
use super::spec;
use super::state::{Handover, State};
use super::stop::StopHandle;
use super::warm::{Replacement, WarmHelpers};
use super::watch::{FinishedRun, Watch, Witness};
use crate::cgroup::{CgroupBackend, CgroupLimits};
use crate::helper::{self, Connections};
use crate::job::{Job, ListenerCallback, Network, SessionTrees};
use crate::limits::Limits;
use crate::options::Options;
use crate::outcome::{Changes, HelperStart, Outcome};
use crate::protocol::{ProgramDescriptors, Spec, SpecDescriptors, ToHelper, WireNetwork};
use crate::runtimes::Runtimes;
use crate::thread_time::thread_cpu_time;
use crate::tier::{Layer, Tier};

/// A sandbox whose isolation was tested on this machine. Shared by all threads; each run blocks its own.
#[derive(Debug)]
pub struct Sandbox {
    pub(super) options: Options,
    pub(super) groups: Arc<CgroupBackend>,
    /// None if no helpers wait.
    pub(super) warm: Option<WarmHelpers>,
    pub(super) layers: Vec<Layer>,
    pub(super) runtimes: Runtimes,
    pub(super) filters: Filters,
}

impl Sandbox {
    /// Begins the helpers that wait, if there are to be some.
    pub(super) fn warm_helpers(&self) -> Result<Option<WarmHelpers>, RunError> {
        let Options {
            warm_helpers,
            launcher,
            ..
        } = &self.options;
        if *warm_helpers == 0 || self.tier() == Tier::Degraded {
            return Ok(None);
        }
        WarmHelpers::start(*warm_helpers, launcher.clone(), Arc::clone(&self.groups))
            .map(Some)
            .map_err(RunError::host("start the thread of waiting helpers"))
    }

    /// Ends the helpers that wait, before the process does, so that their control groups are removed. No other is
    /// started in advance from then on. Blocks for a few milliseconds, or until helpers whose run is over have ended.
    pub fn dismiss_waiting(&self) {
        if let Some(warm) = &self.warm {
            warm.close();
        }
    }

    /// The helpers that wait for a run, by the processes of each: the helper, and process 1 of the run to come.
    #[must_use]
    pub fn waiting_processes(&self) -> Vec<[i32; 2]> {
        let processes = self.warm.as_ref().map(WarmHelpers::processes);
        processes.unwrap_or_default()
    }

    /// The isolation tier.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.options.tier
    }

    /// The isolation layers of every run.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Which programs can be run.
    #[must_use]
    pub fn runtimes(&self) -> &Runtimes {
        &self.runtimes
    }

    /// Runs `job` and blocks until no process of it is left. Its control group may be removed a moment later, where
    /// helpers are started in advance.
    ///
    /// # Errors
    /// [`RunError`], where the walls could not be built or did not last: there is no outcome then, and nothing that
    /// the program wrote is kept. A program that fails or is stopped is an [`Outcome`].
    pub fn run(&self, job: Job, stop: &StopHandle) -> Result<Outcome, RunError> {
        self.run_witnessed(job, stop, None)
    }

    /// The same, with an inspector of the processes, which is called once the program has written something.
    pub(super) fn run_witnessed(
        &self,
        job: Job,
        stop: &StopHandle,
        mut witness: Option<Witness<'_>>,
    ) -> Result<Outcome, RunError> {
        let (begun, begun_cpu) = (Instant::now(), thread_cpu_time());
        job.check()?;
        let (network, listening) = self.network(job.network)?;
        let limits = spec::wire_limits(self.tier(), &job.limits, &job.trees)
            .map_err(RunError::host("measure the session's files"))?;
        let (counter, access) = (self.groups.layer(), job.limits.access.clone());
        if self.tier() == Tier::Degraded && !access.is_whole() {
            return Err(RunError::AccessNeedsStrict);
        }
        let (spec, program) = spec::spec(counter, &self.runtimes, &job.program, limits, access)?;
        let spec = Spec {
            has_bridge: job.bridge.is_some(),
            ..spec::connected(spec, network)
        };
        let private = self.private(&job.trees, &job.limits, limits.temporary_bytes)?;
        let trees = private.as_ref().map_or(&job.trees, PrivateDirectory::trees);
        // Files that the run writes count as its memory if they are in memory: always in a layer, rarely in a copy.
        let memory_for_files = match &private {
            Some(private) if !private.is_in_memory() => 0,
            _ => limits.upper_bytes,
        };
        let prepared = PreparedRun {
            spec: Box::new(spec),
            program,
            trees,
            private: private.as_ref(),
            limits: &job.limits,
            memory_for_files,
            begun,
            begun_cpu,
            stop,
        };
        let mut handover = Handover {
            bridge: job.bridge,
            listening,
            is_done: false,
        };
        let warm = self.warm.as_ref().and_then(WarmHelpers::take);
        let mut start = match warm {
            Some(_) => HelperStart::Warm,
            None => HelperStart::Cold,
        };
        let mut over = self.watch(&prepared, warm, &mut handover, &mut witness);
        if over.is_err() && start == HelperStart::Warm && !handover.is_done {
            // Nothing of the program was started: what failed may be the helper's, not the run's.
            start = HelperStart::Cold;
            over = self.watch(&prepared, None, &mut handover, &mut witness);
        }
        let over = over?;
        Ok(Outcome {
            ended: over.ended,
            stdout: over.stdout,
            stderr: over.stderr,
            usage: over.usage,
            changes: changes(private.as_ref(), over.descriptors)?,
            tier: self.tier(),
            start,
            layers: self.layers.clone(),
            limits_reached: over.limits_reached,
            refused_calls: over.refused_calls,
            _private: private.map(|private| Box::new(private) as _),
        })
    }

    /// Runs it in this waiting helper, or begins one.
    fn watch(
        &self,
        run: &PreparedRun<'_>,
        waiting: Option<(BegunHelper, Replacement<'_>)>,
        handover: &mut Handover,
        witness: &mut Option<Witness<'_>>,
    ) -> Result<FinishedRun, RunError> {
        let is_warm = waiting.is_some();
        let (mut helper, replacement) = match waiting {
            Some((helper, replacement)) => (helper, Some(replacement)),
            None => {
                let launcher = &self.options.launcher;
                (
                    BegunHelper::begin(launcher, &self.groups, self.tier())?,
                    None,
                )
            }
        };
        self.brief(&helper, run, handover.bridge.as_ref())?;
        // Before `Go`, and while the helper completes the isolation.
        let streams = helper.limit(&CgroupLimits::of(run.limits, run.memory_for_files))?;
        let keep = run.limits.output_bytes;
        let pump = |pipe| Pump::new(pipe, keep).map_err(RunError::host("read the output"));
        let watch = Watch {
            begun: helper,
            replacement,
            stop: run.stop,
            limits: run.limits,
            stdout: pump(streams.stdout)?,
            stderr: pump(streams.stderr)?,
            state: State::new(run.begun, run.begun_cpu, run.memory_for_files, is_warm),
            private: run.private,
            handover,
            witness,
        };
        let (finished, helper) = watch.until_over()?;
        // Else it is ended here.
        if let Some(warm) = &self.warm {
            warm.end(helper);
        }
        Ok(finished)
    }

    /// The network configuration for the helper, and the listener for its connections.
    fn network(
        &self,
        network: Network,
    ) -> Result<(WireNetwork, Option<ListenerCallback>), RunError> {
        match (network, self.tier()) {
            (Network::None, _) => Ok((WireNetwork::None, None)),
            (Network::Proxy(listening), Tier::Strict) => {
                let certificates = self.runtimes.certificates.clone();
                Ok((WireNetwork::Proxy { certificates }, Some(listening)))
            }
            (Network::Proxy(_), Tier::Degraded) => Err(RunError::NetworkNeedsStrict),
        }
    }

    /// The copies that a run of the degraded tier works on.
    fn private(
        &self,
        trees: &SessionTrees,
        limits: &Limits,
        temporary_bytes: u64,
    ) -> Result<Option<PrivateDirectory>, RunError> {
        match self.tier() {
            Tier::Strict => Ok(None),
            Tier::Degraded => PrivateDirectory::make(trees, limits, temporary_bytes)
                .map(Some)
                .map_err(RunError::host("copy the session's files")),
        }
    }

    /// Sends the spec to the helper, with the descriptors of what the run sees.
    fn brief(
        &self,
        begun: &BegunHelper,
        run: &PreparedRun<'_>,
        bridge: Option<&OwnedFd>,
    ) -> Result<(), RunError> {
        let descriptors = SpecDescriptors {
            tools: run.trees.tools.as_fd(),
            skills: run.trees.skills.as_fd(),
            scratch: run.trees.scratch.as_fd(),
            results: run.trees.results.as_fd(),
            program: ProgramDescriptors {
                source: run.program.as_fd(),
                filter: self.filters.of(&run.spec).as_fd(),
                bridge: bridge.map(AsFd::as_fd),
            },
        };
        let message = ToHelper::Spec(run.spec.clone());
        begun.helper.send(&message, &descriptors.into_vec())
    }
}

/// A run as a helper needs it.
struct PreparedRun<'a> {
    spec: Box<Spec>,
    /// Its source.
    program: OwnedFd,
    trees: &'a SessionTrees,
    private: Option<&'a PrivateDirectory>,
    limits: &'a Limits,
    /// Memory for the files that it may write, if these are in memory.
    memory_for_files: u64,
    begun: Instant,
    /// The processor time of this thread then.
    begun_cpu: Duration,
    stop: &'a StopHandle,
}

/// The system call filters, each compiled once, as files that every helper reads.
#[derive(Debug)]
pub(super) struct Filters {
    /// Of a run without a network.
    alone: OwnedFd,
    /// Of one that may make connections.
    connecting: OwnedFd,
}

impl Filters {
    pub(super) fn compile(tier: Tier) -> Result<Self, ProbeError> {
        let of = |connections| {
            let filter = helper::filter(tier, connections)
                .map_err(|error| ProbeError::Filter(error.to_string()))?;
            let file = spec::in_memory("filter", &filter);
            Ok::<_, ProbeError>(file.map_err(RunError::host("hold the filter"))?)
        };
        Ok(Self {
            alone: of(Connections::Refused)?,
            connecting: of(Connections::Allowed)?,
        })
    }

    const fn of(&self, spec: &Spec) -> &OwnedFd {
        match spec.network {
            WireNetwork::None => &self.alone,
            WireNetwork::Proxy { .. } => &self.connecting,
        }
    }
}

/// The layers of a tier.
pub(super) fn layers(tier: Tier, group: Layer) -> Vec<Layer> {
    let mut layers = match tier {
        Tier::Strict => vec![Layer::Namespaces, Layer::Root, Layer::Overlay],
        Tier::Degraded => Vec::new(),
    };
    layers.extend([Layer::Landlock, Layer::Seccomp, Layer::Rlimits, group]);
    layers
}

/// The run's files: the layers from the helper, or, in the degraded tier, the copies.
fn changes(
    private: Option<&PrivateDirectory>,
    descriptors: Vec<OwnedFd>,
) -> Result<Changes, RunError> {
    if let Some(private) = private {
        return private
            .changes()
            .map_err(RunError::host("hold the session's copy"));
    }
    match <[OwnedFd; 2]>::try_from(descriptors) {
        Ok([scratch, results]) => Ok(Changes {
            scratch,
            results,
            is_copy: false,
        }),
        Err(others) => Err(RunError::Protocol {
            text: format!("{} layers instead of two", others.len()),
        }),
    }
}
