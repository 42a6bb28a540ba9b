//! `[listen]`: where clients connect, and which of their requests are heard at all.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::connections::{self, ConnectionSettings};
use super::hosts::{AllowedHosts, AllowedOrigins, HostRule, Origin};
use super::reader::{Reader, Reason};
use super::setting::{Choice, ChoiceOption, Disclosure, Integer, List, Setting, SettingInfo, Text};

pub(super) const ADDRESS: Text = Text {
    about: SettingInfo::new(
        "listen.address",
        "The one address and port that clients connect to. An address that other machines can reach needs \
         `auth.mode` other than `none`. Port 0 lets the system choose a free port.",
    )
    .flag("--listen"),
    default: Some("127.0.0.1:4444"),
    shape: "an IP address and a port, such as 127.0.0.1:4444, 0.0.0.0:4444 or [::1]:4444",
    bytes_max: 64,
    disclosure: Disclosure::Open,
};

pub(super) const ALLOWED_HOSTS: List = List {
    about: SettingInfo::new(
        "listen.allowed_hosts",
        "The Host headers that are answered; any other gets 421. This keeps a web page that points its own \
         name at this machine (DNS rebinding) away. A name without a port allows every port; `*` alone \
         turns the check off.",
    )
    .unset("localhost, 127.0.0.1, [::1] and the address of `listen.address`, on every port"),
    shape: "host names or addresses with or without a port, such as gateway.example, 10.0.0.7:4444 or [::1], \
            or \"*\" alone",
    items_max: 64,
    item_bytes_max: 260,
    disclosure: Disclosure::Open,
};

pub(super) const ALLOWED_ORIGINS: List = List {
    about: SettingInfo::new(
        "listen.allowed_origins",
        "The web origins whose pages may call the gateway: their browsers are answered as CORS asks, without \
         cookies. A request with any other Origin header gets 403. Requests without an Origin header do not \
         come from a web page and are not concerned.",
    )
    .unset(
        "pages served by this machine itself (localhost, 127.0.0.1 and [::1], every port) while \
         `listen.address` is a loopback address, otherwise none",
    ),
    shape: "origins, each a scheme, a host and a port if it is not the scheme's own, such as \
            https://app.example or http://localhost:6274",
    items_max: 64,
    item_bytes_max: 300,
    disclosure: Disclosure::Open,
};

pub(super) const BODY_BYTES_MAX: Integer = Integer {
    about: SettingInfo::new(
        "listen.body_bytes_max",
        "The largest request body that is read; a larger one gets 413.",
    ),
    unit: "bytes",
    default: 4 * 1024 * 1024,
    least: 1024,
    most: 64 * 1024 * 1024,
};

pub(super) const BODY_BUDGET_BYTES: Integer = Integer {
    about: SettingInfo::new(
        "listen.body_budget_bytes",
        "The most bytes of all request bodies together that are held at a time, from the first byte that is read to the \
         moment at which the request needs its body no more. A request whose body no longer fits gets 503 with \
         Retry-After. At least `listen.body_bytes_max`.",
    ),
    unit: "bytes",
    default: 256 * 1024 * 1024,
    least: 1024,
    most: 64 * 1024 * 1024 * 1024,
};

pub(super) const PROBE_DETAIL: Choice<ProbeDetail> = Choice {
    about: SettingInfo::new(
        "listen.probe_detail",
        "Who sees what is behind `/readyz`, such as the names of servers and their state, and `/metrics`. Others are \
         told the status of `/readyz` alone, and get 403 for `/metrics`. `/healthz` is the same for everybody.",
    ),
    default: ChoiceOption {
        name: "trusted",
        value: ProbeDetail::Trusted,
        meaning: "loopback addresses and `auth.trusted_peers`",
    },
    others: &[ChoiceOption {
        name: "everyone",
        value: ProbeDetail::Everyone,
        meaning: "whoever can connect, for instance a scraper that is no proxy",
    }],
    later: &[],
};

/// The rows of this section.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::Text(&ADDRESS),
    Setting::List(&ALLOWED_HOSTS),
    Setting::List(&ALLOWED_ORIGINS),
    Setting::Integer(&BODY_BYTES_MAX),
    Setting::Integer(&BODY_BUDGET_BYTES),
    Setting::Choice(&PROBE_DETAIL),
];

const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4444);

/// Who sees the detail of health probes, and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeDetail {
    /// Loopback addresses and the trusted peers.
    Trusted,
    /// Whoever can connect.
    Everyone,
}

/// Where clients connect and which of their requests are heard.
#[derive(Debug, Clone)]
pub struct ListenSettings {
    /// The one address to bind; port 0 asks the system for a free one.
    pub address: SocketAddr,
    /// Host headers that are answered.
    pub allowed_hosts: AllowedHosts,
    /// Origin headers that are answered.
    pub allowed_origins: AllowedOrigins,
    /// Largest request body in bytes.
    pub body_bytes_max: usize,
    /// Most bytes of all request bodies that are held at a time.
    pub body_budget_bytes: usize,
    /// Who sees the detail of health probes, and metrics.
    pub probe_detail: ProbeDetail,
    /// What their connections may use up.
    pub connections: ConnectionSettings,
}

pub(super) fn parse(reader: &mut Reader<'_>) -> ListenSettings {
    let address = reader
        .text(&ADDRESS, parse_address)
        .unwrap_or(DEFAULT_ADDRESS);
    let body_bytes_max = usize::try_from(reader.integer(&BODY_BYTES_MAX)).unwrap_or(usize::MAX);
    ListenSettings {
        address,
        allowed_hosts: parse_hosts(reader, address),
        allowed_origins: parse_origins(reader, address),
        body_bytes_max,
        body_budget_bytes: parse_body_budget(reader, body_bytes_max),
        probe_detail: reader.choice(&PROBE_DETAIL),
        connections: connections::parse(reader),
    }
}

fn parse_body_budget(reader: &mut Reader<'_>, body_bytes_max: usize) -> usize {
    let budget = usize::try_from(reader.integer(&BODY_BUDGET_BYTES)).unwrap_or(usize::MAX);
    if budget < body_bytes_max {
        reader.refuse(
            &BODY_BUDGET_BYTES.about,
            budget.to_string(),
            format!("a body of listen.body_bytes_max ({body_bytes_max} bytes) would never fit"),
            format!("{body_bytes_max} or more, or a lower listen.body_bytes_max"),
        );
    }
    budget
}

fn parse_address(text: &str) -> Result<SocketAddr, Reason> {
    text.parse().map_err(|_| {
        let name = text.rsplit_once(':').map_or(text, |(host, _)| host);
        if name.parse::<IpAddr>().is_ok() {
            "it has no valid port".to_owned()
        } else {
            format!("{name:?} is not an IP address; names are not looked up here")
        }
    })
}

fn parse_hosts(reader: &mut Reader<'_>, address: SocketAddr) -> AllowedHosts {
    let written = reader.list(&ALLOWED_HOSTS, |item| match item {
        "*" => Ok(None),
        name => HostRule::parse(name).map(Some),
    });
    let Some(items) = written else {
        return AllowedHosts::defaults_for(address.ip());
    };
    let any = items.iter().any(Option::is_none);
    let rules: Vec<HostRule> = items.into_iter().flatten().collect();
    if any && !rules.is_empty() {
        reader.refuse(
            &ALLOWED_HOSTS.about,
            "\"*\" beside other hosts".to_owned(),
            "\"*\" allows every host, so the others would mean nothing".to_owned(),
            ALLOWED_HOSTS.allowed(),
        );
    }
    if any {
        AllowedHosts::Any
    } else {
        AllowedHosts::Listed(rules)
    }
}

fn parse_origins(reader: &mut Reader<'_>, address: SocketAddr) -> AllowedOrigins {
    match reader.list(&ALLOWED_ORIGINS, Origin::parse_exact) {
        Some(origins) => AllowedOrigins::Listed(origins),
        None if address.ip().is_loopback() => AllowedOrigins::Loopback,
        None => AllowedOrigins::Listed(Vec::new()),
    }
}
