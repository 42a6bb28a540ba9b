//! Which spans there are, what is the parent of what, and each attribute against the OpenTelemetry conventions for MCP.

use std::time::Duration;

use mooring_tests::client::HttpClient;
use mooring_tests::code::{SERVER, USER};
use mooring_tests::collector::{Collector, ReceivedSpan};
use mooring_tests::fixture::Fixture;
use mooring_tests::gateway::Gateway;
use mooring_tests::session::{McpSession, Opening};
use serde_json::json;

use super::{
    CLIENT_SPAN, SECRET, TRACE, assert_attributes, call_in_trace, has, only, telemetry_toml,
    traceparent,
};
use crate::governed_fleet::GovernedFleet;
use crate::keyed::instances_table;
use crate::owned::rig::{OwnedFleet, Shape};
use crate::recovery::{Pair, call};
use crate::rig::kept;

/// Asserts what no span of a gateway may have.
#[track_caller]
fn assert_discreet(collector: &Collector, session: &McpSession) {
    let text = collector.text();
    let id = session.id().unwrap_or_default();
    assert!(!id.is_empty() && !text.contains(id), "ids are secrets");
    assert!(!text.contains(SECRET), "arguments and results are content");
    assert!(!text.contains("mcpgw:"), "keys of the store are secrets");
}

#[tokio::test]
async fn one_call_over_two_gateways_is_one_trace_with_the_attributes_of_the_convention()
-> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let more = telemetry_toml(&collector);
    let shape = Shape {
        more: &more,
        ..Shape::default()
    };
    let fleet = OwnedFleet::start_as(2, &shape).await?;
    let session = fleet.open_at(0).await?;
    let mut through_other = fleet.through(&session, &[1]);
    let other_span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    through_other.set_header("traceparent", other_span)?;
    let params = call_in_trace("increment", &json!({"note": SECRET}));
    through_other.request("tools/call", params).await?;

    let is_whole = |spans: &[ReceivedSpan]| {
        let mut of_call = spans.iter().filter(|span| span.trace == TRACE);
        of_call.any(|span| span.name == "tools/call increment" && span.kind == "SERVER")
            && has(spans, "forward message", "SERVER")
    };
    let spans = collector.until("the spans of a call", is_whole).await?;
    assert_discreet(&collector, &session);
    let spans: Vec<ReceivedSpan> = spans
        .into_iter()
        .filter(|span| span.trace == TRACE)
        .collect();

    let served = only(&spans, "tools/call increment", "SERVER");
    assert_eq!(served.parent, CLIENT_SPAN, "the context in _meta wins");
    assert_eq!(served.state, "vendor=1");
    let other_trace = "0af7651916cd43dd8448eb211c80319c".to_owned();
    let link = (other_trace, "b7ad6b7169203331".to_owned());
    assert_eq!(served.links, [link], "the context of the request is linked");
    let digest = served.attribute("mcp.session.id").to_owned();
    assert_attributes(
        served,
        [
            ("mcp.method.name", "Str(tools/call)"),
            ("gen_ai.tool.name", "Str(increment)"),
            ("gen_ai.operation.name", "Str(execute_tool)"),
            ("jsonrpc.request.id", "*"),
            ("mcp.protocol.version", "Str(2025-11-25)"),
            ("mcp.session.id", &digest),
            ("network.transport", "Str(tcp)"),
            ("network.protocol.name", "Str(http)"),
            ("network.protocol.version", "Str(1.1)"),
            ("mooring.server", "Str(tools)"),
            ("mooring.request.id", "*"),
        ],
    );
    assert!(!served.is_error, "{served:?}");

    let turn = only(&spans, "wait for turn", "INTERNAL");
    assert!(turn.is_child_of(served));
    let entered = only(&spans, "SESSION.ENTER", "CLIENT");
    assert!(entered.is_child_of(turn), "{entered:?}");
    assert_attributes(
        entered,
        [
            ("db.system.name", "Str(redis)"),
            ("db.operation.name", "Str(SESSION.ENTER)"),
        ],
    );

    let sent = only(&spans, "tools/call increment", "CLIENT");
    assert!(sent.is_child_of(served));
    assert_attributes(
        sent,
        [
            ("mcp.method.name", "Str(tools/call)"),
            ("gen_ai.tool.name", "Str(increment)"),
            ("gen_ai.operation.name", "Str(execute_tool)"),
            ("jsonrpc.request.id", "*"),
            ("mcp.protocol.version", "Str(2025-11-25)"),
            ("mcp.session.id", &digest),
            ("network.transport", "Str(pipe)"),
            ("mooring.server", "Str(tools)"),
        ],
    );
    let forwarded = only(&spans, "forward message", "CLIENT");
    assert!(forwarded.is_child_of(sent));
    assert_attributes(
        forwarded,
        [
            ("mooring.server", "Str(tools)"),
            ("mooring.binding.epoch", "*"),
            ("mooring.worker", "*"),
            ("network.transport", "Str(tcp)"),
            ("network.protocol.name", "Str(http)"),
            ("network.protocol.version", "Str(1.1)"),
        ],
    );
    let received = only(&spans, "forward message", "SERVER");
    assert!(received.is_child_of(forwarded));
    let worker = forwarded.attribute("mooring.worker");
    assert_eq!(received.resource["service.instance.id"], worker);
    assert_eq!(received.resource["service.name"], "Str(mooring)");
    assert_ne!(served.resource["service.instance.id"], worker);

    let mut log = String::new();
    for mut gateway in fleet.gateways {
        log += &gateway.process().log_text();
    }
    assert!(!log.contains(SECRET), "{log}");
    Ok(())
}

#[tokio::test]
async fn the_calls_that_code_makes_are_children_of_its_run() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let fixture = Fixture::start("one").await?;
    let tables = telemetry_toml(&collector) + &instances_table("web", "http", &[fixture.url()]);
    let fleet = GovernedFleet::start(&tables, "", |settings| settings).await?;
    let opening = Opening::default().header(USER, "ada@example.org")?;
    let endpoints = [fleet.gateways[0].mcp_url(SERVER)];
    let client = HttpClient::new(Duration::from_secs(60));
    let mut session = McpSession::open_with(&client, &endpoints, opening).await?;
    let program = format!(
        "import tools\ntools.call('web', 'slow', {{'ms': 1, 'token': '{SECRET}'}})\ntools.call('web', 'increment', {{}})\nprint('{SECRET}')\n"
    );
    let arguments = json!({"language": "python", "code": program});
    let params = call_in_trace("shell_exec", &arguments);
    let exchange = session.request("tools/call", params).await?;
    let is_error = &exchange.response["result"]["isError"];
    assert_ne!(is_error, &json!(true), "{exchange:?}");

    let spans = collector
        .until("the spans of a run", |spans| {
            has(spans, "tools/call shell_exec", "SERVER")
        })
        .await?;
    assert_discreet(&collector, &session);
    let spans: Vec<ReceivedSpan> = spans
        .into_iter()
        .filter(|span| span.trace == TRACE)
        .collect();
    let served = only(&spans, "tools/call shell_exec", "SERVER");
    let run = only(&spans, "run code", "INTERNAL");
    assert!(run.is_child_of(served), "{spans:#?}");
    assert_attributes(
        run,
        [
            ("mooring.code.language", "Str(python)"),
            ("mooring.code.runtime", "*"),
            ("mooring.code.run_id", "*"),
            ("mooring.server", "Str(sandbox)"),
        ],
    );
    for tool in ["tools/call slow", "tools/call increment"] {
        let called = only(&spans, tool, "INTERNAL");
        assert!(called.is_child_of(run), "{spans:#?}");
        let sent = only(&spans, tool, "CLIENT");
        assert!(sent.is_child_of(called), "{spans:#?}");
        assert_eq!(sent.attribute("server.address"), "Str(127.0.0.1)");
        let port = format!("Int({})", fixture.port());
        assert_eq!(sent.attribute("server.port"), port);
    }
    let resolved = only(&spans, "resolve binding", "INTERNAL");
    assert!(has(&spans, "SESSION.BIND", "CLIENT"), "{resolved:?}");
    Ok(())
}

#[tokio::test]
async fn a_rebind_is_linked_to_the_call_that_last_used_what_is_lost() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let mut pair = Pair::start().await?;
    let settings = kept(&pair.urls()).more_toml(&telemetry_toml(&collector));
    let gateway = Gateway::start("traced", settings).await?;
    let endpoints = [gateway.mcp_url("tools")];
    let mut session = McpSession::open(&HttpClient::default(), &endpoints).await?;
    let (home, _) = pair.home_and_other(&mut session).await?;
    call(&mut session, "increment").await?;
    let before =
        |span: &&ReceivedSpan| span.name == "tools/call increment" && span.kind == "CLIENT";
    let spans = collector
        .until("the call before", |spans| {
            spans.iter().any(|span| before(&span))
        })
        .await?;
    let before = spans
        .iter()
        .find(before)
        .expect("it was waited for")
        .clone();

    home.process().kill_now()?;
    session.set_header("traceparent", &traceparent(true))?;
    call(&mut session, "increment").await?;
    let spans = collector
        .until("the rebind", |spans| {
            has(spans, "resolve binding", "INTERNAL")
                && spans
                    .iter()
                    .any(|span| span.trace == TRACE && span.kind == "SERVER")
        })
        .await?;
    let spans: Vec<ReceivedSpan> = spans
        .into_iter()
        .filter(|span| span.trace == TRACE)
        .collect();
    let resolved = only(&spans, "resolve binding", "INTERNAL");
    assert!(resolved.is_child_of(only(&spans, "tools/call increment", "SERVER")));
    assert_eq!(resolved.links, [(before.trace, before.id)]);
    let epoch = |name| {
        let value = resolved.attribute(name);
        let digits = value.trim_start_matches("Int(").trim_end_matches(')');
        digits
            .parse::<u64>()
            .unwrap_or_else(|_| panic!("{name}: {resolved:?}"))
    };
    assert!(epoch("mooring.rebind.epoch_from") < epoch("mooring.rebind.epoch_to"));
    assert!(
        !resolved.attribute("mooring.rebind.reason").is_empty(),
        "{resolved:?}"
    );
    let rebound = only(&spans, "SESSION.REBIND", "CLIENT");
    assert!(rebound.is_child_of(resolved));
    let mut sent: Vec<&ReceivedSpan> = spans
        .iter()
        .filter(|span| span.name == "tools/call increment" && span.kind == "CLIENT")
        .collect();
    sent.sort_by_key(|span| span.is_error);
    let [delivered, lost] = sent.as_slice() else {
        panic!("one attempt that fails, one that is answered: {spans:#?}");
    };
    assert!(!delivered.is_error && delivered.attribute("error.type").is_empty());
    assert_eq!(lost.attribute("error.type"), "Str(no_reply)");
    Ok(())
}
