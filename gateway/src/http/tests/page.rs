//! The operators' page as HTML and headers: who sees it, what it lets a browser do, and that it shows text as text.

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::IntoResponse;
use axum::routing::post;
use http::{Method, Request, StatusCode};
use mooring_identity::{ApiKeyFile, NewApiKey, now};
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::{Answer, Gateway};

const ORIGIN: &str = "http://localhost";
const HOSTILE: &str = "<script>alert('x')</script>\"&";

/// A gateway whose callers have API keys.
struct KeyedGateway {
    gateway: Gateway,
    home: TempDir,
}

impl KeyedGateway {
    async fn start() -> Self {
        let home = TempDir::new().unwrap();
        let file = home.path().join("keys.json");
        let auth = format!("[auth]\nmode = \"api-key\"\napi_keys_file = {file:?}\n");
        let keyed = Self {
            gateway: Gateway::start_with(&auth).await,
            home,
        };
        keyed.key_of("nobody", &[]).await;
        keyed
    }

    /// A new key of this user with these roles.
    async fn key_of(&self, user: &str, roles: &[&str]) -> String {
        let new = NewApiKey {
            user: user.to_owned(),
            teams: Vec::new(),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            scopes: Vec::new(),
            note: None,
            lifetime: Duration::from_secs(600),
        };
        let key = ApiKeyFile::create(&self.file(), &new, now()).unwrap();
        self.read_keys().await;
        key
    }

    fn file(&self) -> std::path::PathBuf {
        self.home.path().join("keys.json")
    }

    async fn read_keys(&self) {
        let app = self.gateway.routes.app.as_ref().unwrap();
        app.authenticator.read_keys().await;
    }

    /// Signs in with a key: the answer.
    async fn sign_in(&self, key: &str) -> Answer {
        let page = get(&self.gateway, "/ui/sign-in", None).await;
        let token = form_token(&page.text);
        let form = [
            ("form_token", &*token),
            ("credential", key),
            ("to", "/ui/call"),
        ];
        send_form(&self.gateway, "/ui/sign-in", None, &form).await
    }

    /// The cookie of a new sign-in.
    async fn cookie_of(&self, user: &str, roles: &[&str]) -> String {
        let key = self.key_of(user, roles).await;
        cookie(&self.sign_in(&key).await)
    }
}

async fn send(gateway: &Gateway, request: http::request::Builder, body: Body) -> Answer {
    Answer::read(gateway.send(request.body(body).unwrap()).await).await
}

fn page_request(method: Method, path: &str, cookie: Option<&str>) -> http::request::Builder {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost");
    match cookie {
        Some(cookie) => request.header("cookie", cookie),
        None => request,
    }
}

async fn get(gateway: &Gateway, path: &str, cookie: Option<&str>) -> Answer {
    send(
        gateway,
        page_request(Method::GET, path, cookie),
        Body::empty(),
    )
    .await
}

/// Sends a form as a browser does from the page itself.
async fn send_form(
    gateway: &Gateway,
    path: &str,
    cookie: Option<&str>,
    fields: &[(&str, &str)],
) -> Answer {
    let request = page_request(Method::POST, path, cookie)
        .header("origin", ORIGIN)
        .header("sec-fetch-site", "same-origin")
        .header("content-type", "application/x-www-form-urlencoded");
    let form = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields)
        .finish();
    send(gateway, request, form.into()).await
}

fn form_token(page: &str) -> String {
    let field = r#"name="form_token" value=""#;
    let (_, rest) = page
        .split_once(field)
        .unwrap_or_else(|| panic!("a form: {page}"));
    rest.split_once('"').unwrap().0.to_owned()
}

fn cookie(answer: &Answer) -> String {
    let set = answer
        .header("set-cookie")
        .unwrap_or_else(|| panic!("a cookie: {}", answer.text));
    set.split_once(';').unwrap().0.to_owned()
}

#[tokio::test]
async fn traffic_shows_users_and_sessions_to_those_who_may_see_them() {
    let keyed = KeyedGateway::start().await;
    for (roles, status, sees_senders) in [
        (&["fleet.read", "sessions.read"][..], 200, true),
        (&["fleet.read"], 200, false),
        (&["sessions.read"], 403, false),
    ] {
        let cookie = keyed.cookie_of("ada@example.org", roles).await;
        let page = get(&keyed.gateway, "/ui/traffic", Some(&cookie)).await;
        assert_eq!(page.status, status, "{roles:?}: {}", page.text);
        let is_seen = page.text.contains("Users that send most");
        assert_eq!(is_seen, sees_senders, "{roles:?}: {}", page.text);
        if status == 403 {
            let live = get(&keyed.gateway, "/ui/traffic/live", Some(&cookie)).await;
            assert_eq!(live.status, 403, "{roles:?}");
        }
    }
}

#[tokio::test]
async fn every_reply_forbids_what_the_page_does_not_need() {
    let keyed = KeyedGateway::start().await;
    let cookie = keyed.cookie_of("ada", &["admin"]).await;
    let page = get(&keyed.gateway, "/ui/sign-in", None).await;
    let style = page
        .text
        .split_once("rel=\"stylesheet\" href=\"")
        .unwrap()
        .1;
    let style = style.split_once('"').unwrap().0.to_owned();
    for (path, cookie, status) in [
        ("/ui/sign-in", None, 200),
        ("/ui/call", Some(&*cookie), 200),
        ("/ui/call", None, 303),
        ("/ui/runs/none/none", Some(&*cookie), 404),
        (&style, None, 200),
        ("/ui/assets/none.css", None, 404),
    ] {
        let answer = get(&keyed.gateway, path, cookie).await;
        assert_eq!(answer.status, status, "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "frame-ancestors 'none'",
            "form-action 'self'",
            "base-uri 'none'",
            "connect-src 'self'",
        ] {
            assert!(
                policy.split("; ").any(|found| found == part),
                "{path}: {policy}"
            );
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("x-frame-options"), Some("DENY"));
        assert_eq!(answer.header("referrer-policy"), Some("same-origin"));
        // A page is nobody else's; a file of the page is everybody's, and never changes under its name.
        let kept = answer.header("cache-control").unwrap();
        assert_eq!(kept.contains("immutable"), path == style, "{path}: {kept}");
        if path != style {
            assert_eq!(kept, "no-store", "{path}");
        }
        assert!(
            !answer.text.contains("style=\"") && !answer.text.contains("<style"),
            "{path}"
        );
        assert!(
            !answer.text.contains(" onclick") && !answer.text.contains("javascript:"),
            "{path}"
        );
    }
    let tag = get(&keyed.gateway, &style, None)
        .await
        .header("etag")
        .unwrap()
        .to_owned();
    let request = page_request(Method::GET, &style, None).header("if-none-match", tag);
    assert_eq!(
        send(&keyed.gateway, request, Body::empty()).await.status,
        304
    );
}

#[tokio::test]
async fn a_person_signs_in_with_a_key_and_stays_so_until_it_is_revoked() {
    let keyed = KeyedGateway::start().await;
    let unknown = get(&keyed.gateway, "/ui/call?server=a", None).await;
    assert_eq!(unknown.status, 303);
    assert_eq!(
        unknown.header("location"),
        Some("/ui/sign-in?to=%2Fui%2Fcall%3Fserver%3Da")
    );

    let refused = keyed.sign_in("mk_0_wrong").await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert_eq!(refused.header("set-cookie"), None);
    assert!(
        refused.text.contains("the API key is not known"),
        "{}",
        refused.text
    );
    assert!(
        !refused.text.contains("mk_0_wrong"),
        "a credential is not repeated"
    );

    let key = keyed.key_of("ada", &["admin"]).await;
    let signed_in = keyed.sign_in(&key).await;
    assert_eq!(signed_in.status, 200, "{}", signed_in.text);
    let set = signed_in.header("set-cookie").unwrap();
    for attribute in [
        "; HttpOnly",
        "; SameSite=Strict",
        "; Path=/ui",
        "; Max-Age=",
    ] {
        assert!(set.contains(attribute), "{attribute}: {set}");
    }
    assert!(
        !set.contains(key.splitn(3, '_').last().unwrap()),
        "the cookie has no credential"
    );
    let cookie = cookie(&signed_in);
    let page = get(&keyed.gateway, "/ui/call", Some(&cookie)).await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains(">ada<"), "{}", page.text);

    ApiKeyFile::revoke(&keyed.file(), key.split('_').nth(1).unwrap(), now()).unwrap();
    keyed.read_keys().await;
    let after = get(&keyed.gateway, "/ui/call", Some(&cookie)).await;
    assert_eq!(after.status, 303, "a revoked key ends its sign-ins");
}

#[tokio::test]
async fn a_page_shows_what_rights_allow_and_nothing_without_any() {
    let keyed = KeyedGateway::start().await;
    let nobody = keyed.cookie_of("bob", &["servers.use"]).await;
    let refused = get(&keyed.gateway, "/ui/call", Some(&nobody)).await;
    assert_eq!(refused.status, 403);
    assert!(
        !refused.text.contains("href=\"/ui/runs\""),
        "{}",
        refused.text
    );

    let approver = keyed.cookie_of("eve", &["skills.approve"]).await;
    let skills = get(&keyed.gateway, "/ui/skills", Some(&approver)).await;
    assert_eq!(skills.status, 200);
    assert!(
        !skills.text.contains("href=\"/ui/runs\""),
        "{}",
        skills.text
    );
    let runs = get(&keyed.gateway, "/ui/runs", Some(&approver)).await;
    assert_eq!(runs.status, 403);
    assert!(
        runs.text.contains("servers.read"),
        "the missing right is named: {}",
        runs.text
    );
}

#[tokio::test]
async fn a_form_needs_the_token_of_its_own_sign_in() {
    let keyed = KeyedGateway::start().await;
    let ada = keyed.cookie_of("ada", &["admin"]).await;
    let again = keyed.cookie_of("ada", &["admin"]).await;
    let page = get(&keyed.gateway, "/ui/call", Some(&ada)).await;
    let token = form_token(&page.text);
    let of_another = form_token(&get(&keyed.gateway, "/ui/call", Some(&again)).await.text);
    let of_nobody = form_token(&get(&keyed.gateway, "/ui/sign-in", None).await.text);
    for wrong in ["", "1.2", &of_another, &of_nobody] {
        let sent = [("form_token", wrong), ("server", "a"), ("tool", "echo")];
        let answer = send_form(&keyed.gateway, "/ui/call", Some(&ada), &sent).await;
        assert_eq!(answer.status, 403, "{wrong}");
    }
    assert_eq!(keyed.gateway.a.sessions(), 0, "nothing was sent");
    let sent = [
        ("form_token", &*token),
        ("server", "a"),
        ("tool", "echo"),
        ("arguments", "{\"n\": 7}"),
    ];
    let answer = send_form(&keyed.gateway, "/ui/call", Some(&ada), &sent).await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.text.contains("The tool has answered."),
        "{}",
        answer.text
    );
    assert!(
        answer.text.contains("POST /servers/a/mcp HTTP/1.1"),
        "the wire is shown: {}",
        answer.text
    );
    assert_eq!(keyed.gateway.a.sessions(), 0, "its session has ended");

    // Without the cookie nobody is known; with another content type it is no form of a browser.
    let answer = send_form(&keyed.gateway, "/ui/call", None, &sent).await;
    assert_eq!(answer.status, 401);
    let request =
        page_request(Method::POST, "/ui/call", Some(&ada)).header("content-type", "text/plain");
    let answer = send(
        &keyed.gateway,
        request,
        format!("form_token={token}").into(),
    )
    .await;
    assert_eq!(answer.status, 415);
}

#[tokio::test]
async fn a_page_of_another_origin_gets_nothing() {
    let keyed = KeyedGateway::start().await;
    let ada = keyed.cookie_of("ada", &["admin"]).await;
    let token = form_token(&get(&keyed.gateway, "/ui/call", Some(&ada)).await.text);
    let form = format!("form_token={token}&server=a&tool=echo");
    // One that MCP clients may be on, too.
    for origin in [
        "https://evil.example",
        "https://app.example",
        "null",
        "http://localhost:1",
    ] {
        for method in [Method::GET, Method::POST] {
            let request = page_request(method.clone(), "/ui/call", Some(&ada))
                .header("origin", origin)
                .header("content-type", "application/x-www-form-urlencoded");
            let answer = send(&keyed.gateway, request, form.clone().into()).await;
            assert_eq!(answer.status, 403, "{method} {origin}");
        }
    }
    let fetched = |site: &'static str, mode: &'static str| {
        page_request(Method::GET, "/ui/call", Some(&ada))
            .header("sec-fetch-site", site)
            .header("sec-fetch-mode", mode)
    };
    for (site, mode, status) in [
        ("cross-site", "no-cors", 403),
        ("same-site", "cors", 403),
        ("cross-site", "navigate", 200),
        ("same-origin", "cors", 200),
        ("none", "navigate", 200),
    ] {
        let answer = send(&keyed.gateway, fetched(site, mode), Body::empty()).await;
        assert_eq!(answer.status, status, "{site} {mode}");
    }
    // Led here from elsewhere, a browser leaves out the cookie: the page is opened once more, from here.
    let led = page_request(Method::GET, "/ui/call", None)
        .header("sec-fetch-site", "cross-site")
        .header("sec-fetch-mode", "navigate");
    let answer = send(&keyed.gateway, led, Body::empty()).await;
    assert_eq!(answer.status, 200);
    assert!(
        answer
            .text
            .contains("http-equiv=\"refresh\" content=\"0;url=/ui/call\""),
        "{}",
        answer.text
    );
}

#[tokio::test]
async fn signing_out_deletes_the_cookie() {
    let keyed = KeyedGateway::start().await;
    let ada = keyed.cookie_of("ada", &["admin"]).await;
    let token = form_token(&get(&keyed.gateway, "/ui/call", Some(&ada)).await.text);
    let answer = send_form(
        &keyed.gateway,
        "/ui/sign-out",
        Some(&ada),
        &[("form_token", &token)],
    )
    .await;
    assert_eq!(answer.status, 303);
    let set = answer.header("set-cookie").unwrap();
    assert!(
        set.starts_with("mooring-page=; ") && set.contains("Max-Age=0"),
        "{set}"
    );
}

/// A server whose tools have names, descriptions, schemas and results that are no plain text.
async fn hostile_server() -> (SocketAddr, tokio::task::JoinHandle<()>) {
    async fn answer(body: Bytes) -> axum::response::Response {
        let message: Value = serde_json::from_slice(&body).unwrap();
        let result = match message["method"].as_str().unwrap() {
            "initialize" => json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": HOSTILE, "version": "1"}}),
            "tools/list" => json!({"tools": [{"name": HOSTILE, "description": HOSTILE,
                "inputSchema": {"type": "object", "description": HOSTILE}}]}),
            "tools/call" => json!({"content": [{"type": "text", "text": HOSTILE}]}),
            _ => return StatusCode::ACCEPTED.into_response(),
        };
        let text = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
        ([("content-type", "application/json")], text).into_response()
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = Router::new().route("/mcp", post(answer));
    let serving = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (address, serving)
}

#[tokio::test]
async fn text_of_users_and_tools_is_shown_as_text() {
    let (address, serving) = hostile_server().await;
    let gateway = Gateway::start_with(&format!(
        "[[servers]]\nid = \"hostile\"\nkind = \"http\"\ninstances = [\"http://{address}/mcp\"]\n"
    ))
    .await;
    let escaped = "&lt;script&gt;alert('x')&lt;/script&gt;&quot;&amp;";
    let tool: String = url::form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect();
    let shown = get(
        &gateway,
        &format!("/ui/call?server=hostile&tool={tool}"),
        None,
    )
    .await;
    assert_eq!(shown.status, 200);
    let token = form_token(&shown.text);
    let fields = [
        ("form_token", &*token),
        ("server", "hostile"),
        ("tool", HOSTILE),
    ];
    let called = send_form(&gateway, "/ui/call", None, &fields).await;
    assert!(
        called.text.contains("The tool has answered."),
        "{}",
        called.text
    );
    let unread = send_form(
        &gateway,
        "/ui/call",
        None,
        &[("arguments", HOSTILE), fields[0], fields[1], fields[2]],
    )
    .await;
    assert!(
        unread.text.contains("the arguments are no JSON"),
        "{}",
        unread.text
    );
    for page in [&shown, &called, &unread] {
        assert!(page.text.contains(escaped), "{}", page.text);
        assert!(!page.text.contains("<script>"), "{}", page.text);
    }
    serving.abort();
}

#[tokio::test]
async fn sessions_are_found_and_shown_as_text_and_end_when_somebody_may_end_them() {
    let keyed = KeyedGateway::start().await;
    let user = keyed.key_of(HOSTILE, &["servers.use"]).await;
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": HOSTILE, "version": "1"}});
    let opened = super::post("a", None).header("x-api-key", &user);
    let opened = send(
        &keyed.gateway,
        opened,
        super::request(0, "initialize", params).to_string().into(),
    )
    .await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();

    let admin = keyed.cookie_of("ada", &["admin"]).await;
    let found = get(&keyed.gateway, "/ui/sessions?text=server%3Aa", Some(&admin)).await;
    assert_eq!(found.status, 200);
    assert!(
        found.text.contains("&lt;script&gt;alert('x')"),
        "{}",
        found.text
    );
    assert!(!found.text.contains("<script>"), "{}", found.text);
    assert!(
        !found.text.contains(&session),
        "an id of a session is a secret"
    );
    let none = get(&keyed.gateway, "/ui/sessions?text=nobody", Some(&admin)).await;
    assert!(none.text.contains("No session was found."), "{}", none.text);
    let (_, rest) = found.text.split_once("href=\"/ui/sessions/").unwrap();
    let digest = rest.split_once('"').unwrap().0.to_owned();
    let shown = get(
        &keyed.gateway,
        &format!("/ui/sessions/{digest}"),
        Some(&admin),
    )
    .await;
    assert!(shown.text.contains("Where its calls go"), "{}", shown.text);
    assert!(!shown.text.contains(&session) && !shown.text.contains("<script>"));

    let ping = async || {
        let request = super::post("a", Some(&session)).header("x-api-key", &user);
        let ping = super::request(1, "ping", json!({})).to_string();
        send(&keyed.gateway, request, ping.into()).await.status
    };
    let act = async |cookie: &str| {
        let path = format!("/ui/acts/end?session={digest}");
        let preview = get(&keyed.gateway, &path, Some(cookie)).await;
        let page = get(&keyed.gateway, "/ui/sessions", Some(cookie)).await;
        let fields = [
            ("form_token", &*form_token(&page.text)),
            ("session", &digest),
        ];
        let done = send_form(&keyed.gateway, "/ui/acts/end", Some(cookie), &fields).await;
        (preview, done)
    };
    let reader = keyed.cookie_of("eve", &["sessions.read"]).await;
    let (preview, done) = act(&reader).await;
    assert_eq!(
        (preview.status, done.status),
        (StatusCode::FORBIDDEN, StatusCode::FORBIDDEN)
    );
    assert!(done.text.contains("sessions.manage"), "{}", done.text);
    assert_eq!(ping().await, 200);
    let (preview, done) = act(&admin).await;
    assert!(preview.text.contains("If you confirm"), "{}", preview.text);
    assert!(
        done.text.contains("The session has ended."),
        "{}",
        done.text
    );
    assert_eq!(ping().await, 404);
}

#[tokio::test]
async fn a_person_has_so_many_live_parts_at_once_and_others_have_theirs() {
    let keyed = KeyedGateway::start().await;
    let (one, other) = (
        keyed.cookie_of("one", &["admin"]).await,
        keyed.cookie_of("other", &["admin"]).await,
    );
    let open = async |cookie: &str| {
        let request = page_request(Method::GET, "/ui/fleet/live", Some(cookie));
        let reply = keyed.gateway.send(request.body(Body::empty()).unwrap());
        reply.await
    };
    let mut held = Vec::new();
    for _ in 0..8 {
        let reply = open(&one).await;
        assert_eq!(reply.status(), StatusCode::OK);
        held.push(reply);
    }
    let refused = open(&one).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(open(&other).await.status(), StatusCode::OK);
    drop(held.pop());
    assert_eq!(open(&one).await.status(), StatusCode::OK, "one was closed");
}
