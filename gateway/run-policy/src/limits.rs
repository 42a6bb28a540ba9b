//! Everything has a limit: what one run may use.

use std::time::Duration;

use crate::paths::TreeAccess;

/// The limits of one run. Every limit is enforced, or the run is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From the start of the program to its end; then the whole tree of processes is killed.
    pub wall_time: Duration,
    /// CPU time of the whole process tree and of the host's thread that watches it. Committing the run's files may use
    /// the same amount again.
    pub cpu_time: Duration,
    /// Share of one processor, in percent, 1 to 100, averaged over a tenth of a second.
    pub cpu_percent: u32,
    /// Memory of the whole tree: private, shared, memfd, V8 heap and array buffers. Files that the run wrote are not
    /// counted: they have their own limit.
    pub memory_bytes: u64,
    /// One file.
    pub file_bytes: u64,
    /// All files of `/scratch` and `/results` together, what earlier runs left included.
    pub disk_bytes: u64,
    /// The same for the number of files and directories. Enforced by the commit: if a run creates more, none of them is
    /// kept.
    pub inodes: u64,
    /// Processes and threads at the same time.
    pub processes: u32,
    /// Which directories of its trees.
    pub access: TreeAccess,
    /// Of either stream; what comes after is counted, drained and dropped.
    pub output_bytes: usize,
}

impl Limits {
    /// Longest source text of a run.
    pub const SOURCE_BYTES_MAX: usize = 1024 * 1024;
    /// Most stages of a pipeline.
    pub const STAGES_MAX: usize = 16;
    /// Most arguments of a pipeline, all stages together.
    pub const ARGUMENTS_MAX: usize = 512;
    /// Longest words of a pipeline, all stages together. They travel to the helper in one packet.
    pub const WORD_BYTES_MAX: usize = 16 * 1024;
    /// Longest wall time and processor time.
    pub const TIME_MAX: Duration = Duration::from_secs(24 * 3600);
    /// Least memory: below it no interpreter starts.
    pub const MEMORY_BYTES_MIN: u64 = 16 * MIB;
    /// Most memory, and most of a disk.
    pub const BYTES_MAX: u64 = 1024 * 1024 * MIB;
    /// Least of a disk: one page per tree and some for directories.
    pub const DISK_BYTES_MIN: u64 = 64 * 1024;
    /// Fewest files and directories.
    pub const INODES_MIN: u64 = 16;
    /// Most files and directories.
    pub const INODES_MAX: u64 = 16 * 1024 * 1024;
    /// Most processes and threads.
    pub const PROCESSES_MAX: u32 = 4096;
    /// Most output of a stream that is kept: it is in the host's memory.
    pub const OUTPUT_BYTES_MAX: usize = 64 * 1024 * 1024;

    /// Whether every limit is within its own bounds.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check(&self) -> Result<(), LimitError> {
        let (wall_time_ms, cpu_time_ms) = (self.wall_time.as_millis(), self.cpu_time.as_millis());
        let time_ms_max = Self::TIME_MAX.as_millis();
        let bytes_max = u128::from(Self::BYTES_MAX);
        let memory_min = u128::from(Self::MEMORY_BYTES_MIN);
        let disk_min = u128::from(Self::DISK_BYTES_MIN);
        let (inodes_min, inodes_max) = (Self::INODES_MIN.into(), Self::INODES_MAX.into());
        let output_max = Self::OUTPUT_BYTES_MAX as u128;
        for (name, value, least, most) in [
            ("wall_time_ms", wall_time_ms, 1, time_ms_max),
            ("cpu_time_ms", cpu_time_ms, 1, time_ms_max),
            ("cpu_percent", self.cpu_percent.into(), 1, 100),
            (
                "memory_bytes",
                self.memory_bytes.into(),
                memory_min,
                bytes_max,
            ),
            ("file_bytes", self.file_bytes.into(), 1, bytes_max),
            ("disk_bytes", self.disk_bytes.into(), disk_min, bytes_max),
            ("inodes", self.inodes.into(), inodes_min, inodes_max),
            (
                "processes",
                self.processes.into(),
                1,
                Self::PROCESSES_MAX.into(),
            ),
            ("output_bytes", self.output_bytes as u128, 0, output_max),
        ] {
            if !(least..=most).contains(&value) {
                return Err(LimitError {
                    name,
                    value,
                    least,
                    most,
                });
            }
        }
        Ok(())
    }
}

const MIB: u64 = 1024 * 1024;

/// A limit is outside of its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}, it has to be from {least} to {most}")]
pub struct LimitError {
    /// Which one.
    pub name: &'static str,
    /// The requested value.
    pub value: u128,
    /// Least.
    pub least: u128,
    /// Most.
    pub most: u128,
}
