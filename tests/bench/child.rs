//! The upstream of the benchmark on standard input and output: it counts, and does nothing else.
//!
//! Invariant: it counts 1, 2, 3 ... in the order of its calls; a process is one session.

use std::io::{BufRead, Write};

use anyhow::Context;
use mooring_tests::session::PROTOCOL_VERSION;
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: &'a str,
}

/// Serves until its input ends.
pub(crate) fn serve() -> anyhow::Result<()> {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let (mut line, mut count) = (String::new(), 0_u64);
    while input.read_line(&mut line).context("read a line")? > 0 {
        let call: Call<'_> = serde_json::from_str(&line).context("parse a line")?;
        if let Some(id) = call.id {
            let result = match call.method {
                "initialize" => format!(
                    "{{\"protocolVersion\":\"{PROTOCOL_VERSION}\",\"capabilities\":{{\"tools\":{{}}}},\
                     \"serverInfo\":{{\"name\":\"counting\",\"version\":\"1\"}}}}"
                ),
                "tools/call" => {
                    count += 1;
                    format!(
                        "{{\"content\":[{{\"type\":\"text\",\"text\":\"{count}\"}}],\
                         \"structuredContent\":{{\"count\":{count},\"instance\":0}}}}"
                    )
                }
                _ => "{}".to_owned(),
            };
            let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
            output
                .write_all(answer.as_bytes())
                .context("write a line")?;
            output.flush().context("write a line")?;
        }
        line.clear();
    }
    Ok(())
}
