//! The limit of open files: each client connection needs one, and most need another to an upstream.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one, which needs no privileges, and returns the resulting limit; none if there is
/// no limit.
pub(super) fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return limit.current;
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, limit = limit.current, "the open files limit could not be raised");
            limit.current
        }
    }
}

/// The smaller of `configured` and half of the open files limit: the other half is for upstream connections, child
/// processes and the store.
pub(super) fn connections_max(configured: usize, open_files_max: Option<u64>) -> usize {
    let half = open_files_max.map_or(usize::MAX, |files| {
        usize::try_from(files / 2).unwrap_or(usize::MAX)
    });
    if half < configured {
        tracing::warn!(
            configured,
            used = half,
            "listen.connections_max is more than half of the open files that the system allows; raise that limit (ulimit -n)"
        );
    }
    configured.min(half.max(1))
}

#[cfg(test)]
mod tests {
    use super::connections_max;

    #[test]
    fn half_of_the_files_are_left_for_everything_else() {
        for (configured, files, expected) in [
            (10_000, None, 10_000),
            (10_000, Some(1_048_576), 10_000),
            (10_000, Some(20_000), 10_000),
            (10_000, Some(1_024), 512),
            (10, Some(1), 1),
        ] {
            assert_eq!(connections_max(configured, files), expected, "{files:?}");
        }
    }
}
