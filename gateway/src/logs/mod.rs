//! Structured logs on stderr, as text or JSON. Crates of this workspace log from the configured level on, libraries
//! only from `warn` on, because their debug lines contain headers and bodies. Audit lines are written at every level.
//!
//! Invariant: no thread waits for stderr, even if it is not read; no value ends a line or reaches a terminal as a
//! control character; and clients cannot cause more lines of one kind than [`repeats`] allows. Call sites need not
//! care.

mod layer;
mod line;
mod queue;
mod repeats;
mod value;

use std::io::{self, IsTerminal};
use std::panic::PanicHookInfo;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::reload;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use mooring_admin::AUDIT_TARGET;
use mooring_pipeline::REQUESTS_TARGET;
use mooring_settings::{LogFormat, LogLevel, LogSettings, LoggedRequests};

use layer::LogLayer;
use line::LineFormat;

/// Prefix of the targets of this workspace's crates.
const OWN_TARGETS: &str = "mooring";
/// How long an exiting process waits until what it has logged is written.
const FLUSHED_WITHIN: Duration = Duration::from_secs(1);

/// Logs could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A log subscriber is already installed in this process.
    #[error("cannot start logging")]
    Start(#[source] TryInitError),
    /// The system refused the thread.
    #[error("cannot start the thread that writes log lines")]
    Thread(#[source] io::Error),
}

/// The log lines of this process. Dropping it waits, at most a second, until they are written.
#[derive(Debug)]
#[must_use = "lines are lost at the exit without it"]
pub struct Logs {
    layer: LogLayer,
    level: LogLevelControl,
}

/// Sets the level of the log while the process runs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogLevelControl(reload::Handle<Targets, Registry>);

impl LogLevelControl {
    /// Logs from this level on.
    pub fn set(&self, level: LogLevel) {
        // It fails only without a subscriber, and then there is no log.
        let _ = self.0.reload(filter(level));
    }
}

impl Logs {
    /// Writes a line that is no log line, such as the reason of an exit: after those before it, and never dropped.
    pub fn print(&self, line: &str) {
        self.layer.print(line);
    }

    /// What sets the level.
    #[must_use]
    pub fn level(&self) -> LogLevelControl {
        self.level.clone()
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.layer.flush(FLUSHED_WITHIN);
    }
}

/// Sends the log lines of this process to stderr, and the messages of panics with them.
///
/// # Errors
/// If a subscriber was installed before, or there is no thread to write.
pub fn start(settings: &LogSettings) -> Result<Logs, LogError> {
    let format = match settings.format {
        LogFormat::Text if io::stderr().is_terminal() => LineFormat::ColoredText,
        LogFormat::Text => LineFormat::Text,
        LogFormat::Json => LineFormat::Json,
    };
    let unlimited = (settings.requests == LoggedRequests::All).then_some(REQUESTS_TARGET);
    let layer = LogLayer::new(format, unlimited);
    let (filter, level) = reload::Layer::new(filter(settings.level));
    tracing_subscriber::registry()
        .with(layer.clone().with_filter(filter))
        .try_init()
        .map_err(LogError::Start)?;
    layer.start_writer().map_err(LogError::Thread)?;
    std::panic::set_hook(Box::new(log_panic));
    Ok(Logs {
        layer,
        level: LogLevelControl(level),
    })
}

/// The standard library's hook writes to stderr itself, and would wait for its reader.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    tracing::error!(
        thread = thread.name().unwrap_or("unnamed"),
        location = panic.location().map(tracing::field::display),
        problem = panic.payload_as_str(),
        "a thread panicked"
    );
}

fn filter(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    Targets::new()
        .with_target(OWN_TARGETS, level)
        .with_target(AUDIT_TARGET, LevelFilter::INFO)
        .with_default(level.min(LevelFilter::WARN))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn libraries_are_quieter_than_we_are() {
        #[track_caller]
        fn check(level: LogLevel, target: &str, line: Level, expected: bool) {
            assert_eq!(filter(level).would_enable(target, &line), expected);
        }
        check(LogLevel::Debug, "mooring_gateway::http", Level::DEBUG, true);
        check(LogLevel::Debug, "hyper::client", Level::DEBUG, false);
        check(LogLevel::Debug, "hyper::client", Level::WARN, true);
        check(LogLevel::Info, "mooring_gateway", Level::DEBUG, false);
        check(LogLevel::Error, "hyper", Level::WARN, false);
        check(LogLevel::Error, "mooring_gateway", Level::ERROR, true);
        check(LogLevel::Error, AUDIT_TARGET, Level::INFO, true);
    }
}
