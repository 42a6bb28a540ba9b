//! The binary `mooring`: reads all settings first, then starts logging, then serves. A process that cannot run reports
//! the reason in one message and ends with a documented exit code.

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use mooring_code::volume;
use mooring_gateway::cli::{
    Cli, Command, ConfigCommand, DigestArguments, DoctorArguments, EXIT_BAD_SETTINGS, EXIT_CLEAN,
    EXIT_FAILURE, EXIT_SERVICE_MISSING, KeysArguments, ServeArguments, SessionsArguments,
    StdioArguments,
};
use mooring_gateway::client::{self, ClientCommand};
use mooring_gateway::logs::Logs;
use mooring_gateway::{
    CheckOutcome, ReloadSource, ServeError, SettingsCheck, check_files, diagnose, end_runtime,
    logs, refuse_problems, runtime, serve, serve_stdio,
};
use mooring_gateway::{digest_command, http, keys_command, sessions_command};
use mooring_pipeline::policy;
use mooring_settings::{
    Environment, Flags, LoadedSettings, RedisTopology, Settings, SettingsError, StoreLocation,
    generate,
};
use mooring_upstream::stdio::supervisor;
use mooring_upstream::with_causes;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

fn main() -> ExitCode {
    // Must come first: executed under the helper's name, this binary builds the isolation layers of one run.
    if mooring_sandbox::is_helper() {
        mooring_sandbox::helper();
    }
    // Or it supervises the child process of a session, and ends it.
    if supervisor::is_supervisor() {
        return supervisor::supervise();
    }
    // Or it tests that file locks work between two processes.
    if volume::is_second_process() {
        return volume::second_process();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A closed stdout does not change the exit code.
            let _ = error.print();
            let is_mistake = error.use_stderr();
            return ExitCode::from(if is_mistake {
                EXIT_BAD_SETTINGS
            } else {
                EXIT_CLEAN
            });
        }
    };
    let code = match cli.into_command() {
        Command::Serve(arguments) => run_serve(arguments),
        Command::Stdio(arguments) => run_stdio(arguments),
        Command::Config(command) => run_config(command),
        Command::Doctor(arguments) => run_doctor(arguments),
        Command::Runs(arguments) => run_client(ClientCommand::Runs(arguments)),
        Command::Skills(arguments) => run_client(ClientCommand::Skills(arguments)),
        Command::Events(arguments) => run_client(ClientCommand::Events(arguments)),
        Command::Sessions(arguments) => match ClientCommand::of_sessions(arguments) {
            Ok(over_gateway) => run_client(over_gateway),
            Err(on_store) => run_sessions(*on_store),
        },
        Command::Workers(arguments) => run_client(ClientCommand::Workers(arguments)),
        Command::Servers(arguments) => run_client(ClientCommand::Servers(arguments)),
        Command::Completion { shell } => print(&completion(shell)),
        Command::Top(arguments) => run_client(ClientCommand::Top(arguments)),
        Command::Whoami(arguments) => run_client(ClientCommand::Whoami(arguments)),
        Command::Reload(arguments) => run_client(ClientCommand::Reload(arguments)),
        Command::Digest(arguments) => run_digest(arguments),
        Command::Keys(arguments) => run_keys(arguments),
    };
    ExitCode::from(code)
}

fn run_serve(arguments: ServeArguments) -> u8 {
    let flags = Flags::from(arguments);
    run_gateway(&flags, |settings, logs| {
        let source = ReloadSource {
            flags: flags.clone(),
            log_level: logs.level(),
        };
        serve(settings, source)
    })
}

fn run_stdio(arguments: StdioArguments) -> u8 {
    let (flags, options) = arguments.split();
    run_gateway(&flags, |settings, _| serve_stdio(settings, options))
}

/// Runs a gateway until it stops: reads all settings, starts logging, then calls `serve`.
fn run_gateway<S: Future<Output = Result<(), ServeError>>>(
    flags: &Flags,
    serve: impl FnOnce(Settings, &Logs) -> S,
) -> u8 {
    // Before anything is read: servers that are programs run as the same user, and could otherwise read the environment
    // and the memory of this process, and stop it (ptrace).
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        return report_error(&error, EXIT_FAILURE);
    }
    let loaded = match Settings::load(&Environment::of_process(), flags) {
        Ok(loaded) => loaded,
        Err(error) => return report_error(&error, EXIT_BAD_SETTINGS),
    };
    let logs = match logs::start(&loaded.settings.log) {
        Ok(logs) => logs,
        Err(error) => return report_error(&error, EXIT_FAILURE),
    };
    // From here on stderr may have no reader, and only the log waits for one.
    let report_error = |error: &dyn std::error::Error, code| {
        logs.print(&reason_of_exit(error));
        code
    };
    for remark in &loaded.remarks {
        tracing::warn!("{remark}");
    }
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return report_error(&error, EXIT_FAILURE),
    };
    let served = runtime.block_on(serve(loaded.settings, &logs));
    end_runtime(runtime);
    match served {
        Ok(()) => EXIT_CLEAN,
        Err(error @ ServeError::Unavailable { .. }) => report_error(&error, EXIT_SERVICE_MISSING),
        Err(
            error @ (ServeError::NoServer { .. }
            | ServeError::NotOverStdio { .. }
            | ServeError::Name(_)),
        ) => report_error(&error, EXIT_BAD_SETTINGS),
        Err(error) => report_error(&error, EXIT_FAILURE),
    }
}

fn run_config(command: ConfigCommand) -> u8 {
    match command {
        ConfigCommand::Check(arguments) => match load(arguments.serve) {
            Ok(loaded) => {
                let checks = check_files(&loaded.settings);
                match refuse_problems(&checks) {
                    Ok(()) => {
                        let mut text = verdict(&loaded, &checks);
                        if let Some(caller) = &arguments.caller {
                            text.push_str(&policy::explain(&loaded.settings, caller));
                        }
                        print(&text)
                    }
                    Err(error) => report_error(&error, EXIT_SERVICE_MISSING),
                }
            }
            Err(error) => report_error(&error, EXIT_BAD_SETTINGS),
        },
        ConfigCommand::Example => print(&generate::environment_example()),
        ConfigCommand::Schema => print(&generate::json_schema()),
        ConfigCommand::Reference => print(&generate::reference_page()),
        ConfigCommand::Contextforge => print(&generate::contextforge_page()),
        ConfigCommand::Openapi => print(&http::openapi()),
        ConfigCommand::ApiReference => print(&http::rest_reference()),
        ConfigCommand::ChartValues => print(&generate::chart_values()),
        ConfigCommand::ChartSchema => print(&generate::chart_schema()),
    }
}

/// Checks everything that the settings name.
fn run_doctor(arguments: DoctorArguments) -> u8 {
    let loaded = match load(arguments.serve) {
        Ok(loaded) => loaded,
        Err(error) => return report_error(&error, EXIT_BAD_SETTINGS),
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return report_error(&error, EXIT_FAILURE),
    };
    let diagnosis = runtime.block_on(diagnose(loaded));
    end_runtime(runtime);
    let diagnosis = match diagnosis {
        Ok(diagnosis) => diagnosis,
        Err(error) => return report_error(&error, EXIT_FAILURE),
    };
    let text = match arguments.json {
        true => diagnosis.to_json(),
        false => diagnosis.to_text(),
    };
    match print(&text) {
        EXIT_CLEAN if !diagnosis.is_healthy() => EXIT_SERVICE_MISSING,
        code => code,
    }
}

/// The completion script of this shell.
fn completion(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mooring", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Queries a running gateway.
fn run_client(command: ClientCommand) -> u8 {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return report_error(&error, EXIT_FAILURE),
    };
    match runtime.block_on(client::run(command)) {
        Ok(told) => match print(&told.text) {
            EXIT_CLEAN if !told.is_good => EXIT_FAILURE,
            code => code,
        },
        Err(error) => report_error(&error, error.exit_code()),
    }
}

/// Runs a command on the store.
fn run_sessions(arguments: SessionsArguments) -> u8 {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return report_error(&error, EXIT_FAILURE),
    };
    match runtime.block_on(sessions_command::run(arguments)) {
        Ok(outcome) => {
            for remark in &outcome.remarks {
                let _ = writeln!(std::io::stderr(), "mooring: {remark}");
            }
            match print(&outcome.text) {
                EXIT_CLEAN if outcome.is_fruitless => EXIT_FAILURE,
                code => code,
            }
        }
        Err(error) => report_error(&error, error.exit_code()),
    }
}

/// Prints the digest of a user.
fn run_digest(arguments: DigestArguments) -> u8 {
    match digest_command::run(arguments) {
        Ok(text) => print(&text),
        Err(error) => report_error(&error, error.exit_code()),
    }
}

/// Changes or shows the file of API keys.
fn run_keys(arguments: KeysArguments) -> u8 {
    match keys_command::run(arguments) {
        Ok(output) => {
            if let Some(remark) = output.remark {
                let _ = writeln!(std::io::stderr(), "mooring: {remark}");
            }
            print(&output.text)
        }
        Err(error) => report_error(&error, error.exit_code()),
    }
}

fn load(arguments: ServeArguments) -> Result<LoadedSettings, SettingsError> {
    Settings::load(&Environment::of_process(), &arguments.into())
}

fn verdict(loaded: &LoadedSettings, checks: &[SettingsCheck]) -> String {
    let settings = &loaded.settings;
    let servers: Vec<String> = settings
        .servers
        .iter()
        .map(|server| format!("{} ({})", server.id, server.kind.name()))
        .collect();
    let servers = match servers.join(", ") {
        none if none.is_empty() => "none".to_owned(),
        some => some,
    };
    let mut text = format!(
        "configuration is valid; listen.address is {}; store: {}; servers: {servers}\n",
        settings.listen.address,
        store(settings)
    );
    for remark in &loaded.remarks {
        text.push_str("remark: ");
        text.push_str(remark);
        text.push('\n');
    }
    for check in checks
        .iter()
        .filter(|check| check.outcome != CheckOutcome::Ok)
    {
        text.push_str(&format!("remark: {}: {}\n", check.subject, check.detail));
    }
    text
}

/// Where the store is and how its server is found, without credentials.
fn store(settings: &Settings) -> String {
    let location = &settings.store.location;
    match location {
        StoreLocation::Embedded { .. } => location.to_string(),
        StoreLocation::Redis(url) => match url.topology() {
            RedisTopology::Single(_) => location.to_string(),
            RedisTopology::FirstPrimary(_) => format!("the first primary of {location}"),
            RedisTopology::Sentinels(service) => {
                format!(
                    "the primary that sentinels name for {:?} ({location})",
                    service.name()
                )
            }
            RedisTopology::Cluster(_) => format!("the primaries of the cluster {location}"),
        },
    }
}

/// Prints to stdout; a closed pipe (`| head`) is not an error.
fn print(text: &str) -> u8 {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            report_error(&error, EXIT_FAILURE)
        }
        _ => EXIT_CLEAN,
    }
}

/// Prints the reason for the exit to stderr, with every cause, and returns `code`.
fn report_error(error: &dyn std::error::Error, code: u8) -> u8 {
    // If stderr is closed, only the exit code is left.
    let _ = std::io::stderr().write_all(reason_of_exit(error).as_bytes());
    code
}

fn reason_of_exit(error: &dyn std::error::Error) -> String {
    format!("mooring: {}\n", with_causes(error))
}
