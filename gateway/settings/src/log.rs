//! `[log]`: what is written to standard error, and how.

use super::rows::{settings, words};

settings! {
    /// What is written to standard error, and how.
    pub struct LogSettings {
        /// How a log line looks.
        pub format: LogFormat = Choice("log.format"),
        /// The least severe line that is written.
        pub level: LogLevel = Choice("log.level"),
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
    /// The least severe line that is written.
    pub enum LogLevel {
        /// errors, warnings, starts, stops, rebinds and degraded mode
        Info = "info",
        /// what needs an operator
        Error = "error",
        /// errors, lost state and refusals
        Warn = "warn",
        /// the same as `info`, and one or two lines for every request
        Debug = "debug",
        /// everything
        Trace = "trace",
    }
}
