//! The admin API: what it shows, which right each function needs, and from where acts are accepted.

use axum::body::Body;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};

use super::{Answer, Gateway};

/// Authentication by headers from loopback addresses.
const BY_HEADER: &str = "[auth]\nmode = \"trusted-header\"\ntrusted_peers = [\"127.0.0.1\"]\n";

/// A caller's roles, and headers besides.
type Headers<'a> = &'a [(&'static str, &'a str)];

async fn ask(
    gateway: &Gateway,
    method: Method,
    path: &str,
    headers: Headers<'_>,
    body: &str,
) -> Answer {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    Answer::read(gateway.send(request).await).await
}

async fn get(gateway: &Gateway, path: &str) -> Value {
    let answer = ask(gateway, Method::GET, path, &[], "").await;
    assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
    answer.json()
}

const JSON: (&str, &str) = ("content-type", "application/json");

async fn post(gateway: &Gateway, path: &str, body: Value) -> Answer {
    ask(gateway, Method::POST, path, &[JSON], &body.to_string()).await
}

fn digests(list: &Value) -> Vec<String> {
    let sessions = list["sessions"].as_array().unwrap().iter();
    let digests = sessions.map(|session| session["session"].as_str().unwrap().to_owned());
    digests.collect()
}

#[tokio::test]
async fn sessions_are_listed_page_by_page_and_found_by_words() {
    let gateway = Gateway::start().await;
    for server in ["a", "a", "b"] {
        let session = gateway.open(server).await;
        gateway.echo(server, &session, json!({})).await;
    }
    let all = digests(&get(&gateway, "/admin/sessions").await);
    assert_eq!(all.len(), 3);
    let mut paged = Vec::new();
    let mut path = "/admin/sessions?limit=1".to_owned();
    for _ in 0..9 {
        let page = get(&gateway, &path).await;
        assert!(digests(&page).len() <= 1, "{page}");
        paged.extend(digests(&page));
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/admin/sessions?limit=1&cursor={cursor}");
    }
    assert_eq!(paged, all);
    for (query, count) in [
        ("server=a", 2),
        ("server=b", 1),
        ("text=server:b", 1),
        ("text=LOCAL", 3),
        ("text=local+bound", 3),
        ("text=local+nowhere", 0),
        ("user=local", 3),
        ("user=ada", 0),
        ("kind=code", 0),
        ("kind=mcp&epoch=1", 3),
        ("epoch=999999999999999999", 0),
        ("state=ended", 0),
        ("state=any", 3),
        (&format!("text={}", all[0]), 1),
        (&format!("text={}+bound", &all[1][..8]), 1),
        (&format!("text={}&server=c", all[0]), 0),
        ("text=bound", 3),
        ("text=127.0.0", 3),
    ] {
        let list = get(&gateway, &format!("/admin/sessions?{query}")).await;
        assert_eq!(digests(&list).len(), count, "{query}: {list}");
    }
    for query in [
        "limit=0",
        "usr=a",
        "state=x",
        "kind=x",
        "epoch=0",
        "cursor=x",
        "text=state:x",
    ] {
        let path = format!("/admin/sessions?{query}");
        let answer = ask(&gateway, Method::GET, &path, &[], "").await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.text);
        assert_eq!(answer.json()["error"]["code"], "invalid_query", "{query}");
    }
}

#[tokio::test]
async fn a_session_is_shown_whole_and_without_a_secret() {
    let gateway = Gateway::start().await;
    let session = gateway.open("a").await;
    gateway.echo("a", &session, json!({})).await;
    let list = get(&gateway, "/admin/sessions").await;
    let digest = digests(&list).remove(0);
    for named in [&digest[..], &digest[..6]] {
        let shown = get(&gateway, &format!("/admin/sessions/{named}")).await;
        assert_eq!(shown["session"], digest);
        assert_eq!(shown["bindings"][0]["server"], "a");
        let upstream = shown["bindings"][0]["upstream_session"].as_str().unwrap();
        assert!(
            upstream.starts_with('#') && upstream.len() == 17,
            "{upstream}"
        );
        let explanation = shown["explanation"].to_string();
        assert!(explanation.contains(&digest), "{explanation}");
        assert!(!shown.to_string().contains(&session));
    }
    assert!(!list.to_string().contains(&session));
    for (named, status, code) in [
        ("0123456789abcdef", 404, "session_not_found"),
        ("0123", 404, "session_not_found"),
        ("zz", 404, "session_not_found"),
        ("a:b:c", 404, "session_not_found"),
    ] {
        let path = format!("/admin/sessions/{named}");
        let answer = ask(&gateway, Method::GET, &path, &[], "").await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["error"]["code"]),
            (status, &json!(code))
        );
    }
}

#[tokio::test]
async fn a_session_ends_after_its_preview_and_once() {
    let gateway = Gateway::start().await;
    let session = gateway.open("a").await;
    gateway.echo("a", &session, json!({})).await;
    let digest = digests(&get(&gateway, "/admin/sessions").await).remove(0);
    let path = format!("/admin/sessions/{digest}/end");
    let preview = post(&gateway, &path, json!({"preview": true})).await;
    assert_eq!(preview.json()["preview"]["sessions"], 1, "{}", preview.text);
    assert_eq!(gateway.echo("a", &session, json!({})).await.status, 200);
    for changed in [1, 0] {
        let ended = post(&gateway, &path, json!({})).await;
        assert_eq!(
            ended.json()["progress"]["changed"],
            changed,
            "{}",
            ended.text
        );
        assert_eq!(ended.json()["progress"]["subject"], digest);
    }
    assert_eq!(gateway.echo("a", &session, json!({})).await.status, 404);
}

#[tokio::test]
async fn all_sessions_of_a_filter_end_and_no_others() {
    let gateway = Gateway::start().await;
    let mut sessions = Vec::new();
    for server in ["a", "b", "a"] {
        let session = gateway.open(server).await;
        gateway.echo(server, &session, json!({})).await;
        sessions.push((server, session));
    }
    let nothing = post(&gateway, "/admin/sessions/end", json!({"filter": {}})).await;
    assert_eq!(nothing.status, 400, "{}", nothing.text);
    let misspelt = json!({"filter": {"sever": "a"}});
    assert_eq!(
        post(&gateway, "/admin/sessions/end", misspelt).await.status,
        400
    );
    let filter = json!({"server": "a"});
    let preview = json!({"filter": filter, "preview": true});
    let preview = post(&gateway, "/admin/sessions/end", preview).await.json();
    assert_eq!(preview["preview"]["sessions"], 2, "{preview}");
    assert_eq!(preview["preview"]["sample"].as_array().unwrap().len(), 2);
    let ended = post(&gateway, "/admin/sessions/end", json!({"filter": filter}))
        .await
        .json();
    assert_eq!(
        ended["progress"],
        json!({"act": "sessions.end", "subject": "server:a", "changed": 2, "is_left": false, "detail": null})
    );
    for (server, session) in &sessions {
        let status = gateway.echo(server, session, json!({})).await.status;
        assert_eq!(status == 200, *server == "b", "{server}: {status}");
    }
}

#[tokio::test]
async fn each_function_needs_its_right_and_names_it() {
    let gateway = Gateway::start_with(BY_HEADER).await;
    for (method, path, body, right) in [
        (Method::GET, "/admin/sessions", "", "sessions.read"),
        (
            Method::GET,
            "/admin/sessions/0123456789abcdef",
            "",
            "sessions.read",
        ),
        (Method::GET, "/admin/top", "", "sessions.read"),
        (Method::GET, "/admin/users/ada/rights", "", "sessions.read"),
        (Method::GET, "/admin/workers", "", "fleet.read"),
        (Method::GET, "/admin/servers", "", "fleet.read"),
        (Method::GET, "/admin/servers/a", "", "fleet.read"),
        (Method::GET, "/admin/fleet", "", "fleet.read"),
        (
            Method::POST,
            "/admin/sessions/0123456789abcdef/end",
            "{}",
            "sessions.manage",
        ),
        (
            Method::POST,
            "/admin/sessions/end",
            r#"{"filter":{"user":"x"}}"#,
            "sessions.manage",
        ),
        (
            Method::POST,
            "/admin/sessions/0123456789abcdef/move",
            "{}",
            "sessions.manage",
        ),
        (
            Method::POST,
            "/admin/workers/w:1/drain",
            "{}",
            "fleet.manage",
        ),
        (
            Method::POST,
            "/admin/workers/w:1/undrain",
            "{}",
            "fleet.manage",
        ),
        (
            Method::POST,
            "/admin/servers/a/park",
            "{}",
            "servers.manage",
        ),
        (
            Method::POST,
            "/admin/servers/a/unpark",
            r#"{"preview":true}"#,
            "servers.manage",
        ),
    ] {
        let by = async |roles: &str| {
            let headers = [JSON, ("x-mooring-user", "ada"), ("x-mooring-roles", roles)];
            ask(&gateway, method.clone(), path, &headers, body).await
        };
        let all: Vec<&str> = [
            "sessions.read",
            "sessions.manage",
            "fleet.read",
            "fleet.manage",
            "servers.manage",
            "servers.read",
        ]
        .into_iter()
        .filter(|other| *other != right)
        .collect();
        let refused = by(&all.join(",")).await;
        assert_eq!(refused.status, 403, "{path}: {}", refused.text);
        let error = refused.json()["error"].clone();
        assert_eq!(error["code"], "forbidden");
        assert!(
            error["message"].as_str().unwrap().contains(right),
            "{path}: {error}"
        );
        for roles in [right, "admin"] {
            let answer = by(roles).await;
            assert_ne!(answer.status, 403, "{path} by {roles}: {}", answer.text);
        }
        let nobody = ask(&gateway, method.clone(), path, &[JSON], body).await;
        assert_eq!(nobody.status, 401, "{path}: {}", nobody.text);
    }
}

/// A browser sends such requests for a page of another site without asking the gateway first, or for an MCP client of an
/// allowed origin.
#[tokio::test]
async fn an_act_of_another_sites_page_is_refused() {
    let gateway = Gateway::start().await;
    let path = "/admin/servers/a/park";
    let text = ("content-type", "text/plain");
    let form = ("content-type", "application/x-www-form-urlencoded");
    let allowed = ("origin", "https://app.example");
    for (headers, status) in [
        (&[text][..], 415),
        (&[form], 415),
        (&[], 415),
        (&[JSON, allowed], 403),
        (&[JSON, ("origin", "http://localhost:1")], 403),
        (&[JSON, ("origin", "null")], 403),
        (&[JSON], 200),
    ] {
        let answer = ask(&gateway, Method::POST, path, headers, "{}").await;
        assert_eq!(answer.status, status, "{headers:?}: {}", answer.text);
    }
    let read = ask(&gateway, Method::GET, "/admin/servers", &[allowed], "").await;
    assert_eq!(read.status, 200, "{}", read.text);
}

#[tokio::test]
async fn what_is_parked_or_drains_is_shown_with_who_wants_it_and_why() {
    let gateway = Gateway::start().await;
    let pair = get(&gateway, "/admin/servers/pair").await;
    let instance = pair["instance_list"][0]["instance"].clone();
    let body = json!({"instance": instance, "note": "slow"});
    let preview = json!({"instance": instance, "preview": true});
    let preview = post(&gateway, "/admin/servers/pair/park", preview).await;
    assert!(preview.text.contains("no new sessions"), "{}", preview.text);
    for changed in [1, 0] {
        let parked = post(&gateway, "/admin/servers/pair/park", body.clone()).await;
        assert_eq!(
            parked.json()["progress"]["changed"],
            changed,
            "{}",
            parked.text
        );
    }
    let pair = get(&gateway, "/admin/servers/pair").await;
    assert_eq!(pair["instance_list"][0]["parked"]["note"], "slow", "{pair}");
    assert_eq!(pair["instance_list"][0]["parked"]["by"], "local");
    assert!(
        pair["instance_list"][1]["parked"].is_null() && pair["parked"].is_null(),
        "{pair}"
    );
    let body = json!({"instance": instance});
    post(&gateway, "/admin/servers/pair/unpark", body).await;
    let pair = get(&gateway, "/admin/servers/pair").await;
    assert!(pair["instance_list"][0]["parked"].is_null(), "{pair}");

    let drained = post(
        &gateway,
        "/admin/workers/w:1/drain",
        json!({"note": "kernel"}),
    )
    .await;
    assert_eq!(drained.json()["progress"]["changed"], 1, "{}", drained.text);
    let workers = get(&gateway, "/admin/workers").await;
    assert_eq!(
        workers["workers"][0]["drain"]["note"], "kernel",
        "{workers}"
    );
    post(&gateway, "/admin/workers/w:1/undrain", json!({})).await;
    assert!(get(&gateway, "/admin/workers").await["workers"][0]["drain"].is_null());
    for (path, body, code) in [
        ("/admin/servers/none/park", json!({}), "server_not_found"),
        (
            "/admin/servers/pair/park",
            json!({"instance": "http://x/"}),
            "instance_not_found",
        ),
        ("/admin/workers/w:2/drain", json!({}), "worker_not_found"),
    ] {
        let answer = post(&gateway, path, body).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["error"]["code"]),
            (404, &json!(code))
        );
    }
}

#[tokio::test]
async fn the_fleet_is_counted_by_instance_and_gateway() {
    let gateway = Gateway::start().await;
    for server in ["pair", "pair", "pair", "a"] {
        let session = gateway.open(server).await;
        gateway.echo(server, &session, json!({})).await;
    }
    let fleet = get(&gateway, "/admin/fleet").await;
    assert_eq!(fleet["sessions"]["mcp"], 4, "{fleet}");
    let servers = fleet["servers"].as_array().unwrap();
    let pair = servers
        .iter()
        .find(|load| load["server"] == "pair")
        .unwrap();
    let counts = pair["instances"].as_array().unwrap().iter();
    let counts: Vec<u64> = counts
        .map(|load| load["sessions"].as_u64().unwrap())
        .collect();
    assert_eq!((counts.iter().sum::<u64>(), counts.len()), (3, 2), "{pair}");
    assert!(pair["skew"].as_f64().unwrap() > 1.0, "{pair}");
    assert_eq!(fleet["gateways"][0]["worker"], "w:1");
    assert_eq!(fleet["gateways"][0]["bindings"], 4, "{fleet}");
    let rights = get(&gateway, "/admin/users/ada/rights?teams=red,blue").await;
    assert_eq!(rights["teams"], json!(["red", "blue"]));
    assert_eq!(rights["servers"][0]["may_use"], true, "{rights}");
}
