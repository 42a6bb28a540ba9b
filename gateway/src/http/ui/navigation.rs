//! The pages of the navigation, and the rights that each needs.

use mooring_settings::Right;

/// The rights with each of which there is something to see.
pub(super) const VIEWING: [Right; 8] = [
    Right::ServersRead,
    Right::SkillsApprove,
    Right::SkillsRevoke,
    Right::SessionsRead,
    Right::SessionsManage,
    Right::FleetRead,
    Right::FleetManage,
    Right::ServersManage,
];

/// A page in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NavigationItem {
    pub(super) path: &'static str,
    pub(super) label: &'static str,
    /// The key that opens it, after `g`.
    pub(super) key: char,
    /// One of these rights is needed.
    pub(super) rights: &'static [Right],
}

impl NavigationItem {
    const fn new(
        path: &'static str,
        label: &'static str,
        key: char,
        rights: &'static [Right],
    ) -> Self {
        Self {
            path,
            label,
            key,
            rights,
        }
    }
}

pub(super) const FLEET: NavigationItem =
    NavigationItem::new("/ui/fleet", "Fleet", 'f', &[Right::FleetRead]);
pub(super) const TRAFFIC: NavigationItem =
    NavigationItem::new("/ui/traffic", "Traffic", 't', &[Right::FleetRead]);
pub(super) const SESSIONS: NavigationItem =
    NavigationItem::new("/ui/sessions", "Sessions", 's', &[Right::SessionsRead]);
pub(super) const SERVERS: NavigationItem =
    NavigationItem::new("/ui/servers", "Servers", 'v', &[Right::FleetRead]);
pub(super) const RIGHTS: NavigationItem =
    NavigationItem::new("/ui/rights", "Rights", 'a', &[Right::SessionsRead]);
pub(super) const RUNS: NavigationItem =
    NavigationItem::new("/ui/runs", "Runs", 'r', &[Right::ServersRead]);
pub(super) const SKILLS: NavigationItem = NavigationItem::new(
    "/ui/skills",
    "Skills",
    'k',
    &[
        Right::ServersRead,
        Right::SkillsApprove,
        Right::SkillsRevoke,
    ],
);
pub(super) const EVENTS: NavigationItem =
    NavigationItem::new("/ui/events", "Security events", 'e', &[Right::ServersRead]);
pub(super) const TRY_CALL: NavigationItem =
    NavigationItem::new("/ui/call", "Try a call", 'c', &VIEWING);
pub(super) const RELOAD: NavigationItem =
    NavigationItem::new("/ui/reload", "Reload", 'l', &[Right::Admin]);

/// Every page of the navigation, in its order.
pub(super) const NAVIGATION: [NavigationItem; 10] = [
    FLEET, TRAFFIC, SESSIONS, SERVERS, RUNS, SKILLS, EVENTS, RIGHTS, TRY_CALL, RELOAD,
];
