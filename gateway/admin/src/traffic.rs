//! What every gateway counts by itself, for the whole fleet: traffic by server and instance, who sends most, and the latest
//! refusals of a user.
//!
//! Invariants: nothing of this is in the store; every living gateway is asked, and one that does not answer is named. Traffic
//! is gathered once in [`USED_FOR`], however many operators look.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::operator::{Operator, OperatorIdentity};
use super::operator_error::OperatorError;
use mooring_metrics::{ExchangeFigures, RecentExchanges, recent_exchanges, recent_time};
use mooring_pipeline::{RefusalView, ServingCore, TopSenders};
use mooring_session::names::Principal;
use mooring_settings::Right;

/// How long gathered traffic is used.
const USED_FOR: Duration = Duration::from_secs(2);
/// Most gateways that are asked at once.
const ASKED_AT_ONCE: usize = 16;
/// Most users, and most sessions, that are shown.
const SENDERS_MAX: usize = 10;
/// Most servers and instances of one gateway.
const EXCHANGES_MAX: usize = 2_000;

/// What the fleet does now.
#[derive(Clone, Debug)]
pub struct TrafficView {
    /// The time that the figures cover.
    pub seconds: u64,
    /// Requests of clients by server, those first that took most time in all.
    pub servers: Vec<RecentExchanges>,
    /// Exchanges by server and instance, in the same order.
    pub instances: Vec<RecentExchanges>,
    /// The gateways, by name.
    pub gateways: Vec<GatewayTraffic>,
    /// Who sends most; none without the right `sessions.read`.
    pub senders: Option<TopSenders>,
    /// From how long a request counts as slow.
    pub slow_us: u64,
}

/// The requests of clients at one gateway, or why they are not known.
#[derive(Clone, Debug)]
pub struct GatewayTraffic {
    /// The gateway's id.
    pub worker: String,
    /// Its figures.
    pub figures: Result<ExchangeFigures, String>,
}

/// A user's latest refusals, at all gateways.
#[derive(Clone, Debug)]
pub struct UserRefusals {
    /// By the id of the gateway, the last refusal first.
    pub refusals: Vec<(String, RefusalView)>,
    /// The gateways that did not answer, with the reason.
    pub missing: Vec<(String, String)>,
}

/// What one gateway asks another.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum FiguresQuestion {
    /// [`CountedTraffic`].
    Traffic,
    /// The [`RefusalView`]s of the user with this digest.
    RefusalsOf(Box<str>),
}

/// What one gateway counts.
#[derive(Debug, Deserialize, Serialize)]
struct CountedTraffic {
    seconds: u64,
    exchanges: Vec<RecentExchanges>,
    senders: TopSenders,
}

/// The answer of one gateway of the fleet.
struct GatewayAnswer<A> {
    worker: String,
    answer: Result<A, String>,
}

/// What the gateway with this core answers to a question of another one; none if it does not know the question.
#[must_use]
pub fn answer_figures(core: &ServingCore, question: &[u8]) -> Option<Bytes> {
    let log = &core.request_log;
    let answer = match serde_json::from_slice(question).ok()? {
        FiguresQuestion::Traffic => {
            let mut exchanges = recent_exchanges();
            exchanges.truncate(EXCHANGES_MAX);
            serde_json::to_vec(&CountedTraffic {
                seconds: recent_time().as_secs(),
                exchanges,
                senders: log.top(),
            })
        }
        FiguresQuestion::RefusalsOf(user) => serde_json::to_vec(&log.refusals_of(&user)),
    };
    answer.ok().map(Bytes::from)
}

impl Operator {
    /// What the fleet does now. Needs `fleet.read`.
    ///
    /// # Errors
    /// [`OperatorError::Forbidden`].
    pub async fn traffic(&self, operator: &OperatorIdentity) -> Result<TrafficView, OperatorError> {
        self.require(operator, Right::FleetRead)?;
        let mut last = self.cache.traffic.lock().await;
        let traffic = match &*last {
            Some((gathered_at, traffic)) if gathered_at.elapsed() < USED_FOR => traffic.clone(),
            _ => {
                let answers = self.ask_gateways(&FiguresQuestion::Traffic).await;
                let slow = self.directory.core.request_log.slow_request();
                let traffic = TrafficView::of(answers, slow);
                *last = Some((Instant::now(), traffic.clone()));
                traffic
            }
        };
        let may_see_senders = self.has_right(operator, Right::SessionsRead);
        Ok(TrafficView {
            senders: traffic.senders.filter(|_| may_see_senders),
            ..traffic
        })
    }

    /// The latest refusals of a user, at all gateways. Needs `sessions.read`.
    ///
    /// # Errors
    /// [`OperatorError::Forbidden`].
    pub async fn refusals_of(
        &self,
        operator: &OperatorIdentity,
        user: &Principal,
    ) -> Result<UserRefusals, OperatorError> {
        self.require(operator, Right::SessionsRead)?;
        let digest = self.directory.core.request_log.user_digest(user);
        let question = FiguresQuestion::RefusalsOf(digest);
        let (mut refusals, mut missing) = (Vec::new(), Vec::new());
        for GatewayAnswer { worker, answer } in
            self.ask_gateways::<Vec<RefusalView>>(&question).await
        {
            match answer {
                Ok(views) => refusals.extend(views.into_iter().map(|view| (worker.clone(), view))),
                Err(problem) => missing.push((worker, problem)),
            }
        }
        refusals.sort_by_key(|(_, view)| view.ago_ms);
        Ok(UserRefusals { refusals, missing })
    }

    /// The answers of all living gateways, by their ids.
    async fn ask_gateways<A: DeserializeOwned>(
        &self,
        question: &FiguresQuestion,
    ) -> Vec<GatewayAnswer<A>> {
        let core = &self.directory.core;
        let router = &core.session_router;
        let this = router.worker();
        // This has no values that cannot be written.
        let question = Bytes::from(serde_json::to_vec(question).unwrap_or_default());
        let own = answer_figures(core, &question).ok_or_else(|| "no figures".to_owned());
        let mut answers = vec![GatewayAnswer {
            worker: this.to_string(),
            answer: own.and_then(|answer| read_answer(&answer)),
        }];
        let workers = match self.store().workers().await {
            Ok(workers) => workers,
            Err(error) => {
                answers.push(GatewayAnswer {
                    worker: "other gateways".to_owned(),
                    answer: Err(error.to_string()),
                });
                Vec::new()
            }
        };
        let others = workers.into_iter();
        let others = others.filter(|worker| worker.alive && worker.worker != *this);
        let asked = others.map(|worker| {
            let question = question.clone();
            async move {
                let (id, address) = (&worker.worker, worker.address.as_str());
                let answer = router.figures_of(id, address, question).await;
                GatewayAnswer {
                    worker: id.to_string(),
                    answer: answer
                        .map_err(|error| error.to_string())
                        .and_then(|answer| read_answer(&answer)),
                }
            }
        });
        let asked: Vec<_> = asked.collect();
        let asked = stream::iter(asked).buffer_unordered(ASKED_AT_ONCE);
        answers.extend(asked.collect::<Vec<_>>().await);
        answers.sort_by(|one, other| one.worker.cmp(&other.worker));
        answers
    }
}

fn read_answer<A: DeserializeOwned>(answer: &[u8]) -> Result<A, String> {
    serde_json::from_slice(answer).map_err(|error| format!("its answer is invalid: {error}"))
}

impl TrafficView {
    fn of(answers: Vec<GatewayAnswer<CountedTraffic>>, slow: Duration) -> Self {
        let (mut seconds, mut senders, mut gateways) = (0, Vec::new(), Vec::new());
        let mut sums: BTreeMap<(String, Option<String>), ExchangeFigures> = BTreeMap::new();
        for GatewayAnswer { worker, answer } in answers {
            let figures = answer.map(|counted| {
                let mut of_gateway = ExchangeFigures::default();
                for exchanges in counted.exchanges {
                    if exchanges.instance.is_none() {
                        of_gateway.add(&exchanges.figures);
                    }
                    let place = (exchanges.server, exchanges.instance);
                    sums.entry(place).or_default().add(&exchanges.figures);
                }
                seconds = counted.seconds.max(seconds);
                senders.push(counted.senders);
                of_gateway
            });
            gateways.push(GatewayTraffic { worker, figures });
        }
        let exchanges = sums.into_iter();
        let mut exchanges: Vec<_> = exchanges
            .map(|((server, instance), figures)| RecentExchanges {
                server,
                instance,
                figures,
            })
            .collect();
        exchanges.sort_by_key(|of| std::cmp::Reverse((of.figures.total_us, of.figures.waiting)));
        let (servers, instances) = exchanges.into_iter().partition(|of| of.instance.is_none());
        Self {
            seconds,
            servers,
            instances,
            gateways,
            senders: Some(TopSenders::add_up(senders, SENDERS_MAX)),
            slow_us: u64::try_from(slow.as_micros()).unwrap_or(u64::MAX),
        }
    }
}
