//! How much of what all users share one of them may use, and how many requests senders may send.
//!
//! Invariant: the counters of a limit that a reload leaves as it is go on.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::previous_app::{PreviousApp, unchanged};
use crate::http::{App, StrangerRates};
use mooring_pipeline::{RequestRates, UserUsages};
use mooring_settings::{AuthSettings, Settings};
use mooring_usage::{MemoryBudget, SharePart, UsageLimits};

/// How long the rest of a reply waits for memory: as long as a client may read nothing of its stream.
const ROOM_WITHIN: Duration = Duration::from_secs(30);

/// The usage of each user. Requests under way at a change of limits count by those that they began with.
pub(super) fn usages(settings: &Settings, previous: Option<&PreviousApp<'_>>) -> Arc<UserUsages> {
    let present = unchanged(
        settings,
        previous,
        |app| Arc::clone(&app.core.usages),
        |settings| {
            (
                matches!(settings.auth, AuthSettings::None),
                settings.listen.calls_per_user_at_once,
                settings.listen.body_budget_bytes,
                settings.upstream.reply_budget_bytes,
            )
        },
    );
    present.unwrap_or_else(|| Arc::new(UserUsages::new(usage_limits(settings))))
}

pub(super) fn request_rates(
    settings: &Settings,
    previous: Option<&PreviousApp<'_>>,
) -> Option<Arc<RequestRates>> {
    let per_minute = |settings: &Settings| settings.listen.requests_per_user_per_minute;
    let present = |app: &App| app.core.request_rates.clone();
    unchanged(settings, previous, present, per_minute).unwrap_or_else(|| {
        let per_minute = per_minute(settings).and_then(NonZeroU32::new)?;
        let rates = RequestRates::new(per_minute.get(), Duration::from_secs(60));
        Some(Arc::new(rates))
    })
}

pub(super) fn stranger_rates(
    settings: &Settings,
    previous: Option<&PreviousApp<'_>>,
) -> Option<Arc<StrangerRates>> {
    let per_second = |settings: &Settings| settings.listen.refusals_per_peer_per_second;
    let present = |app: &App| app.stranger_rates.clone();
    unchanged(settings, previous, present, per_second).unwrap_or_else(|| {
        let per_second = per_second(settings).and_then(NonZeroU32::new)?;
        Some(Arc::new(StrangerRates::new(per_second)))
    })
}

/// The shared resources, and how much of them one user may use.
fn usage_limits(settings: &Settings) -> UsageLimits {
    let part = match settings.auth {
        AuthSettings::None => SharePart::Whole,
        _ => SharePart::Quarter,
    };
    let (listen, upstream) = (&settings.listen, &settings.upstream);
    let calls_max = listen.calls_per_user_at_once.filter(|max| *max > 0);
    UsageLimits {
        calls_max: calls_max.map(|max| usize::try_from(max).unwrap_or(usize::MAX)),
        messages: MemoryBudget::new(
            listen.body_budget_bytes,
            listen.body_bytes_max,
            part,
            "listen.body_budget_bytes",
            || Box::pin(tokio::time::sleep(ROOM_WITHIN)),
        ),
        replies: MemoryBudget::new(
            upstream.reply_budget_bytes,
            upstream.event_bytes_max,
            part,
            "upstream.reply_budget_bytes",
            || Box::pin(tokio::time::sleep(ROOM_WITHIN)),
        ),
    }
}
