//! `[auth]`: who a request is from, and who may say so.

use http::HeaderName;
use ipnet::IpNet;

use super::reader::{Reader, Reason};
use super::setting::{Choice, ChoiceOption, Disclosure, List, Setting, SettingInfo, Text};

pub(super) const MODE: Choice<Mode> = Choice {
    about: SettingInfo::new("auth.mode", "How the principal of a request is found."),
    default: ChoiceOption {
        name: "none",
        value: Mode::None,
        meaning: "everybody is the principal `local`; only on a loopback address",
    },
    others: &[ChoiceOption {
        name: "trusted-header",
        value: Mode::TrustedHeader,
        meaning: "a proxy that has checked the user names it in a header",
    }],
    later: &["jwt"],
};

pub(super) const USER_HEADER: Text = header_setting(
    SettingInfo::new(
        "auth.user_header",
        "The header that names the principal. The proxy must overwrite it on every request.",
    ),
    "x-mooring-user",
);

pub(super) const TEAMS_HEADER: Text = header_setting(
    SettingInfo::new(
        "auth.teams_header",
        "The header that lists the principal's teams, separated by commas. The proxy must overwrite it.",
    ),
    "x-mooring-teams",
);

pub(super) const ROLES_HEADER: Text = header_setting(
    SettingInfo::new(
        "auth.roles_header",
        "The header that lists the principal's roles, separated by commas. The proxy must overwrite it.",
    ),
    "x-mooring-roles",
);

pub(super) const TRUSTED_PEERS: List = List {
    about: SettingInfo::new(
        "auth.trusted_peers",
        "The proxies whose headers are believed; a request from any other peer gets 403. Required where \
         `auth.mode` is `trusted-header`, refused where it is `none`.",
    )
    .unset("nobody is believed"),
    shape: "IP addresses or networks, such as 10.0.0.7, 10.0.0.0/8 or fd00::/8",
    items_max: 256,
    item_bytes_max: 64,
    disclosure: Disclosure::Open,
};

/// Headers that no proxy can use to name a user: HTTP, browsers or MCP clients set them, or they belong to one connection.
const STANDARD_HEADERS: &[&str] = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "origin",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "referer",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-mcp-session-id",
    "x-real-ip",
];

/// The rows of this section.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::Choice(&MODE),
    Setting::Text(&USER_HEADER),
    Setting::Text(&TEAMS_HEADER),
    Setting::Text(&ROLES_HEADER),
    Setting::List(&TRUSTED_PEERS),
];

const fn header_setting(about: SettingInfo, default: &'static str) -> Text {
    Text {
        about,
        default: Some(default),
        shape: "the name of an HTTP header",
        bytes_max: 64,
        disclosure: Disclosure::Open,
    }
}

/// The words of `auth.mode`, before the rest of the section is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    None,
    TrustedHeader,
}

/// Who a request is from, and who may say so.
#[derive(Debug, Clone)]
pub enum AuthSettings {
    /// Everybody is `local`.
    None,
    /// A listed proxy says who it is.
    TrustedHeader(TrustedHeaderSettings),
}

/// Which headers are believed, and from whom.
#[derive(Debug, Clone)]
pub struct TrustedHeaderSettings {
    /// Names the principal.
    pub user_header: HeaderName,
    /// Lists the teams.
    pub teams_header: HeaderName,
    /// Lists the roles.
    pub roles_header: HeaderName,
    /// The proxies that are believed; never empty.
    pub trusted_peers: Vec<IpNet>,
}

impl AuthSettings {
    /// Whether the peer is one of `auth.trusted_peers`. An IPv4 address is given as such.
    #[must_use]
    pub fn trusts(&self, peer: std::net::IpAddr) -> bool {
        match self {
            Self::None => false,
            Self::TrustedHeader(headers) => {
                (headers.trusted_peers.iter()).any(|network| network.contains(&peer))
            }
        }
    }
}

pub(super) fn parse(reader: &mut Reader<'_>) -> AuthSettings {
    let mode = reader.choice(&MODE);
    let headers = TrustedHeaderSettings {
        user_header: parse_header(reader, &USER_HEADER),
        teams_header: parse_header(reader, &TEAMS_HEADER),
        roles_header: parse_header(reader, &ROLES_HEADER),
        trusted_peers: reader.list(&TRUSTED_PEERS, parse_peer).unwrap_or_default(),
    };
    refuse_equal_headers(reader, &headers);
    if !reader.was_refused(&MODE.about) && !reader.was_refused(&TRUSTED_PEERS.about) {
        refuse_mode_against_peers(reader, mode, &headers.trusted_peers);
    }
    match mode {
        Mode::None => AuthSettings::None,
        Mode::TrustedHeader => AuthSettings::TrustedHeader(headers),
    }
}

fn parse_header(reader: &mut Reader<'_>, setting: &'static Text) -> HeaderName {
    let parsed = reader.text(setting, |text| {
        let name = HeaderName::try_from(text)
            .map_err(|_| "it cannot be the name of an HTTP header".to_owned())?;
        match STANDARD_HEADERS.contains(&name.as_str()) {
            true => Err(format!(
                "{name:?} has a meaning of its own in HTTP or MCP, and clients set it"
            )),
            false => Ok(name),
        }
    });
    // The stand-in is never used: a missing name means that a problem was noted.
    parsed.unwrap_or(http::header::WARNING)
}

fn parse_peer(text: &str) -> Result<IpNet, Reason> {
    let address = text.parse::<std::net::IpAddr>().map(IpNet::from);
    let network = address
        .or_else(|_| text.parse::<IpNet>())
        .map_err(|_| format!("{text:?} is no IP address and no network"))?;
    if network.prefix_len() == 0 {
        return Err(format!(
            "{text:?} is every address: whoever connects could say that they are anybody; list the proxies' own"
        ));
    }
    Ok(network)
}

fn refuse_equal_headers(reader: &mut Reader<'_>, headers: &TrustedHeaderSettings) {
    let any_refused = [&USER_HEADER, &TEAMS_HEADER, &ROLES_HEADER]
        .iter()
        .any(|setting| reader.was_refused(&setting.about));
    if any_refused {
        return;
    }
    let pairs = [
        (&TEAMS_HEADER, &headers.teams_header, &headers.user_header),
        (&ROLES_HEADER, &headers.roles_header, &headers.user_header),
        (&ROLES_HEADER, &headers.roles_header, &headers.teams_header),
    ];
    for (setting, name, other) in pairs {
        if name == other {
            reader.refuse(
                &setting.about,
                format!("{:?}", name.as_str()),
                "one header cannot mean two things".to_owned(),
                "a header of its own for each of user, teams and roles".to_owned(),
            );
        }
    }
}

fn refuse_mode_against_peers(reader: &mut Reader<'_>, mode: Mode, peers: &[IpNet]) {
    match mode {
        Mode::TrustedHeader if peers.is_empty() => reader.refuse(
            &TRUSTED_PEERS.about,
            "[]".to_owned(),
            "auth.mode is \"trusted-header\", and without a trusted peer nobody could be heard".to_owned(),
            format!("at least one, in {}", TRUSTED_PEERS.allowed()),
        ),
        Mode::None if !peers.is_empty() => reader.refuse(
            &TRUSTED_PEERS.about,
            "[...]".to_owned(),
            "auth.mode is \"none\", which believes no header from anybody; set it to \"trusted-header\" \
             or leave the peers out"
                .to_owned(),
            String::new(),
        ),
        Mode::TrustedHeader | Mode::None => {}
    }
}
