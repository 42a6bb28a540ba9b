//! What code servers need of the machine, and whether it is available: the part `code` of `/readyz`.

use mooring_sandbox::{Runtime, Sandbox};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::servers::CodeServers;
use crate::volume::{VolumeProblem, VolumeSpace};

/// The state of the sandbox and the volume at one moment.
#[derive(Debug)]
pub struct CodeState {
    sandbox: Result<Value, String>,
    volume: Result<VolumeSpace, VolumeProblem>,
}

impl CodeServers {
    /// Checks the volume again; the sandbox was tested at the start.
    pub async fn state(&self) -> CodeState {
        let services = self.services();
        let volume = match &services.storage {
            Ok(kept) => {
                let volume = kept.volume.clone();
                spawn_blocking(move || volume.health()).await
            }
            Err(problem) => Ok(Err(problem.clone())),
        };
        CodeState {
            sandbox: match &services.sandbox {
                Ok(sandbox) => Ok(sandbox_report(sandbox)),
                Err(error) => Err(error.to_string()),
            },
            // A check that panicked counts as a failure.
            volume: volume.unwrap_or(Err(VolumeProblem::SecondProcess {
                reason: "the check of the volume panicked",
            })),
        }
    }
}

impl CodeState {
    /// Whether code can be run and its files kept.
    pub fn is_ready(&self) -> bool {
        self.sandbox.is_ok() && self.volume.is_ok()
    }

    /// The same in one word.
    pub fn word(&self) -> &'static str {
        if self.is_ready() { "ok" } else { "unavailable" }
    }

    /// For people.
    pub fn into_json(self) -> Value {
        let status = self.word();
        let unavailable = |problem: String| json!({ "status": "unavailable", "problem": problem });
        json!({
            "status": status,
            "sandbox": self.sandbox.unwrap_or_else(unavailable),
            "base_dir": match self.volume {
                Ok(room) => json!({
                    "status": "ok",
                    "free_bytes": room.free_bytes,
                    "free_inodes": room.free_inodes,
                }),
                Err(problem) => unavailable(problem.to_string()),
            },
        })
    }
}

fn sandbox_report(sandbox: &Sandbox) -> Value {
    let runtimes = sandbox.runtimes();
    let tools: serde_json::Map<_, _> = runtimes
        .tools
        .iter()
        .map(|(name, tool)| ((*name).to_owned(), runtime(tool)))
        .collect();
    json!({
        "status": "ok",
        "tier": sandbox.tier(),
        "layers": sandbox.layers(),
        "runtimes": {
            "python": runtime(&runtimes.python),
            "deno": runtime(&runtimes.deno),
            "tools": tools,
        },
    })
}

fn runtime(runtime: &Runtime) -> Value {
    match runtime {
        Runtime::Present { version, .. } if version.is_empty() => json!({ "status": "ok" }),
        Runtime::Present { version, .. } => json!({ "status": "ok", "version": version }),
        Runtime::Missing { remedy } => json!({ "status": "missing", "remedy": remedy }),
    }
}
