//! The state of a request that needs input: sealed, and taken once in the whole fleet.

use serde_json::{Value, json};

use super::{Gateways, Sessionless, call, discovered};
use crate::small_server::{SmallServer, result};

/// A server that asks for input once, and then shows the state that it gets back and its own name.
async fn asking(name: &'static str) -> anyhow::Result<SmallServer> {
    SmallServer::start(move |request| {
        let params = request.json()["params"].clone();
        match (request.method().as_str(), params["requestState"].as_str()) {
            ("server/discover", _) => discovered(request),
            (_, None) => result(
                request,
                "",
                &json!({
                    "resultType": "input_required",
                    "inputRequests": {"name": {"method": "elicitation/create", "params": {}}},
                    "requestState": format!("plain state of {name}"),
                }),
            ),
            (_, Some(state)) => result(
                request,
                "",
                &json!({"resultType": "complete", "content": [], "structuredContent": {
                    "state": state, "server": name, "input": params["inputResponses"],
                }}),
            ),
        }
    })
    .await
}

async fn asked(call: &Sessionless, url: &str) -> anyhow::Result<String> {
    let (_, answer) = call.answer(url).await?;
    let result = &answer["result"];
    assert_eq!(result["resultType"], "input_required", "{answer}");
    assert!(result["inputRequests"]["name"].is_object(), "{answer}");
    let state = result["requestState"].as_str().unwrap_or_default();
    assert!(!state.is_empty() && !state.contains("plain"), "{answer}");
    Ok(state.to_owned())
}

fn with_input(call: &Sessionless, state: &str) -> Sessionless {
    let mut again = call.clone();
    again.id = json!(2);
    again
        .param("requestState", json!(state))
        .param("inputResponses", json!({"name": {"action": "accept"}}))
}

/// Whichever gateway gets it, it goes to the instance that has given the state.
#[tokio::test]
async fn a_request_continues_at_its_instance_through_any_gateway() -> anyhow::Result<()> {
    let (one, other) = (asking("one").await?, asking("other").await?);
    let fleet = Gateways::start(2, &[one.url(), other.url()]).await?;
    for id in 0..4 {
        let call = call(id, "greet", &json!({"n": id}));
        let state = asked(&call, &fleet.url(0)).await?;
        let (_, answer) = with_input(&call, &state).answer(&fleet.url(1)).await?;
        let shown = &answer["result"]["structuredContent"];
        let server = shown["server"].as_str().unwrap_or_default();
        assert_eq!(
            shown["state"],
            format!("plain state of {server}"),
            "{answer}"
        );
        assert_eq!(shown["input"]["name"]["action"], "accept", "{answer}");
    }
    Ok(())
}

#[tokio::test]
async fn a_state_is_taken_once_by_one_of_two_gateways() -> anyhow::Result<()> {
    let server = asking("one").await?;
    let fleet = Gateways::start(2, &[server.url()]).await?;
    let call = call(1, "greet", &json!({}));
    let state = asked(&call, &fleet.url(0)).await?;
    let again = with_input(&call, &state);
    let (here, there) = (fleet.url(0), fleet.url(1));
    let attempts = [&here, &there, &here, &there].map(|url| again.answer(url));
    let answers = futures_util::future::try_join_all(attempts).await?;
    let taken = answers
        .iter()
        .filter(|(_, answer)| answer["result"].is_object());
    assert_eq!(taken.count(), 1, "{answers:?}");
    let refused = answers.iter().filter(|(_, answer)| is_refused(answer));
    assert_eq!(refused.count(), 3, "{answers:?}");
    Ok(())
}

/// A refused attempt does not use the state up.
#[tokio::test]
async fn a_state_that_is_altered_or_of_another_request_is_refused() -> anyhow::Result<()> {
    let server = asking("one").await?;
    let fleet = Gateways::start(1, &[server.url()]).await?;
    let url = fleet.url(0);
    let call_a = call(1, "greet", &json!({"to": "a"}));
    let state = asked(&call_a, &url).await?;
    let call_b = call(1, "greet", &json!({"to": "b"}));
    let altered = state.replacen(state.get(..1).unwrap_or_default(), "_", 1);
    for attempt in [
        with_input(&call_b, &state),
        with_input(&call_a, &altered),
        with_input(&call_a, "plain state of one"),
        with_input(&call_a, "").param("requestState", json!(7)),
    ] {
        let (_, answer) = attempt.answer(&url).await?;
        assert!(is_refused(&answer), "{answer}");
    }
    let (_, answer) = with_input(&call_a, &state).answer(&url).await?;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    Ok(())
}

fn is_refused(answer: &Value) -> bool {
    answer["error"]["code"] == -32602
}
