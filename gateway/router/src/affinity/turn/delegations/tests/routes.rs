//! Messages without a turn, which share the route that the store delegated.

use mooring_session::rules::RouteRequest;

use super::*;

impl Gateway {
    fn route_request(&self) -> RouteRequest {
        RouteRequest {
            principal: self.session.principal.clone(),
            worker: self.router.worker().clone(),
            ..make::route()
        }
    }

    async fn first_route(&self) -> Result<RouteReply, StoreError> {
        let request = self.route_request();
        self.router.first_route(&self.session, &request).await
    }

    /// Whether the next message would use a route without asking.
    fn shares_a_route(&self) -> bool {
        let table = self.router.delegations();
        let (now, wake_ups) = (boot_now(), table.wake_ups());
        let mut shard = table.shard(&delegation_key());
        let beginning = shard.routes.begin(&delegation_key(), now, wake_ups);
        matches!(beginning, mooring_delivery::RouteBeginning::Use(_))
    }

    async fn until_shared(&self) {
        eventually("the route is delegated", async || {
            self.first_route().await.unwrap();
            self.shares_a_route()
        })
        .await;
    }
}

#[tokio::test]
async fn a_route_is_used_until_its_binding_changes() {
    let store = scene().await;
    let gateway = Gateway::new(&store, "w:1", LEASE);
    gateway.until_shared().await;
    let routed = gateway.first_route().await.unwrap();
    let binding = routed.binding.unwrap();
    assert_eq!(binding.instance, make::instance("i"));
    // As by another gateway.
    let moved = make::rebind(binding.epoch, "t2", "j");
    store.rebind(&key(), &moved).await.unwrap();
    eventually("the new binding is used", async || {
        let routed = gateway.first_route().await.unwrap();
        routed.binding.unwrap().instance == make::instance("j")
    })
    .await;
}

#[tokio::test]
async fn a_route_ends_with_the_session_and_is_no_other_principals() {
    let store = scene().await;
    let mut gateway = Gateway::new(&store, "w:1", LEASE);
    gateway.until_shared().await;
    let alice = std::mem::replace(&mut gateway.session.principal, make::principal("bob"));
    let refused = gateway.first_route().await;
    assert_eq!(refused, Err(StoreError::Refused(Refusal::Denied)));
    gateway.session.principal = alice;
    store.end(&key(), &make::end()).await.unwrap();
    eventually("it is refused", async || {
        gateway.first_route().await == Err(StoreError::Refused(Refusal::Ended))
    })
    .await;
}

#[tokio::test]
async fn without_wake_ups_every_message_asks_for_its_route() {
    let store = scene().await;
    let gateway = Gateway::new(&store, "w:1", LEASE);
    gateway.until_shared().await;
    gateway.wake_ups.abort();
    eventually("the route is dropped", async || !gateway.shares_a_route()).await;
    for _ in 0..10 {
        gateway.first_route().await.unwrap();
        assert!(!gateway.shares_a_route());
    }
}
