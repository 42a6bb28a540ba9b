//! The environment of a program: the whole of it, the helper's own choice.

use std::path::PathBuf;

use super::super::places::Places;
use crate::job::PROXY_PORT;
use crate::protocol::{Spec, WireNetwork, WireRuntime};

/// A name and its value.
pub(super) type Variable = (&'static str, PathBuf);

/// The same for every run, but for the variables of [`Places`].
const ENVIRONMENT: &[(&str, &str)] = &[
    ("PATH", "/usr/bin:/bin"),
    ("LANG", "C.UTF-8"),
    ("NO_COLOR", "1"),
    // Each arena of the C library takes 64 MiB of address space, which is limited.
    ("MALLOC_ARENA_MAX", "2"),
];

/// For deno only, in addition to its directory.
const DENO_ENVIRONMENT: &[(&str, &str)] = &[("DENO_NO_UPDATE_CHECK", "1")];

/// For python only, in addition to its path: modules are searched neither next to the program's source nor in its
/// working directory. This is `-P`, also for the interpreters that it starts. Versions before 3.11 ignore it and search
/// next to the source, where there is nothing else.
const PYTHON_ENVIRONMENT: &[(&str, &str)] = &[("PYTHONSAFEPATH", "1")];

/// The variables with the proxy's URL, if there is a proxy.
const PROXY_VARIABLES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"];

/// The variables with hosts to reach without the proxy: none.
const NO_PROXY_VARIABLES: &[&str] = &["NO_PROXY", "no_proxy"];

/// Where OpenSSL, and thereby python, finds certificates.
const CERTIFICATES_VARIABLE: &str = "SSL_CERT_FILE";

/// The variables of a run.
pub(super) fn of(spec: &Spec, places: &Places) -> Vec<Variable> {
    let mut environment: Vec<Variable> = places.variables().into();
    environment.extend(constant(ENVIRONMENT));
    match spec.runtime {
        WireRuntime::Python { .. } => {
            // The tools and the skills are packages of this directory, which no run can write to.
            environment.push(("PYTHONPATH", places.root().to_owned()));
            environment.extend(constant(PYTHON_ENVIRONMENT));
        }
        WireRuntime::Deno { .. } => {
            environment.push(("DENO_DIR", places.temporary().join(".deno")));
            environment.extend(constant(DENO_ENVIRONMENT));
        }
        WireRuntime::Tools { .. } => {}
    }
    environment.extend(network_variables(&spec.network));
    environment
}

/// Variables of a table.
fn constant(table: &'static [(&'static str, &'static str)]) -> impl Iterator<Item = Variable> {
    table.iter().map(|&(name, value)| (name, value.into()))
}

/// The variables that make programs use the proxy and trust its certificates.
fn network_variables(network: &WireNetwork) -> Vec<Variable> {
    let WireNetwork::Proxy { certificates } = network else {
        return Vec::new();
    };
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let mut variables: Vec<_> = PROXY_VARIABLES
        .iter()
        .map(|&name| (name, PathBuf::from(&proxy)))
        .collect();
    variables.extend(
        NO_PROXY_VARIABLES
            .iter()
            .map(|&name| (name, PathBuf::new())),
    );
    if let Some(certificates) = certificates {
        variables.push((CERTIFICATES_VARIABLE, certificates.clone()));
    }
    variables
}
