//! Two teams, at one gateway and at two of a fleet: whatever one does there, and whichever of its ids the other learns,
//! the other sees no more than of ids that never existed, and the gateway asks the store the same, so that the time tells
//! nothing either. Every route is asked; one that is missing here fails the test.
//!
//! [`callers`]: the two, and how they are known. [`requests`]: what is asked, route by route. [`scene`]: the gateways and
//! their answers. Here are the names that these share, and the walk itself.

mod callers;
pub(crate) mod requests;
mod scene;

use anyhow::Context;
use mooring_tests::legacy::LegacySession;
use serde_json::json;

use self::callers::{ADA, Authentication, BOB};
use self::requests::{Asked, Ids, requests, routes};
use self::scene::{Scene, more};

/// The server that only Ada's team may use, and the id of none.
const HERS: &str = "herserver";
const NO_SERVER: &str = "noserver7";
/// The server that users store credentials for.
const KEYED: &str = "keyed";
/// In every argument, program, file, skill and name of Ada's.
const MARKER: &str = "zqxmark";
/// Servers that both teams use.
const SHARED: [&str; 4] = ["shared", "piped", "workshop", "all"];

#[tokio::test]
async fn what_is_anothers_is_answered_as_what_never_was() -> anyhow::Result<()> {
    ask_for_what_is_anothers(Scene::start(false, Authentication::TrustedHeader).await?).await
}

#[tokio::test]
async fn tokens_tell_no_more_than_headers() -> anyhow::Result<()> {
    let authentication = Authentication::by_tokens().await?;
    ask_for_what_is_anothers(Scene::start(false, authentication).await?).await
}

#[tokio::test]
async fn another_gateway_of_the_fleet_tells_no_more() -> anyhow::Result<()> {
    ask_for_what_is_anothers(Scene::start(true, Authentication::TrustedHeader).await?).await
}

async fn ask_for_what_is_anothers(mut scene: Scene) -> anyhow::Result<()> {
    let ada = scene.live(ADA, HERS, MARKER).await?;
    let opening = scene.authentication.opening(ADA)?;
    let older = scene.gateway(ADA)?.url("/servers/shared/sse");
    let mut older = LegacySession::open_with(&scene.client, &older, &opening).await?;
    let endpoint = older.connection().endpoint();
    let (_, id) = endpoint.split_once("sessionId=").context("a session id")?;
    let ada = Ids {
        legacy: id.to_owned(),
        ..ada
    };
    let bob = scene.live(BOB, "hisserver", "bobmark").await?;
    let secret = json!({"secret": MARKER});
    let stored = Asked::put(format!("/servers/{KEYED}/credential"), secret);
    scene.json(ADA, stored).await?;
    let nobody = ada.made_up();
    for (hers, made_up) in ada.texts().iter().zip(nobody.texts()) {
        assert_ne!(*hers, made_up);
    }

    let mut wrong = Vec::new();
    for route in routes() {
        let of = |ids| requests(route, ids, &bob);
        let (Some(of_ada), Some(of_nobody)) = (of(&ada), of(&nobody)) else {
            wrong.push(format!("no request is known for the route {route}"));
            continue;
        };
        assert_eq!(of_ada.len(), of_nobody.len(), "{route}");
        let mut before = scene.store_commands().await?;
        for (hers, made_up) in of_ada.iter().zip(&of_nobody) {
            let what = format!(
                "{} {} {:?} {:?}",
                hers.method, hers.path, hers.session, hers.event
            );
            let answers = async {
                let hers = scene.answer(hers, &ada).await?;
                let between = scene.store_commands().await?;
                anyhow::Ok((hers, between, scene.answer(made_up, &nobody).await?))
            };
            match answers.await {
                Err(error) => wrong.push(format!("{what}: {error:#}")),
                Ok((hers, _, made_up)) if hers != made_up => {
                    wrong.push(format!("{what}: {hers:?}, but {made_up:?}"));
                }
                Ok((answer, between, _)) => {
                    let after = scene.store_commands().await?;
                    let is_same = more(&before, &between) == more(&between, &after);
                    before = after;
                    // A stream's end costs commands, which come at any time.
                    let is_stream = answer.body.is_none();
                    if !is_same && !is_stream && !scene.costs_the_same(hers, made_up).await? {
                        wrong.push(format!("{what}: it costs other commands"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} answers: {wrong:#?}", wrong.len());

    scene.lists_have_ones_own(ADA, &ada).await?;
    scene.lists_have_ones_own(BOB, &bob).await?;
    scene.still_has(ADA, &ada, MARKER).await?;
    let ping = older.request("ping", json!({})).await?.response;
    assert_eq!(ping["result"], json!({}), "{ping}");

    let mut texts = Vec::new();
    for gateway in &mut scene.gateways {
        let log = gateway.process().log_text();
        assert!(log.contains("DEBUG"), "{log}");
        texts.extend([("metrics", gateway.metrics().await?), ("log", log)]);
    }
    let mut shown = Vec::new();
    for (place, text) in &texts {
        for ids in [&ada, &bob] {
            let names = [ids.user.as_str(), &ids.team, &ids.legacy, MARKER, "bobmark"];
            let hidden = ids.sessions.values().map(String::as_str).chain(names);
            for hidden in hidden.filter(|hidden| !hidden.is_empty()) {
                let lines = text.lines().filter(|line| line.contains(hidden));
                shown.extend(lines.map(|line| format!("{hidden} in {place}: {line}")));
            }
        }
    }
    assert!(shown.is_empty(), "{shown:#?}");
    Ok(())
}
