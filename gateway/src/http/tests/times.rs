//! Requests are timed to the end of their reply, by what it says.

use serde_json::json;

use super::{Gateway, METRICS, request};

/// The value of the metric with all these labels, added up; 0 if there is none.
fn metric(name: &str, labels: &[&str]) -> f64 {
    let text = METRICS.render();
    let lines = text.lines().filter(|line| {
        let is_named = line
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('{'));
        is_named && labels.iter().all(|label| line.contains(label))
    });
    let values = lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap());
    values.sum()
}

#[tokio::test]
async fn a_reply_over_events_takes_until_its_response_and_a_tools_error_is_no_success() {
    let gateway = Gateway::start().await;
    let session = gateway.open("timed").await;
    let instance = format!("instance=\"{}\"", gateway.a.url);
    let call = "method=\"tools/call\"";

    let slow = gateway
        .call("timed", &session, "slow", json!({"ms": 300}))
        .await;
    assert_eq!(slow.events().len(), 2);
    let labels = ["server=\"timed\"", call, "outcome=\"ok\"", "status=\"2xx\""];
    let sum = metric("mooring_request_duration_seconds_sum", &labels);
    assert!(sum >= 0.3, "{sum}");
    let labels = ["server=\"timed\"", &instance, call, "outcome=\"ok\""];
    let sum = metric("mooring_upstream_duration_seconds_sum", &labels);
    assert!(sum >= 0.3, "{sum}");
    // The log message before the response came at once.
    let labels = ["server=\"timed\"", call];
    let first = metric("mooring_request_first_byte_seconds_sum", &labels);
    assert!(first > 0.0 && first < sum, "{first} {sum}");

    gateway.call("timed", &session, "fail", json!({})).await;
    gateway
        .post(
            "timed",
            Some(&session),
            &request(9, "prompts/list", json!({})),
        )
        .await;
    for (method, outcome) in [("tools/call", "tool_error"), ("prompts/list", "error")] {
        let labels = [
            "server=\"timed\"",
            &format!("method=\"{method}\""),
            &format!("outcome=\"{outcome}\""),
        ];
        for name in [
            "mooring_request_duration_seconds_count",
            "mooring_upstream_duration_seconds_count",
        ] {
            assert!(metric(name, &labels) >= 1.0, "{name} {labels:?}");
        }
    }
}

#[tokio::test]
async fn a_request_is_in_flight_until_its_reply_ends() {
    let gateway = Gateway::start().await;
    let session = gateway.open("held").await;
    let count = || metric("mooring_requests_in_flight", &["server=\"held\""]);
    let reply = gateway
        .begin_call("held", &session, "slow", json!({"ms": 60_000}))
        .await;
    assert!(
        count() >= 1.0,
        "its head has arrived, and its response has not"
    );
    drop(reply);
    assert!(count() < 1.0);
    let labels = ["server=\"held\"", "outcome=\"abandoned\""];
    assert!(metric("mooring_request_duration_seconds_count", &labels) >= 1.0);
}
