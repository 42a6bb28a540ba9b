//! Figures of the process itself, by the conventions of Prometheus' client libraries, so that dashboards for any process
//! fit this one.
//!
//! They are read when they are scraped, and written as text here: processor time is a counter with fractions, which the
//! recorder has not. A figure that the system does not give is left out.

use std::fmt::Write as _;
use std::fs;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Processor time of all threads. Runs of code and servers that are programs are processes of their own.
const CPU_SECONDS: &str = "process_cpu_seconds_total";
/// Memory that is in use now.
const RESIDENT_BYTES: &str = "process_resident_memory_bytes";
/// Open files, sockets included.
const OPEN_FILES: &str = "process_open_fds";
/// The most of them that the system allows.
const OPEN_FILES_MAX: &str = "process_max_fds";
/// Threads.
const THREADS: &str = "process_threads";
/// When it started.
const START_SECONDS: &str = "process_start_time_seconds";

#[cfg(test)]
pub(crate) const ALL: [&str; 6] = [
    CPU_SECONDS,
    RESIDENT_BYTES,
    OPEN_FILES,
    OPEN_FILES_MAX,
    THREADS,
    START_SECONDS,
];

static STARTED: LazyLock<Option<f64>> = LazyLock::new(|| {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(since_epoch.as_secs_f64())
});

/// Notes the time of the start.
pub(crate) fn describe() {
    LazyLock::force(&STARTED);
}

/// The figures in Prometheus' text format.
#[must_use]
pub fn process_figures() -> String {
    let status = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let figures = [
        (
            CPU_SECONDS,
            "counter",
            "Processor time of all threads in seconds",
            Some(cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9),
        ),
        (
            RESIDENT_BYTES,
            "gauge",
            "Resident memory in bytes",
            resident_pages(&pages).map(|pages| pages as f64 * page_size() as f64),
        ),
        (
            OPEN_FILES,
            "gauge",
            "Open file descriptors",
            open_files().map(|count| count as f64),
        ),
        (
            OPEN_FILES_MAX,
            "gauge",
            "Most open file descriptors",
            getrlimit(Resource::Nofile)
                .current
                .map(|count| count as f64),
        ),
        (
            THREADS,
            "gauge",
            "Threads",
            threads(&status).map(|count| count as f64),
        ),
        (
            START_SECONDS,
            "gauge",
            "Time of the start in seconds since 1970",
            *STARTED,
        ),
    ];
    let mut text = String::new();
    for (name, kind, help, value) in figures {
        let Some(value) = value else { continue };
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n\n"
        );
    }
    text
}

/// The second field of `/proc/self/statm` (proc_pid_statm(5)).
fn resident_pages(statm: &str) -> Option<u64> {
    statm.split(' ').nth(1)?.parse().ok()
}

/// `num_threads` of `/proc/self/stat` (proc_pid_stat(5)): the 18th field after the second one, the name of the program in
/// parentheses, which may contain spaces and parentheses.
fn threads(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(17)?.parse().ok()
}

/// Without the descriptor of the directory that lists them.
fn open_files() -> Option<usize> {
    Some(
        fs::read_dir("/proc/self/fd")
            .ok()?
            .count()
            .saturating_sub(1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_process_are_found_whatever_its_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 3 4 0 0 20 0 11 0 900 1 2 3";
        assert_eq!(threads(stat), Some(11));
        assert_eq!(resident_pages("900 120 7 1 0 80 0\n"), Some(120));
        assert_eq!((threads(""), resident_pages("")), (None, None));
    }

    #[test]
    fn every_figure_is_read() {
        let text = process_figures();
        for name in ALL {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let value = line.and_then(|value| value.trim().parse::<f64>().ok());
            assert!(value.is_some_and(|value| value > 0.0), "{name}: {text}");
        }
    }
}
