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

pub(super) const FLEET: NavigationItem = NavigationItem {
    path: "/ui/fleet",
    label: "Fleet",
    key: 'f',
    rights: &[Right::FleetRead],
};
pub(super) const TRAFFIC: NavigationItem = NavigationItem {
    path: "/ui/traffic",
    label: "Traffic",
    key: 't',
    rights: &[Right::FleetRead],
};
pub(super) const SESSIONS: NavigationItem = NavigationItem {
    path: "/ui/sessions",
    label: "Sessions",
    key: 's',
    rights: &[Right::SessionsRead],
};
pub(super) const SERVERS: NavigationItem = NavigationItem {
    path: "/ui/servers",
    label: "Servers",
    key: 'v',
    rights: &[Right::FleetRead],
};
pub(super) const RIGHTS: NavigationItem = NavigationItem {
    path: "/ui/rights",
    label: "Rights",
    key: 'a',
    rights: &[Right::SessionsRead],
};
pub(super) const RUNS: NavigationItem = NavigationItem {
    path: "/ui/runs",
    label: "Runs",
    key: 'r',
    rights: &[Right::ServersRead],
};
pub(super) const SKILLS: NavigationItem = NavigationItem {
    path: "/ui/skills",
    label: "Skills",
    key: 'k',
    rights: &[
        Right::ServersRead,
        Right::SkillsApprove,
        Right::SkillsRevoke,
    ],
};
pub(super) const EVENTS: NavigationItem = NavigationItem {
    path: "/ui/events",
    label: "Security events",
    key: 'e',
    rights: &[Right::ServersRead],
};
pub(super) const TRY_CALL: NavigationItem = NavigationItem {
    path: "/ui/call",
    label: "Try a call",
    key: 'c',
    rights: &VIEWING,
};
pub(super) const RELOAD: NavigationItem = NavigationItem {
    path: "/ui/reload",
    label: "Reload",
    key: 'l',
    rights: &[Right::Admin],
};

/// Every page of the navigation, in its order.
pub(super) const NAVIGATION: [NavigationItem; 10] = [
    FLEET, TRAFFIC, SESSIONS, SERVERS, RUNS, SKILLS, EVENTS, RIGHTS, TRY_CALL, RELOAD,
];
