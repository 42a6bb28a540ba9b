//! Structured logs on stderr, as text or JSON. Crates of this workspace log from the configured level on, libraries
//! only from `warn` on, because their debug lines contain headers and bodies.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use mooring_settings::{LogFormat, LogLevel, LogSettings};

/// Prefix of the targets of this workspace's crates.
const OWN_TARGETS: &str = "mooring";

/// Logs could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A log subscriber is already installed in this process.
    #[error("cannot start logging")]
    Start(#[source] TryInitError),
}

/// Sends the log lines of this process to stderr.
///
/// # Errors
/// If a subscriber was installed before.
pub fn start(settings: &LogSettings) -> Result<(), LogError> {
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = match settings.format {
        LogFormat::Text => layer.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter(settings.level)))
        .try_init()
        .map_err(LogError::Start)
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
    }
}
