//! The host's side of a run: one thread starts the helper, watches the run from its beginning to its end, and answers
//! when nothing of it is left.
//!
//! Invariant: the thread that starts a helper stays until everything of the run is dead, because the helper is tied to
//! it: were the thread to end, or its process to be killed, the kernel would kill the helper, and with it the run.

mod error;
mod kernel_objects;
mod private;
mod probe;
mod pump;
mod ready;
mod spawn;
mod spec;
mod stop;
mod verdict;
mod watch;
mod watchdog;

use crate::options::Options;
pub use error::RunError;
pub(crate) use kernel_objects::KernelObjects;
pub(crate) use private::PrivateDirectory;
pub use stop::StopHandle;
pub(crate) use watch::Witness;
pub(crate) use watchdog::descendants;

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

pub use self::probe::ProbeError;
use crate::cgroup::{Cgroup, CgroupBackend, CgroupLimits};
use crate::helper::{self, Connections};
use crate::job::{Job, ListenerCallback, Network, SessionTrees};
use crate::limits::Limits;
use crate::outcome::{Changes, Outcome};
use crate::protocol::{self, Spec, SpecDescriptors, ToHelper, WireNetwork};
use crate::runtimes::Runtimes;
use crate::thread_time::thread_cpu_time;
use crate::tier::{Layer, Tier};
use pump::Pump;
use spawn::Helper;
use watch::{State, Watch};

/// A sandbox whose isolation was tested on this machine. Shared by all threads; each run blocks its own.
#[derive(Debug)]
pub struct Sandbox {
    options: Options,
    groups: CgroupBackend,
    layers: Vec<Layer>,
    runtimes: Runtimes,
    filters: Filters,
}

impl Sandbox {
    /// Tests the isolation layers of the tier with a run, and searches for the runtimes. Removes what runs of killed
    /// processes left.
    ///
    /// # Errors
    /// [`ProbeError`], which names the isolation layer that failed.
    pub fn probe(options: Options) -> Result<Self, ProbeError> {
        let filters = Filters::compile(options.tier)?;
        let groups = CgroupBackend::probe();
        if options.tier == Tier::Degraded {
            private::sweep().map_err(RunError::host("sweep the directories of runs"))?;
        }
        let sandbox = Self {
            layers: layers(options.tier, groups.layer()),
            runtimes: Runtimes::find(&options),
            options,
            groups,
            filters,
        };
        probe::prove(&sandbox)?;
        Ok(sandbox)
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

    /// Runs `job` and blocks until nothing of it is left.
    ///
    /// # Errors
    /// [`RunError`], where the walls could not be built or did not last: there is no outcome then, and nothing that
    /// the program wrote is kept. A program that fails or is stopped is an [`Outcome`].
    pub fn run(&self, job: Job, stop: &StopHandle) -> Result<Outcome, RunError> {
        self.run_witnessed(job, stop, None)
    }

    /// The same, with an inspector of the processes, which is called once the program has written something.
    pub(crate) fn run_witnessed(
        &self,
        job: Job,
        stop: &StopHandle,
        witness: Option<Witness<'_>>,
    ) -> Result<Outcome, RunError> {
        let (begun, begun_cpu) = (Instant::now(), thread_cpu_time());
        job.check()?;
        let (network, listening) = self.network(job.network)?;
        let limits = spec::wire_limits(self.tier(), &job.limits, &job.trees)
            .map_err(RunError::host("measure the session's files"))?;
        let counter = self.groups.layer();
        let (spec, program) =
            spec::spec(self.tier(), counter, &self.runtimes, &job.program, limits)?;
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
        let group = self
            .groups
            .make(&CgroupLimits::of(&job.limits, memory_for_files))
            .map_err(RunError::host("control group: make"))?;
        let (helper, streams) = Helper::start(&self.options.launcher)?;
        let doors = group.as_ref().map_or(Ok(Vec::new()), Cgroup::doors);
        let doors = doors.map_err(RunError::host("control group: open"))?;
        self.brief(&helper, spec, &program, trees, job.bridge.as_ref(), &doors)?;
        // From here on only the program has the bridge's end, so that its closing is noticed.
        drop((doors, job.bridge));
        self.groups.wake(helper.pid());
        let keep = job.limits.output_bytes;
        let watch = Watch {
            helper,
            group,
            stop,
            limits: &job.limits,
            stdout: Pump::new(streams.stdout, keep).map_err(RunError::host("read the output"))?,
            stderr: Pump::new(streams.stderr, keep).map_err(RunError::host("read the output"))?,
            state: State::new(begun, begun_cpu, memory_for_files),
            private: private.as_ref(),
            listening,
            witness,
        };
        let over = watch.until_over()?;
        Ok(Outcome {
            ended: over.ended,
            stdout: over.stdout,
            stderr: over.stderr,
            usage: over.usage,
            changes: changes(private.as_ref(), over.descriptors)?,
            tier: self.tier(),
            layers: self.layers.clone(),
            _private: private.map(|private| Box::new(private) as _),
        })
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
        helper: &Helper,
        spec: Spec,
        program: &OwnedFd,
        trees: &SessionTrees,
        bridge: Option<&OwnedFd>,
        doors: &[OwnedFd],
    ) -> Result<(), RunError> {
        let descriptors = SpecDescriptors {
            tools: trees.tools.as_fd(),
            skills: trees.skills.as_fd(),
            scratch: trees.scratch.as_fd(),
            results: trees.results.as_fd(),
            program: program.as_fd(),
            filter: self.filters.of(&spec).as_fd(),
            bridge: bridge.map(AsFd::as_fd),
            doors: doors.iter().map(AsFd::as_fd).collect(),
        };
        let message = ToHelper::Spec(Box::new(spec));
        protocol::send(helper.socket(), &message, &descriptors.into_vec()).map_err(|error| {
            RunError::Protocol {
                text: error.to_string(),
            }
        })
    }
}

/// The system call filters, each compiled once, as files that every helper reads.
#[derive(Debug)]
struct Filters {
    /// Of a run without a network.
    alone: OwnedFd,
    /// Of one that may make connections.
    connecting: OwnedFd,
}

impl Filters {
    fn compile(tier: Tier) -> Result<Self, ProbeError> {
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

fn layers(tier: Tier, group: Layer) -> Vec<Layer> {
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
        Ok([scratch, results]) => Ok(Changes { scratch, results }),
        Err(others) => Err(RunError::Protocol {
            text: format!("{} layers instead of two", others.len()),
        }),
    }
}
