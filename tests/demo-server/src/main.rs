//! `mooring-demo-server`: an MCP server that counts per session, in memory only.
//!
//! It prints one JSON line, `{"port":...}`, once it listens on 127.0.0.1. Invariant: nothing survives its process, which
//! is what a gateway has to report to a client whose session moves to another instance.

use anyhow::Context;
use clap::Parser;
use tokio::net::TcpListener;

mod endpoint;
mod sessions;

/// A stateful MCP server for demonstrations.
#[derive(Debug, Parser)]
struct Arguments {
    /// TCP port on 127.0.0.1; 0 lets the system choose.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The name this instance gives itself in replies.
    #[arg(long, default_value = "demo")]
    instance: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let listener = TcpListener::bind(("127.0.0.1", arguments.port))
        .await
        .context("bind the port")?;
    announce(listener.local_addr().context("read the bound port")?.port());
    axum::serve(listener, endpoint::router(arguments.instance))
        .await
        .context("serve")
}

#[expect(
    clippy::print_stdout,
    reason = "the ready line is this program's interface"
)]
fn announce(port: u16) {
    println!("{}", serde_json::json!({ "port": port }));
}
