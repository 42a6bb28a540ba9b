//! Which trace a request is part of, what its server gets of that, and who decides that it is recorded.

use bytes::Bytes;
use mooring_tests::collector::Collector;
use mooring_tests::gateway::Settings;
use mooring_tests::wait;
use serde_json::Value;

use super::{CLIENT_SPAN, SECRET, TRACE, has, only, telemetry_toml, traceparent};
use crate::rig::post_of;
use crate::scene::ScriptedScene;
use crate::scripted::{Scripted, Seen};

/// The outcome of a call that did what it was asked.
const RESULT: &str = r#""result":{}"#;

/// A gateway that traces, in front of a scripted upstream.
async fn traced(toml: &str) -> anyhow::Result<ScriptedScene> {
    let upstream = Scripted::start().await?;
    let toml = format!(
        "{toml}\n[log]\nrequests = \"all\"\nformat = \"json\"\n[affinity]\nenabled = true\n[[servers]]\nid = \"tools\"\ninstances = [{:?}]\n",
        upstream.url()
    );
    ScriptedScene::start_with(upstream, Settings::toml(toml)).await
}

/// Posts this message with these headers, and answers it at the upstream with this member, which has seen it so.
async fn exchange(
    scene: &mut ScriptedScene,
    body: &str,
    headers: &[(&'static str, &str)],
    outcome: &str,
) -> anyhow::Result<Seen> {
    let mut request = post_of(&mut scene.session, Bytes::from(body.to_owned()))?;
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse()?);
    }
    let answered = async {
        let exchange = scene.upstream.next().await?;
        let seen = exchange.request.clone();
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},{outcome}}}"#,
            exchange.wire_id()
        );
        exchange.answer("200 OK", "application/json", &body).await?;
        Ok(seen)
    };
    let (reply, seen) = tokio::try_join!(scene.client.send(request), answered)?;
    reply.text().await?;
    Ok(seen)
}

fn call_with_meta(meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"increment","arguments":{{"note":"{SECRET}","n":1.0e0}} , "_meta" : {meta} }}}}"#
    )
}

#[tokio::test]
async fn the_server_gets_the_gateways_span_where_its_client_has_named_a_trace() -> anyhow::Result<()>
{
    let collector = Collector::start().await?;
    let mut scene = traced(&telemetry_toml(&collector)).await?;
    let meta = format!(
        r#"{{ "a" : 1.50,"traceparent":"{}", "tracestate":"vendor=1","baggage":"k=v"}}"#,
        traceparent(true)
    );
    let failed =
        format!(r#""result":{{"content":[{{"type":"text","text":"{SECRET}"}}],"isError":true}}"#);
    let seen = exchange(&mut scene, &call_with_meta(&meta), &[], &failed).await?;
    let spans = collector
        .until("the call", |spans| {
            spans
                .iter()
                .any(|span| span.trace == TRACE && span.kind == "SERVER")
        })
        .await?;
    let sent = only(&spans, "tools/call increment", "CLIENT");
    let of_gateway = format!("00-{TRACE}-{}-01", sent.id);
    assert_eq!(seen.header("traceparent"), Some(of_gateway.as_str()));
    // All else of the message is as its client has written it.
    let expected = meta.replace(&traceparent(true), &of_gateway);
    assert!(seen.body.contains(&expected), "{}", seen.body);
    let around = format!(r#"{{"note":"{SECRET}","n":1.0e0}} , "_meta" : {{"#);
    assert!(seen.body.contains(&around), "{}", seen.body);
    let served = only(&spans, "tools/call increment", "SERVER");
    for failed in [sent, served] {
        assert!(failed.is_error);
        assert_eq!(failed.attribute("error.type"), "Str(tool_error)");
    }
    assert_eq!(served.parent, CLIENT_SPAN);
    assert!(!collector.text().contains(SECRET));

    // A context of the HTTP request alone goes on in the header alone.
    let header = [("traceparent", traceparent(true))];
    let headers = [
        ("traceparent", header[0].1.as_str()),
        ("tracestate", "vendor=2"),
    ];
    let plain = call_with_meta(r#"{"a":1.50}"#);
    let seen = exchange(&mut scene, &plain, &headers, RESULT).await?;
    let context = seen.header("traceparent").expect("a context");
    assert!(context.starts_with(&format!("00-{TRACE}-")) && !context.contains(CLIENT_SPAN));
    assert_eq!(seen.header("tracestate"), Some("vendor=2"));
    assert!(
        seen.body.contains(r#""_meta" : {"a":1.50} "#),
        "{}",
        seen.body
    );

    // Lines about what is traced have its ids.
    let of_call = "\"outcome\":\"tool_error\"";
    let log = wait::until_logged(of_call, 1, || scene.gateway.process().log_text()).await?;
    let line = log.lines().find(|line| line.contains(of_call));
    let line: Value = serde_json::from_str(line.expect("a line of the call"))?;
    assert_eq!(line["trace_id"], TRACE);
    assert_eq!(line["span_id"], served.id.as_str());
    Ok(())
}

#[tokio::test]
async fn who_begins_a_trace_decides_whether_it_is_recorded() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let toml = telemetry_toml(&collector) + "sample_ratio = \"0\"\n";
    let mut scene = traced(&toml).await?;
    // The client's decision is forwarded as it is, byte for byte.
    let unsampled = traceparent(false);
    let meta = format!(r#"{{"traceparent":"{unsampled}"}}"#);
    let headers = [("traceparent", unsampled.as_str())];
    let seen = exchange(&mut scene, &call_with_meta(&meta), &headers, RESULT).await?;
    assert_eq!(seen.header("traceparent"), Some(unsampled.as_str()));
    assert!(seen.body.contains(&meta), "{}", seen.body);
    // The gateway's own decision binds the server too.
    let seen = exchange(&mut scene, &call_with_meta("{}"), &[], RESULT).await?;
    let own = seen.header("traceparent").expect("a context");
    assert!(own.starts_with("00-") && own.ends_with("-00"), "{own}");
    // A context that cannot be read is none.
    let headers = [("traceparent", "00-1-1-01")];
    let seen = exchange(&mut scene, &call_with_meta("{}"), &headers, RESULT).await?;
    let own = seen.header("traceparent").expect("a context");
    assert!(own.len() == 55 && own.ends_with("-00"), "{own}");
    // A sampled one is recorded, whatever the ratio is.
    let sampled = traceparent(true);
    let headers = [("traceparent", sampled.as_str())];
    exchange(&mut scene, &call_with_meta("{}"), &headers, RESULT).await?;
    let spans = collector
        .until("the sampled call", |spans| {
            spans.iter().any(|span| span.kind == "SERVER")
        })
        .await?;
    let served = only(&spans, "tools/call increment", "SERVER");
    assert_eq!(
        (served.trace.as_str(), served.parent.as_str()),
        (TRACE, CLIENT_SPAN)
    );
    assert!(spans.iter().all(|span| span.trace == TRACE), "{spans:#?}");
    Ok(())
}

#[tokio::test]
async fn an_error_is_recorded_by_its_code_and_without_its_message() -> anyhow::Result<()> {
    let collector = Collector::start().await?;
    let mut scene = traced(&telemetry_toml(&collector)).await?;
    let error = format!(r#""error":{{"code":-32602,"message":"{SECRET}"}}"#);
    exchange(&mut scene, &call_with_meta("{}"), &[], &error).await?;
    let spans = collector
        .until("the call", |spans| {
            has(spans, "tools/call increment", "SERVER")
        })
        .await?;
    for kind in ["CLIENT", "SERVER"] {
        let failed = only(&spans, "tools/call increment", kind);
        assert!(failed.is_error);
        assert_eq!(failed.attribute("error.type"), "Str(-32602)");
        assert_eq!(failed.attribute("rpc.response.status_code"), "Str(-32602)");
    }
    assert!(!collector.text().contains(SECRET));
    Ok(())
}
