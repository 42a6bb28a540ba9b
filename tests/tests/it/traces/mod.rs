//! Traces as a real collector receives them.

mod contexts;
mod losses;
mod structure;
mod waits;

use std::collections::BTreeMap;

use mooring_tests::collector::{Collector, ReceivedSpan};
use serde_json::{Value, json};

/// The trace of the tests' clients, and their span in it.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT_SPAN: &str = "00f067aa0ba902b7";
/// What arguments and results have in them, and no span may.
const SECRET: &str = "correct-horse-battery";

/// A `traceparent` of the tests' clients.
fn traceparent(is_sampled: bool) -> String {
    format!("00-{TRACE}-{CLIENT_SPAN}-0{}", u8::from(is_sampled))
}

/// The settings that send all traces to this collector.
fn telemetry_toml(collector: &Collector) -> String {
    format!("[telemetry]\notlp_endpoint = {:?}\n", collector.endpoint())
}

/// The params of a call with a trace in its `_meta`.
fn call_in_trace(tool: &str, arguments: &Value) -> Value {
    json!({
        "name": tool,
        "arguments": arguments,
        "_meta": {"traceparent": traceparent(true), "tracestate": "vendor=1"},
    })
}

/// The only span of this name and kind.
#[track_caller]
fn only<'a>(spans: &'a [ReceivedSpan], name: &str, kind: &str) -> &'a ReceivedSpan {
    let found: Vec<&ReceivedSpan> = spans
        .iter()
        .filter(|span| span.name == name && span.kind == kind)
        .collect();
    match found.as_slice() {
        [span] => span,
        others => panic!("{} spans {kind} {name}: {spans:#?}", others.len()),
    }
}

fn has(spans: &[ReceivedSpan], name: &str, kind: &str) -> bool {
    spans
        .iter()
        .any(|span| span.name == name && span.kind == kind)
}

/// Attributes, each with the type of its value as the collector shows it.
fn attributes<const N: usize>(expected: [(&str, &str); N]) -> BTreeMap<String, String> {
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    expected.into_iter().map(owned).collect()
}

/// Asserts that the attributes are these, of which `*` is any value.
#[track_caller]
fn assert_attributes<const N: usize>(span: &ReceivedSpan, expected: [(&str, &str); N]) {
    let expected = attributes(expected);
    let mut seen = span.attributes.clone();
    for (name, value) in &expected {
        if value == "*" {
            let value = seen.get_mut(name);
            *value.unwrap_or_else(|| panic!("{name}: {span:#?}")) = "*".to_owned();
        }
    }
    assert_eq!(seen, expected, "{span:#?}");
}
