//! The module's settings: `mooring.<name>` in redis.conf, CONFIG SET and LOADEX, or `<name> <value>` after the file
//! name in `loadmodule`. Invariant: a setting always holds a value within its range.

pub(crate) mod prefixes;

use mooring_session::Tuning;
use mooring_session::time::Millis;
use mooring_session::turns::TurnLimits;

use crate::setting::{Setting, SwitchSetting};

/// Prepares for MODULE UNLOAD. A load turns it off, whatever the configuration file says: a loaded module serves.
pub(crate) static QUIESCE: SwitchSetting = SwitchSetting::new(
    c"quiesce",
    "makes MODULE UNLOAD possible on a live server: waiting WORKER.WAIT calls are released and no timer is set; off \
     after every load",
);

/// Why a setting was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SettingError {
    /// No setting has this name.
    #[error("there is no setting {0:?}")]
    Unknown(String),
    /// A name without a value.
    #[error("the setting {0:?} has no value")]
    NoValue(String),
    /// An invalid list of prefixes.
    #[error(transparent)]
    Prefixes(#[from] prefixes::PrefixesError),
    /// Not an integer, or out of range.
    #[error("{name} must be an integer from {least} to {most}")]
    Range {
        /// Which setting.
        name: String,
        /// The least value allowed.
        least: i64,
        /// The greatest value allowed.
        most: i64,
    },
}

/// Sets the value that this text says.
fn take(setting: &Setting, value: &[u8]) -> Result<(), SettingError> {
    let value = std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|value| (setting.least..=setting.most).contains(value))
        .ok_or_else(|| SettingError::Range {
            name: setting.name.to_string_lossy().into_owned(),
            least: setting.least,
            most: setting.most,
        })?;
    setting.set(value);
    Ok(())
}

static TOMBSTONE_RATIO: Setting = Setting::new(
    c"tombstone-ratio",
    2,
    1,
    10,
    "the key of a session expires this many TTLs after its last use, or up to a quarter of a TTL later",
);

static TOMBSTONE_MIN_MS: Setting = Setting::new(
    c"tombstone-min-ms",
    600_000,
    0,
    86_400_000,
    "and at least this many milliseconds after the session expired or ended; at most 30000 if an ended session holds nothing",
);

static TOUCH_STEP: Setting = Setting::new(
    c"touch-step",
    16,
    1,
    1_000,
    "a use is written if the TTL divided by this number has passed since the last written use",
);

static WORKER_GRACE_MS: Setting = Setting::new(
    c"worker-grace-ms",
    15_000,
    1_000,
    600_000,
    "for how many milliseconds a worker that has not sent a beat to this node counts as alive",
);

static TURN_QUEUE_MAX: Setting = Setting::new(
    c"turn-queue-max",
    256,
    1,
    65_536,
    "how many callers may wait for the turn of one session at one server",
);

static TURN_LEASE_MAX_MS: Setting = Setting::new(
    c"turn-lease-max-ms",
    2_000,
    100,
    600_000,
    "the longest lease of a turn, in milliseconds; after a start or promotion, only HELD is granted for this time",
);

/// All integer settings, in the order of the reference page. The others are [`prefixes`] and [`QUIESCE`].
pub(crate) static SETTINGS: [&Setting; 6] = [
    &TOMBSTONE_RATIO,
    &TOMBSTONE_MIN_MS,
    &TOUCH_STEP,
    &WORKER_GRACE_MS,
    &TURN_QUEUE_MAX,
    &TURN_LEASE_MAX_MS,
];

/// The settings of the rules, as they are now.
pub(crate) fn tuning() -> Tuning {
    Tuning {
        tombstone_ratio: TOMBSTONE_RATIO.unsigned(),
        tombstone_min: Millis::new(TOMBSTONE_MIN_MS.unsigned()),
        touch_step: TOUCH_STEP.unsigned(),
    }
}

/// For how long a worker that has not sent a beat to this node counts as alive.
pub(crate) fn worker_grace() -> Millis {
    Millis::new(WORKER_GRACE_MS.unsigned())
}

/// The settings of turns, as they are now.
pub(crate) fn turn_limits() -> TurnLimits {
    TurnLimits {
        queue_max: usize::try_from(TURN_QUEUE_MAX.unsigned()).unwrap_or(usize::MAX),
        lease_max: turn_lease_max(),
    }
}

/// The longest lease of a turn.
pub(crate) fn turn_lease_max() -> Millis {
    Millis::new(TURN_LEASE_MAX_MS.unsigned())
}

/// Applies the settings after the file name in `loadmodule`. The configuration file is applied on top of them. A reload
/// starts from the defaults again.
///
/// # Errors
/// Names the setting and its range.
pub(crate) fn take_arguments<'a>(
    mut words: impl Iterator<Item = &'a [u8]>,
) -> Result<(), SettingError> {
    for setting in SETTINGS {
        setting.set(setting.default);
    }
    prefixes::set(prefixes::DEFAULT.to_bytes())?;
    while let Some(name) = words.next() {
        let shown = || name.escape_ascii().to_string();
        let bare = name.strip_prefix(b"mooring.").unwrap_or(name);
        let setting = SETTINGS
            .into_iter()
            .find(|setting| setting.name.to_bytes() == bare);
        if setting.is_none() && bare != prefixes::SETTING.name.to_bytes() {
            return Err(SettingError::Unknown(shown()));
        }
        let value = words.next().ok_or_else(|| SettingError::NoValue(shown()))?;
        match setting {
            Some(setting) => take(setting, value)?,
            None => prefixes::set(value)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn arguments_are_taken_whole_or_refused_with_the_range() {
        let take = |words: &[&str]| take_arguments(words.iter().map(|word| word.as_bytes()));
        take(&["mooring.tombstone-ratio", "3", "touch-step", "1000"]).unwrap();
        assert_eq!(tuning().tombstone_ratio, 3);
        assert_eq!(tuning().touch_step, 1_000);
        take(&[]).unwrap();
        assert_eq!(tuning(), Tuning::default());
        take(&["prefixes", "a: b:"]).unwrap();
        assert_eq!(prefixes::text(), "a: b:");
        assert!(prefixes::cover(b"b:1") && !prefixes::cover(b"mcpgw:1"));
        take(&[]).unwrap();
        assert_eq!(
            prefixes::text(),
            "mcpgw: mcpgw:code_exec_session: mcpgw:agent_session:"
        );
        for (words, message) in [
            (
                &["prefixes", " "][..],
                "prefixes must name at least one prefix",
            ),
            (&["nope", "1"], "there is no setting \"nope\""),
            (&["touch-step"], "the setting \"touch-step\" has no value"),
            (
                &["touch-step", "0"],
                "touch-step must be an integer from 1 to 1000",
            ),
            (
                &["touch-step", "1x"],
                "touch-step must be an integer from 1 to 1000",
            ),
        ] {
            assert_eq!(take(words).unwrap_err().to_string(), message);
        }
        take(&[]).unwrap();
    }
}
