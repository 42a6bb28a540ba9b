//! The settings: one typed tree, parsed whole before a port is bound.
//!
//! Texts come from the command line, the environment and a TOML file ([`source`]); each subsystem's file parses its
//! own; one table ([`table`]) lists every setting, and the documents are generated from it ([`generate`]). If any
//! setting is unknown or invalid, all problems are reported and nothing is started. A secret never appears in an error
//! message or in `Debug`.

mod access;
mod affinity;
mod auth;
mod changes;
mod code;
mod contextforge;
mod file;
pub mod generate;
mod globs;
mod hooks;
mod hosts;
mod listen;
mod log;
mod paths;
mod peers;
mod problem;
mod reader;
mod redis_url;
mod rows;
mod server_files;
mod servers;
mod setting;
mod source;
mod store;
mod table;
mod telemetry;
#[cfg(test)]
mod tests;
mod token;
mod ui;
mod unknown;
mod upstream;
mod value;
mod vault;
mod worker;

use std::path::{Path, PathBuf};

use code::CodeSection;
use file::FileTables;
use reader::Reader;
use source::Layers;
use value::Value;

pub use access::{AccessRule, CallerMatch, Grant, Right, ToolMatch};
pub use affinity::{Affinity, AffinitySettings};
pub use auth::{AuthSettings, CertificateName, TrustedHeaderSettings};
pub use changes::SettingsChanges;
pub use code::{
    AnswerForm, CallPolicy, CallVerdict, CodePolicy, CodeRuntime, CodeServerSettings,
    CodeSessionOwner, CodeSettings, CodeTool, CodeToolSettings, DangerousPatterns, Language,
    MountRules, NetworkPolicy, OnDenoAbsent, PersonalDataType, RecordSettings, RuntimeSettings,
    SkillScope, SkillSettings, StubFormat, TextPattern, TokenizationSettings,
};
pub use globs::Globs;
pub use hooks::{HookPhase, HookSettings, OnHookFailure};
pub use hosts::{AllowedHosts, AllowedOrigins, HostRule, Origin};
pub use listen::{
    CertificateFiles, ConnectionSettings, ListenSettings, ListenerTlsSettings, ProbeDetail,
};
pub use log::{LogFormat, LogLevel, LogSettings, LoggedRequests};
pub use peers::{ADDRESS_TAG_BYTES, FleetKeysFile, PeerAddress, PeerSettings};
pub use problem::{Problem, SettingsError};
pub use redis_url::{
    RedisAddress, RedisCluster, RedisEndpoint, RedisLogin, RedisTlsFiles, RedisTopology, RedisUrl,
    RespVersion, SentinelService,
};
pub use servers::{
    AgentServerSettings, ChildVariables, ClientAuthentication, CommandLine, CommandTemplate,
    Concurrency, Condition, Continuity, EraChoice, GroupNames, GroupServerSettings,
    HttpServerSettings, INHERITED_DEFAULT, Instance, LostStateNotice, OauthSettings,
    OnUpstreamLoss, OutputForm, OutputRules, Pointer, Results, ServerId, ServerKind,
    ServerSettings, StdioServerSettings, TemplateError, TokenGrant, UpstreamHeaders,
    UserSecretSettings,
};
pub use source::{Environment, Flags};
pub use store::{ModuleUse, OnUnavailable, StoreLocation, StoreSettings};
pub use telemetry::TelemetrySettings;
pub use token::{SigningAlgorithm, TokenSettings, is_fetched_safely};
pub use ui::{SignInProvider, UiSettings};
pub use unknown::{CONFIG_VARIABLE, TOKEN_VARIABLE};
pub use upstream::UpstreamSettings;
pub use vault::VaultSettings;
pub use worker::{WorkerName, WorkerSettings};

/// Everything that can be set, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Where clients connect.
    pub listen: ListenSettings,
    /// Where session records live.
    pub store: StoreSettings,
    /// Whether sessions keep their upstream instance.
    pub affinity: AffinitySettings,
    /// How this process is known to the fleet.
    pub worker: WorkerSettings,
    /// How upstream servers are talked to.
    pub upstream: UpstreamSettings,
    /// How servers of kind `code` run what agents write; there exactly where one of `servers` is of that kind.
    pub code: Option<CodeSettings>,
    /// Who a request is from.
    pub auth: AuthSettings,
    /// The rights that callers get besides those that their roles name.
    pub grants: Vec<Grant>,
    /// How the secrets are kept that users store for servers.
    pub vault: VaultSettings,
    /// The services that are asked about tool calls, in their order.
    pub hooks: Vec<HookSettings>,
    /// What is logged.
    pub log: LogSettings,
    /// The operators' page.
    pub ui: UiSettings,
    /// Where traces are sent.
    pub telemetry: TelemetrySettings,
    /// The servers, with distinct ids.
    pub servers: Vec<ServerSettings>,
    /// The server that `/mcp` means; always one of `servers`.
    pub default_server: Option<ServerId>,
}

/// The parsed settings, and warnings about them to log.
#[derive(Debug)]
pub struct LoadedSettings {
    /// Everything that can be set, checked.
    pub settings: Settings,
    /// Warnings, as sentences.
    pub remarks: Vec<String>,
}

impl Settings {
    /// Reads the file that is named, or the user's own, and takes every value from where it wins.
    ///
    /// # Errors
    /// Everything that is wrong, at once. Only a file that cannot be read or parsed is reported before its
    /// contents are looked at: without them the rest cannot be judged.
    pub fn load(environment: &Environment, flags: &Flags) -> Result<LoadedSettings, SettingsError> {
        Self::load_with(environment, flags, None)
    }

    /// The same with servers that were added, as a JSON list that people know by this name. Beside them, the settings are
    /// what they are without.
    ///
    /// # Errors
    /// See [`Settings::load`].
    pub fn load_with(
        environment: &Environment,
        flags: &Flags,
        added: Option<(&str, &str)>,
    ) -> Result<LoadedSettings, SettingsError> {
        let mut errors = SettingsError::default();
        let file = read_file(environment, flags, &mut errors);
        let mut files = server_files::read_directory(&file, environment, flags, &mut errors);
        if let Some((name, servers_json)) = added {
            files.push(FileTables::parse_json(name, servers_json, &mut errors).into_added());
        }
        parse(&file, &files, environment, flags, errors)
    }

    /// The server of this id.
    pub fn server(&self, id: &str) -> Option<&ServerSettings> {
        self.servers.iter().find(|server| server.id.as_str() == id)
    }

    /// Most conversations of one principal: they are counted over all agent servers, of whose numbers the largest
    /// counts.
    pub fn agent_sessions_max(&self) -> u64 {
        let of_each = self.servers.iter().filter_map(|server| match &server.kind {
            ServerKind::Agent(agent) => Some(agent.sessions_max),
            _ => None,
        });
        of_each.max().unwrap_or(1)
    }

    /// Whether a server gets signed tokens with the caller's identity. The fleet keys are then set.
    pub fn forwards_identity(&self) -> bool {
        self.servers.iter().any(ServerSettings::forwards_identity)
    }

    /// Whether a server gets tokens in exchange for those of its callers. Callers are then authenticated by tokens.
    pub fn exchanges_tokens(&self) -> bool {
        self.servers.iter().any(ServerSettings::exchanges_tokens)
    }

    /// Whether a server has connections that live in one worker, so that workers forward to each other. The keys of
    /// the fleet are then there, and the address that is advertised is no wildcard.
    pub fn needs_peers(&self) -> bool {
        self.servers
            .iter()
            .any(|server| server.kind.lives_in_one_worker())
    }
}

/// The user's own settings file in the directory of the XDG base directory rule.
const FILE_OF_USER: &str = "mooring/mooring.toml";

/// The file that `--config`, else `MOORING_CONFIG` names; else the user's own, if there is one; else an empty one.
fn read_file(environment: &Environment, flags: &Flags, errors: &mut SettingsError) -> FileTables {
    match (&flags.config, environment.get(CONFIG_VARIABLE)) {
        (Some(path), _) => FileTables::read(path, "--config", errors),
        (None, Some(Value::Word(path))) => {
            FileTables::read(Path::new(&path), CONFIG_VARIABLE, errors)
        }
        (None, Some(_)) => {
            let allowed = "the path of a TOML file";
            errors.refuse(
                CONFIG_VARIABLE,
                "environment",
                "",
                "it is not UTF-8",
                allowed,
            );
            FileTables::default()
        }
        (None, None) => match file_of_user(environment) {
            Some(path) => FileTables::read(&path, "XDG_CONFIG_HOME", errors),
            None => FileTables::default(),
        },
    }
}

/// `$XDG_CONFIG_HOME/mooring/mooring.toml`, if it is there. A directory that may not be read is ignored, as the XDG
/// specification requires; an existing file that cannot be read is an error.
fn file_of_user(environment: &Environment) -> Option<PathBuf> {
    let path = paths::config_home(environment)?.join(FILE_OF_USER);
    path.try_exists().is_ok_and(|exists| exists).then_some(path)
}

fn parse(
    file: &FileTables,
    server_files: &[FileTables],
    environment: &Environment,
    flags: &Flags,
    mut errors: SettingsError,
) -> Result<LoadedSettings, SettingsError> {
    if !errors.is_empty() {
        return Err(errors);
    }
    unknown::refuse_unknown_keys(file, table::SECTIONS, &mut errors);
    let mut remarks = Vec::new();
    let remark = unknown::refuse_unknown_variables(environment, table::SECTIONS, &mut errors);
    remarks.extend(remark);
    remarks.extend(contextforge::remarks(environment));
    let layers = Layers {
        flags,
        environment,
        file,
    };

    let mut reader = Reader::new(&layers, environment, &mut errors);
    let listen = ListenSettings::read(&mut reader);
    let store = StoreSettings::read(&mut reader);
    let affinity = AffinitySettings::read(&mut reader);
    let worker = WorkerSettings::parse(&mut reader, &store);
    let upstream = UpstreamSettings::parse(&mut reader);
    let code = CodeSection::read(&mut reader, &store);
    let (auth, tokens) = auth::parse(&mut reader);
    let grants = access::parse_grants(&mut reader);
    let vault = VaultSettings::read(&mut reader);
    let hooks = hooks::parse(&mut reader);
    let log = LogSettings::read(&mut reader);
    let ui = UiSettings::parse(&mut reader, &auth, &tokens);
    let telemetry = TelemetrySettings::read(&mut reader);
    refuse_open_door(&mut reader, &listen, &auth);
    auth.check_listener(&mut reader, &listen);
    store.check(&mut reader);
    contextforge::refuse_missing_authentication(&mut reader, environment, &auth);
    let standard = match flags.wanted {
        // A client that starts its server itself is to find its session again when it starts the next.
        Some(_) => Affinity::On,
        None => affinity.default_affinity,
    };
    let of_environment = server_files::of_environment(environment, &mut errors);
    let server_files: Vec<&FileTables> = std::iter::once(file)
        .chain(&of_environment)
        .chain(server_files)
        .collect();
    let mut servers = servers::parse(
        &server_files,
        flags,
        environment,
        standard,
        &code,
        &mut errors,
    );
    if !code.is_enabled() {
        remarks.extend(servers::leave_out_code(&mut servers));
    }
    let mut reader = Reader::new(&layers, environment, &mut errors);
    let code = servers
        .iter()
        .find(|server| matches!(server.kind, ServerKind::Code(_)))
        .map(|_| code.for_servers(&mut reader));
    if let Some(server) = servers.iter().find(|server| server.forwards_identity()) {
        let need = format!(
            "server {:?} gets identity tokens (forward_identity)",
            server.id.as_str()
        );
        worker
            .peers
            .check_keys(&mut reader, &need, "they are signed with");
    }
    if let Some(server) = servers.iter().find(|server| server.exchanges_tokens()) {
        auth.check_tokens(&mut reader, server.id.as_str());
    }
    let with_secrets = |server: &&ServerSettings| server.user_secret().is_some();
    if let Some(server) = servers.iter().find(with_secrets) {
        vault.check(&mut reader, &auth, server.id.as_str());
    }
    let owned = servers
        .iter()
        .find(|server| server.kind.lives_in_one_worker());
    remarks.extend(owned.and_then(|server| {
        let need = format!(
            "the sessions of server {:?}, of kind \"{}\", live in one worker, to which the others forward",
            server.id.as_str(),
            server.kind.name()
        );
        worker.peers.check(&mut reader, &store, &need)
    }));
    let default_server = servers::parse_default(&mut reader, &servers);

    if !errors.is_empty() {
        return Err(errors);
    }
    if servers.is_empty() {
        remarks.push(
            "no server is configured, so there is nothing to serve; add a [[servers]] table or --server ID=URL"
                .to_owned(),
        );
    }
    remarks.extend(access_remarks(&auth, &servers));
    Ok(LoadedSettings {
        settings: Settings {
            listen,
            store,
            affinity,
            worker,
            upstream,
            code,
            auth,
            grants,
            vault,
            hooks,
            log,
            ui,
            telemetry,
            servers,
            default_server,
        },
        remarks,
    })
}

/// Rules that have no effect, and servers that no caller may use.
fn access_remarks(auth: &AuthSettings, servers: &[ServerSettings]) -> Vec<String> {
    let is_open = matches!(auth, AuthSettings::None);
    let remarks = servers.iter().filter_map(|server| {
        let id = server.id.as_str();
        match (is_open, &server.allow, &server.kind) {
            (true, Some(_), _) => Some(format!(
                "servers.allow of server {id:?} has no effect: with auth.mode = \"none\" everybody may use every server"
            )),
            (false, None, ServerKind::Code(_) | ServerKind::Agent(_)) => Some(format!(
                "no caller may use server {id:?}: a server of kind \"{}\" needs servers.allow as soon as auth.mode is \
                 not \"none\"",
                server.kind.name()
            )),
            _ => None,
        }
    });
    remarks.collect()
}

/// Without authentication every client is the same principal, so only local clients may connect.
fn refuse_open_door(reader: &mut Reader<'_>, listen: &ListenSettings, auth: &AuthSettings) {
    let is_open = matches!(auth, AuthSettings::None) && !listen.address.ip().is_loopback();
    if !is_open || reader.was_refused(&auth::MODE) {
        return;
    }
    reader.refuse(
        &ListenSettings::address,
        format!("{:?}", listen.address.to_string()),
        "auth.mode is \"none\", and other machines can reach this address: everybody there would be the \
         same principal",
        "a loopback address such as 127.0.0.1:4444, or auth.mode = \"trusted-header\" with \
         auth.trusted_peers, or auth.mode = \"jwt\", \"api-key\" or \"mtls\"",
    );
}
