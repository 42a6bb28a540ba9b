//! `[log]`: what is written to standard error, and how.

use super::reader::Reader;
use super::setting::{Choice, ChoiceOption, Setting, SettingInfo};

pub(super) const FORMAT: Choice<LogFormat> = Choice {
    about: SettingInfo::new("log.format", "How a log line looks."),
    default: ChoiceOption {
        name: "text",
        value: LogFormat::Text,
        meaning: "for people",
    },
    others: &[ChoiceOption {
        name: "json",
        value: LogFormat::Json,
        meaning: "one JSON object a line, for collectors",
    }],
    later: &[],
};

pub(super) const LEVEL: Choice<LogLevel> = Choice {
    about: SettingInfo::new("log.level", "The least severe line that is written."),
    default: ChoiceOption {
        name: "info",
        value: LogLevel::Info,
        meaning: "starts, stops, rebinds, degraded mode",
    },
    others: &[
        ChoiceOption {
            name: "error",
            value: LogLevel::Error,
            meaning: "what needs a person",
        },
        ChoiceOption {
            name: "warn",
            value: LogLevel::Warn,
            meaning: "and what lost state or was refused",
        },
        ChoiceOption {
            name: "debug",
            value: LogLevel::Debug,
            meaning: "and a line or two for every request",
        },
        ChoiceOption {
            name: "trace",
            value: LogLevel::Trace,
            meaning: "everything",
        },
    ],
    later: &[],
};

/// The rows of this section.
pub(super) const SETTINGS: &[Setting] = &[Setting::Choice(&FORMAT), Setting::Choice(&LEVEL)];

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The least severe line that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// What needs a person.
    Error,
    /// And what lost state or was refused.
    Warn,
    /// And starts, stops and rebinds.
    Info,
    /// And every request.
    Debug,
    /// Everything.
    Trace,
}

/// What is written to standard error, and how.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// How a line looks.
    pub format: LogFormat,
    /// The least severe line written.
    pub level: LogLevel,
}

pub(super) fn parse(reader: &mut Reader<'_>) -> LogSettings {
    LogSettings {
        format: reader.choice(&FORMAT),
        level: reader.choice(&LEVEL),
    }
}
