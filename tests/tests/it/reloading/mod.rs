//! Settings that change while gateways serve: by SIGHUP, at the command line and over HTTP. Sessions of servers that have
//! not changed notice nothing.

mod added;
mod load;
mod refused;
mod servers;
mod settings;
mod unfit;

use std::time::Duration;

use mooring_tests::fixture::stdio_command;

/// How long a reload may take to be seen.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

/// A server of kind `http` with these instances.
fn http_server(id: &str, instances: &[String]) -> String {
    format!("[[servers]]\nid = {id:?}\naffinity = \"on\"\ninstances = {instances:?}\n")
}

/// A server that each session starts by itself.
fn program(id: &str) -> anyhow::Result<String> {
    let command = stdio_command(id, None, &[])?;
    Ok(format!(
        "[[servers]]\nid = {id:?}\nkind = \"stdio\"\ncommand = {command:?}\n"
    ))
}
