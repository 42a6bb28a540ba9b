//! What a running gateway takes from new settings, and what needs a restart.
//!
//! Invariants: what can change is listed in one place, [`Settings::take_changes`]; everything else keeps its value, and
//! is named if the new settings have another one. Settings that were checked together are taken together or not at all.

use super::auth::AuthSettings;
use super::servers::{ServerId, ServerSettings};
use super::{ListenSettings, Settings, UpstreamSettings};

/// The differences between the settings of a running gateway and new ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingsChanges {
    /// Servers that are new.
    pub servers_added: Vec<ServerId>,
    /// Servers that are defined otherwise than before, in any field.
    pub servers_changed: Vec<ServerId>,
    /// Servers that are no longer there.
    pub servers_removed: Vec<ServerId>,
    /// The keys of changed settings that are applied.
    pub applied: Vec<String>,
    /// The keys of changed settings that are not: they need a restart.
    pub needs_restart: Vec<String>,
}

impl SettingsChanges {
    /// Whether nothing changes, and nothing would after a restart.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Settings {
    /// The settings with everything from `next` that can change while the gateway runs, and the differences.
    #[must_use]
    pub fn take_changes(&self, next: Self) -> (Self, SettingsChanges) {
        let taken = self.with_changes_of(next.clone());
        let next = Self {
            default_server: taken.default_server.clone(),
            ..next
        };
        let (added, changed, removed) = compare_servers(&self.servers, &taken.servers);
        let changes = SettingsChanges {
            servers_added: added,
            servers_changed: changed,
            servers_removed: removed,
            applied: self.changed_keys(&taken),
            needs_restart: taken.changed_keys(&next),
        };
        (taken, changes)
    }

    fn with_changes_of(&self, next: Self) -> Self {
        let mut affinity = self.affinity.clone();
        affinity.default_affinity = next.affinity.default_affinity;
        affinity.sessions_max = next.affinity.sessions_max;
        affinity.initializes_per_minute = next.affinity.initializes_per_minute;
        let mut vault = self.vault.clone();
        vault.page_url = next.vault.page_url;
        let mut log = self.log.clone();
        log.level = next.log.level;
        // Another way of authentication belongs to another listener, and was checked together with that.
        let is_same_mode = self.auth.mode() == next.auth.mode();
        let (auth, grants) = match is_same_mode {
            true => (next.auth, next.grants),
            false => (self.auth.clone(), self.grants.clone()),
        };
        // The only server is the default one. It does not cease to be that for its clients when another one comes.
        let is_served = |id: &ServerId| next.servers.iter().any(|server| server.id == *id);
        let present_default = self.default_server.clone().filter(is_served);
        Self {
            default_server: next.default_server.or(present_default),
            listen: ListenSettings {
                public_url: next.listen.public_url,
                allowed_hosts: next.listen.allowed_hosts,
                allowed_origins: next.listen.allowed_origins,
                requests_per_user_per_minute: next.listen.requests_per_user_per_minute,
                calls_per_user_at_once: next.listen.calls_per_user_at_once,
                refusals_per_peer_per_second: next.listen.refusals_per_peer_per_second,
                probe_detail: next.listen.probe_detail,
                body_budget_bytes: (next.listen.body_budget_bytes).max(self.listen.body_bytes_max),
                ..self.listen.clone()
            },
            upstream: UpstreamSettings {
                reply_budget_bytes: (next.upstream.reply_budget_bytes)
                    .max(self.upstream.event_bytes_max),
                ..self.upstream.clone()
            },
            store: self.store.clone(),
            worker: self.worker.clone(),
            ui: self.ui.clone(),
            telemetry: self.telemetry.clone(),
            // Code servers that begin now find what they need opened for them.
            code: match (&self.code, next.code) {
                (Some(present), Some(_)) => Some(present.clone()),
                (_, next) => next,
            },
            affinity,
            auth,
            grants,
            vault,
            hooks: next.hooks,
            log,
            servers: next.servers,
        }
    }

    /// The keys of the settings that `other` has otherwise, without those of servers.
    fn changed_keys(&self, other: &Self) -> Vec<String> {
        let of_section = |section: &str, keys: Vec<&'static str>| {
            let qualified = keys.into_iter().map(|key| match key.contains('.') {
                true => key.to_owned(),
                false => format!("{section}.{key}"),
            });
            qualified.collect::<Vec<_>>()
        };
        let code = match (&self.code, &other.code) {
            (Some(code), Some(other)) => code != other,
            _ => false,
        };
        let of_whole = [
            ("code", code),
            ("auth", self.auth != other.auth),
            ("auth.grants", self.grants != other.grants),
            ("calls.hooks", self.hooks != other.hooks),
            (
                "default.server",
                self.default_server != other.default_server,
            ),
        ];
        let mut keys = [
            of_section("listen", self.listen.changed_keys(&other.listen)),
            of_section("store", self.store.changed_keys(&other.store)),
            of_section("affinity", self.affinity.changed_keys(&other.affinity)),
            of_section("worker", self.worker.changed_keys(&other.worker)),
            of_section("upstream", self.upstream.changed_keys(&other.upstream)),
            of_section("vault", self.vault.changed_keys(&other.vault)),
            of_section("log", self.log.changed_keys(&other.log)),
            of_section("ui", self.ui.changed_keys(&other.ui)),
            of_section("telemetry", self.telemetry.changed_keys(&other.telemetry)),
        ]
        .concat();
        let changed = of_whole.iter().filter(|(_, is_changed)| *is_changed);
        keys.extend(changed.map(|(key, _)| (*key).to_owned()));
        keys
    }
}

/// The servers of `next` that are new and that are defined otherwise, and those that it does not have.
fn compare_servers(
    present: &[ServerSettings],
    next: &[ServerSettings],
) -> (Vec<ServerId>, Vec<ServerId>, Vec<ServerId>) {
    let find = |servers: &[ServerSettings], id: &ServerId| {
        (servers.iter().find(|server| server.id == *id)).cloned()
    };
    let (mut added, mut changed) = (Vec::new(), Vec::new());
    for server in next {
        match find(present, &server.id) {
            None => added.push(server.id.clone()),
            Some(present) if present != *server => changed.push(server.id.clone()),
            Some(_) => {}
        }
    }
    let removed = present.iter().map(|server| &server.id);
    let removed = removed.filter(|id| find(next, id).is_none()).cloned();
    (added, changed, removed.collect())
}

impl AuthSettings {
    /// Tells the modes apart.
    fn mode(&self) -> std::mem::Discriminant<Self> {
        std::mem::discriminant(self)
    }
}
