//! Servers of kind `http`: with sessions, without, and as members of a group.

use std::time::Duration;

use mooring_tests::gateway::{Gateway, Settings};

use super::attack::{Attack, LONG, SHORT};
use super::echo::{Echo, Fault};

async fn check(fault: Fault, lasts: Duration) -> anyhow::Result<()> {
    let [web, shared, member] = [
        Echo::start(Some(fault)).await?,
        Echo::start(Some(fault)).await?,
        Echo::start(Some(fault)).await?,
    ];
    let settings = Settings::toml(format!(
        "[[servers]]\nid = \"web\"\naffinity = \"on\"\ninstances = [{:?}]\n\
         [[servers]]\nid = \"shared\"\naffinity = \"off\"\ninstances = [{:?}]\n\
         [[servers]]\nid = \"member\"\naffinity = \"on\"\ninstances = [{:?}]\n\
         [[servers]]\nid = \"all\"\nkind = \"group\"\nmembers = [\"member\"]\n",
        web.url(),
        shared.url(),
        member.url(),
    ))
    .users_by_header();
    let gateway = Gateway::start("foreign", settings).await?;
    let attack_on = async |server: &str, echo: &Echo, tool| {
        let name = format!("{fault:?} at {server}");
        let attack = Attack::begin(name, lasts, echo.count_spoiled());
        attack.call_at(&gateway.mcp_url(server), tool).await
    };
    let on_shared = async {
        match fault {
            // Without sessions there is no notification to answer.
            Fault::LateBody => Ok(()),
            _ => attack_on("shared", &shared, "echo").await,
        }
    };
    tokio::try_join!(
        attack_on("web", &web, "echo"),
        on_shared,
        attack_on("all", &member, "member__echo"),
    )?;
    let mismatched = ["source=\"upstream\""];
    let counted = gateway
        .metric("mooring_mismatched_replies_total", &mismatched)
        .await?;
    match fault {
        Fault::OtherId | Fault::OtherIdInEvent => assert!(counted > 0.0, "{fault:?}"),
        _ => {}
    }
    Ok(())
}

#[tokio::test]
async fn a_surplus_reply_reaches_nobody() -> anyhow::Result<()> {
    check(Fault::Surplus, SHORT).await
}

#[tokio::test]
async fn a_late_body_of_a_reply_without_one_reaches_nobody() -> anyhow::Result<()> {
    check(Fault::LateBody, SHORT).await
}

#[tokio::test]
async fn a_reply_that_came_before_its_request_reaches_nobody() -> anyhow::Result<()> {
    check(Fault::Early, SHORT).await
}

#[tokio::test]
async fn a_reply_with_the_id_of_another_request_reaches_nobody() -> anyhow::Result<()> {
    check(Fault::OtherId, SHORT).await?;
    check(Fault::OtherIdInEvent, SHORT).await
}

#[tokio::test]
async fn a_reply_with_two_ids_none_or_another_shape_is_an_error() -> anyhow::Result<()> {
    check(Fault::TwoIds, SHORT).await?;
    check(Fault::NoId, SHORT).await?;
    check(Fault::Html, SHORT).await
}

#[tokio::test]
#[ignore = "soak"]
async fn soak_no_fault_of_http_servers_gives_anybody_a_foreign_reply() -> anyhow::Result<()> {
    for fault in Fault::ALL {
        check(fault, LONG).await?;
    }
    Ok(())
}
