//! `[log]`: what is written to standard error, and how.

use std::time::Duration;

use super::rows::{settings, words};

settings! {
    /// What is written to standard error, and how.
    pub struct LogSettings {
        /// How a log line looks.
        pub format: LogFormat = Choice("log.format"),
        /// The least severe line that is written.
        pub level: LogLevel = Choice("log.level"),
        /// Which requests have a line in the log, of level `info`, once their reply has ended: with user and session as
        /// digests, server, instance, tool, outcome, times to the first and the last byte, bytes and request id. With
        /// `log.level = "debug"` the others have one too, except with `off`.
        pub requests: LoggedRequests = Choice("log.requests"),
        /// Minimum duration of a slow request, from its arrival to the last byte of its reply.
        pub slow_request: Duration = Integer("log.slow_request_ms", "milliseconds", 1000, 1..=3_600_000),
    }
}

words! {
    /// How a log line looks.
    pub enum LogFormat {
        /// for people
        Text = "text",
        /// one JSON object a line, for collectors
        Json = "json",
    }
}

words! {
    /// Which requests have a line in the log.
    pub enum LoggedRequests {
        /// those that fail or are refused, also by their tool, and slow ones
        Slow = "slow",
        /// those that fail or are refused, also by their tool
        Errors = "errors",
        /// all of them; only these lines are never rate-limited, and lost only if stderr is not read
        All = "all",
        /// none
        Off = "off",
    }
}

words! {
    /// The least severe line that is written.
    pub enum LogLevel {
        /// errors, warnings, starts, stops, rebinds and degraded mode
        Info = "info",
        /// what needs an operator
        Error = "error",
        /// errors, lost state and refusals
        Warn = "warn",
        /// the same as `info`, and a line for every request (`log.requests`)
        Debug = "debug",
        /// everything
        Trace = "trace",
    }
}
