//! Gathering: all members of a group are listed concurrently, each with all its pages.
//!
//! Invariants: a member that fails, is late or sends too much does not affect the others and is reported as missing;
//! memory is bounded, however long the members' lists are.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::join_all;

use super::directory::{MemberIndex, MemberLookup};
use super::known::KnownList;
use super::members::{Group, Member};
use super::merge::{MemberList, merge};
use super::session_members::SessionMembers;
use crate::policy::AccessPolicy;
use crate::request::RequestServer as _;
use mooring_code::server::CodeServer;
use mooring_identity::Identity;
use mooring_protocol::listing::{Entry, Page, PageError};
use mooring_protocol::{
    EnvelopeError, Kind, Listing, Message, Revision, Sender, call, tool_server,
};
use mooring_router::affinity::{RebindNotice, Session, SessionRouter};
use mooring_router::dispatch::{DeliverError, GatewayReply, GatewayRequest, send_gateway_request};
use mooring_upstream::{Answer, ExchangeError, ForwardedFields, Outgoing, Server};
use mooring_usage::{HeldMemory, MemoryShare, NoRoom, work_on_text};

/// Most pages of one member's list.
const PAGES_MAX: usize = 64;
/// Most bytes of all members' lists together: a `tools/list` of a thousand tools is under 1 MiB.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// The JSON-RPC code for an unknown method.
const METHOD_NOT_FOUND: i64 = -32601;

/// The session and request on whose behalf members are queried. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// Reaches the members.
    pub(crate) session_router: SessionRouter,
    /// The client's session at the group.
    pub(crate) session: Session,
    /// The fields of the client's request that go on to members.
    pub(crate) forwarded: ForwardedFields,
    /// The revision of the client's request.
    pub(crate) revision: Revision,
    /// Who sends the client's request.
    pub(crate) caller: Arc<Identity>,
    /// What the caller may use.
    pub(crate) policy: Arc<AccessPolicy>,
}

/// Why a member has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// It could not be called.
    #[error(transparent)]
    Deliver(#[from] DeliverError),
    /// Its reply could not be read.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// Its reply is not a JSON-RPC message.
    #[error("the answer is no message: {0}")]
    Message(#[from] EnvelopeError),
    /// It replied with this error, as JSON text.
    #[error("it answered with an error")]
    Refused(Box<str>),
    /// Its reply is not a list.
    #[error(transparent)]
    Page(#[from] PageError),
    /// There is no memory for its list, or was none for as long as it was waited for.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// Its list is too long.
    #[error("the list is longer than {PAGES_MAX} pages, or all lists than {BYTES_MAX} bytes")]
    TooLong,
    /// It timed out, or the task that called it panicked.
    #[error("it did not answer in time")]
    Late,
}

/// One member's reply.
#[derive(Debug)]
pub(crate) struct MemberAnswer<T> {
    /// Its result; none if it does not have the method.
    pub(crate) outcome: Result<Option<T>, Failure>,
    /// Set if its binding was rebound during the call.
    pub(crate) moved: Option<RebindNotice>,
}

/// The group's list.
#[derive(Debug)]
pub(crate) struct GroupList {
    /// The JSON text of the result; the first member's failure if every member failed, none if no member has such
    /// lists.
    pub(crate) result: Result<Option<String>, (Box<str>, Failure)>,
    /// The rebinds to report to the client.
    pub(crate) moved: Vec<RebindNotice>,
    /// The memory that the lists take.
    pub(crate) held: Option<Arc<HeldMemory>>,
}

/// The bytes that all members together have sent.
#[derive(Debug)]
struct Budget {
    taken: AtomicUsize,
    /// The same as memory of the client's user; none where the gateway acts by itself.
    held: Option<Mutex<HeldMemory>>,
}

impl Budget {
    fn of(scope: &Scope) -> Arc<Self> {
        let usage = scope.session.usage.as_ref();
        Arc::new(Self {
            taken: AtomicUsize::new(0),
            held: usage.map(|usage| Mutex::new(Arc::clone(usage.replies()).hold())),
        })
    }

    fn take(&self, bytes: usize) -> Result<(), Failure> {
        let taken = self.taken.fetch_add(bytes, Ordering::Relaxed);
        if taken.saturating_add(bytes) > BYTES_MAX {
            return Err(Failure::TooLong);
        }
        match &self.held {
            Some(held) => {
                let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(held.try_grow(bytes)?)
            }
            None => Ok(()),
        }
    }

    /// The memory that was taken. A member that was late may take more, and gives it back itself.
    fn take_held(&self) -> Option<Arc<HeldMemory>> {
        let held = self.held.as_ref()?.lock();
        let mut held = held.unwrap_or_else(PoisonError::into_inner);
        Some(Arc::new(held.take()))
    }
}

impl<T> MemberAnswer<T> {
    /// Whether the member answered, if only with an error.
    const fn is_answer(&self) -> bool {
        !matches!(
            self.outcome,
            Err(Failure::Late | Failure::Deliver(_) | Failure::Exchange(_))
        )
    }
}

impl Scope {
    /// Whether the caller may call this tool of a member.
    pub(crate) fn may_call(&self, member: &Member, tool: &str) -> bool {
        self.policy
            .may_call(&self.caller, member.id().as_str(), tool)
    }

    /// Calls one member, within the timeout of the gateway's own requests.
    async fn with_timeout<T: Send + 'static>(
        &self,
        server: &Arc<Server>,
        request: impl Future<Output = MemberAnswer<T>> + Send + 'static,
    ) -> MemberAnswer<T> {
        let limit = self.session_router.options().answer_timeout;
        let usage = self.session.usage.as_ref();
        let memory = usage.map(|usage| &**usage.replies());
        let is_answer = |gathered: &MemberAnswer<T>| gathered.is_answer();
        let gathered = server
            .answer_in_time(limit, memory, request, is_answer)
            .await;
        gathered.unwrap_or_else(|| MemberAnswer {
            outcome: Err(
                (memory.and_then(MemoryShare::awaited)).map_or(Failure::Late, Failure::NoRoom)
            ),
            moved: None,
        })
    }

    /// Sends the same request to every upstream member.
    pub(crate) async fn ask_all(
        &self,
        servers: impl Iterator<Item = &Arc<Server>>,
        text: impl Fn(&str) -> String,
    ) -> Vec<(Arc<Server>, MemberAnswer<Box<str>>)> {
        join_all(servers.map(|server| {
            let text = text(&self.session_router.next_id());
            async move { (Arc::clone(server), self.ask_in_time(server, text).await) }
        }))
        .await
    }

    /// Sends a request to one member, within the timeout of the gateway's own requests.
    pub(crate) async fn ask_in_time(
        &self,
        server: &Arc<Server>,
        text: String,
    ) -> MemberAnswer<Box<str>> {
        let (scope, asked) = (self.clone(), Arc::clone(server));
        let request = async move { scope.ask_member(&asked, text).await };
        self.with_timeout(server, request).await
    }

    /// Sends a request to one member; its result as JSON text.
    async fn ask_member(&self, server: &Server, text: String) -> MemberAnswer<Box<str>> {
        let question = GatewayRequest {
            session: &self.session,
            server,
            outgoing: Outgoing::post(server, Bytes::from(text)).forwarding(&self.forwarded),
        };
        match send_gateway_request(&self.session_router, question).await {
            Ok(GatewayReply { answer, moved }) => MemberAnswer {
                outcome: match answer {
                    Ok(answer) => read_result(answer).await,
                    Err(failure) => Err(failure.into()),
                },
                moved,
            },
            Err(error) => MemberAnswer {
                moved: match &error {
                    DeliverError::OutcomeUnknown { moved } | DeliverError::LostAgain { moved } => {
                        moved.clone()
                    }
                    _ => None,
                },
                outcome: Err(error.into()),
            },
        }
    }

    async fn list_member(
        self,
        member: Member,
        listing: Listing,
        budget: Arc<Budget>,
        members: SessionMembers,
    ) -> MemberAnswer<Vec<Entry>> {
        match member {
            Member::Upstream(server) => {
                if let Some(known) = members.known_list(&server, listing) {
                    return MemberAnswer {
                        outcome: take_known(known, &budget),
                        moved: None,
                    };
                }
                let (scope, asked) = (self.clone(), Arc::clone(&server));
                let pages = async move {
                    let listed = scope.pages(&asked, listing, &budget).await;
                    if let Ok(entries) = &listed.outcome {
                        members.note_list(&asked, listing, entries.as_deref());
                    }
                    listed
                };
                self.with_timeout(&server, pages).await
            }
            Member::Code(server) => MemberAnswer {
                outcome: self.code_page(&server, listing),
                moved: None,
            },
        }
    }

    async fn pages(
        &self,
        server: &Server,
        listing: Listing,
        budget: &Budget,
    ) -> MemberAnswer<Vec<Entry>> {
        let mut moved = None;
        let mut entries = Vec::new();
        let mut cursor: Option<Box<str>> = None;
        for _ in 0..PAGES_MAX {
            let text = call::list(&self.session_router.next_id(), listing, cursor.as_deref());
            let answer = self.ask_member(server, text).await;
            moved = answer.moved.or(moved);
            let page = match answer.outcome {
                Ok(Some(result)) => read_page(listing, result, budget).await.map(Some),
                Ok(None) => Ok(None),
                Err(failure) => Err(failure),
            };
            let outcome = match page {
                Ok(Some(page)) => {
                    if page.nameless > 0 {
                        tracing::warn!(server = %server.id, list = listing.key(), count = page.nameless, "entries without a name left out of a list");
                    }
                    entries.extend(page.entries);
                    cursor = page.next_cursor;
                    match cursor {
                        Some(_) => continue,
                        None => Ok(Some(entries)),
                    }
                }
                Ok(None) => Ok(None),
                Err(failure) => Err(failure),
            };
            return MemberAnswer { outcome, moved };
        }
        MemberAnswer {
            outcome: Err(Failure::TooLong),
            moved,
        }
    }

    fn code_page(
        &self,
        server: &Arc<CodeServer>,
        listing: Listing,
    ) -> Result<Option<Vec<Entry>>, Failure> {
        let text = call::list(&self.session_router.next_id(), listing, None);
        let message = Message::parse(text.as_bytes(), Sender::Client)?;
        match tool_server::handle_request(server, &message, self.revision) {
            tool_server::ToolServerReply::Result(result) => {
                Ok(Some(Page::read(listing, &result)?.entries))
            }
            tool_server::ToolServerReply::Error(_) | tool_server::ToolServerReply::Call(_) => {
                Ok(None)
            }
        }
    }
}

async fn read_page(listing: Listing, result: Box<str>, budget: &Budget) -> Result<Page, Failure> {
    budget.take(result.len())?;
    let page = work_on_text(result.len(), move || Page::read(listing, &result));
    Ok(page.await.ok_or(Failure::Late)??)
}

/// The result of a member's answer.
async fn read_result(answer: Answer) -> Result<Option<Box<str>>, Failure> {
    let result = work_on_text(answer.text.len(), move || {
        let message = Message::parse(&answer.text, Sender::Upstream)?;
        result_of(&message)
    });
    result.await.unwrap_or(Err(Failure::Late))
}

/// A remembered list, as if its member had sent it.
fn take_known(known: KnownList, budget: &Budget) -> Result<Option<Vec<Entry>>, Failure> {
    let Some(entries) = known else {
        return Ok(None);
    };
    budget.take(entries.iter().map(|entry| entry.text().len()).sum())?;
    Ok(Some(entries.to_vec()))
}

/// A server without the method has no result, which is not a failure.
fn result_of(message: &Message<'_>) -> Result<Option<Box<str>>, Failure> {
    #[derive(serde::Deserialize)]
    struct Code {
        code: i64,
    }
    match (message.kind(), message.outcome()) {
        (Kind::Result, Some(result)) => Ok(Some(result.into())),
        (Kind::Error, Some(error)) => match serde_json::from_str::<Code>(error) {
            Ok(Code {
                code: METHOD_NOT_FOUND,
            }) => Ok(None),
            _ => Err(Failure::Refused(error.into())),
        },
        _ => Err(ExchangeError::NoResponse.into()),
    }
}

impl Failure {
    /// Whether the whole session has ended or cannot be resolved: no other member could serve it either.
    pub(crate) fn is_of_the_session(&self) -> bool {
        use mooring_router::affinity::ResolveError;
        matches!(
            self,
            Self::Deliver(DeliverError::Resolve(
                ResolveError::Store(_) | ResolveError::ParamsGone | ResolveError::LostByPolicy
            ))
        )
    }
}

impl Group {
    /// The merged lists of all members, which are also stored in the directory.
    pub(crate) async fn list(&self, scope: &Scope, listing: Listing) -> GroupList {
        let budget = Budget::of(scope);
        let members = SessionMembers::read(self, scope).await;
        let request = self.members.iter().map(|member| {
            let (member, budget) = (member.clone(), Arc::clone(&budget));
            (scope.clone()).list_member(member, listing, budget, members.clone())
        });
        let (mut lists, mut missing, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        let mut moved = Vec::new();
        for (place, gathered) in join_all(request).await.into_iter().enumerate() {
            moved.extend(gathered.moved);
            match gathered.outcome {
                Ok(Some(mut entries)) => {
                    if listing == Listing::Tools
                        && let Some(member) = self.members.get(place)
                    {
                        entries.retain(|tool| scope.may_call(member, &tool.name));
                    }
                    lists.push(MemberList {
                        member: place,
                        entries,
                    });
                }
                Ok(None) => {}
                Err(failure) => {
                    let server = self
                        .members
                        .get(place)
                        .map_or("", |member| member.id().as_str());
                    tracing::warn!(session = %scope.session.digest, group = %self.id, server, list = listing.key(), error = %failure, "member missing from a list of its group");
                    missing.push(Box::<str>::from(server));
                    failures.push((Box::from(server), failure));
                }
            }
        }
        if lists.is_empty()
            || failures
                .iter()
                .any(|(_, failure)| failure.is_of_the_session())
        {
            failures.sort_by_key(|(_, failure)| !failure.is_of_the_session());
            return GroupList {
                result: failures.into_iter().next().map_or(Ok(None), Err),
                moved,
                held: None,
            };
        }
        let (names, ids) = (self.names, self.ids());
        let ids: Vec<Box<str>> = ids.into_iter().map(Box::from).collect();
        let entries = lists.iter().flat_map(|list| &list.entries);
        let length = entries.map(|entry| entry.text().len()).sum();
        let merging = work_on_text(length, move || {
            let ids: Vec<&str> = ids.iter().map(AsRef::as_ref).collect();
            let missing: Vec<&str> = missing.iter().map(AsRef::as_ref).collect();
            let merged = merge(listing, names, &ids, &lists, &missing);
            let places = Arc::new(MemberIndex::new(listing, merged.places));
            (merged.result, merged.shadowed, places)
        });
        let Some((result, shadowed, places)) = merging.await else {
            return GroupList {
                result: Err((self.id.as_str().into(), Failure::Late)),
                moved,
                held: None,
            };
        };
        if shadowed > 0 {
            tracing::warn!(group = %self.id, list = listing.key(), count = shadowed, "entries left out: their names would resolve to another member");
        }
        self.directory
            .note(&scope.session.digest, listing, places, Instant::now());
        GroupList {
            result: Ok(Some(result)),
            moved,
            held: budget.take_held(),
        }
    }

    /// The member that has this name in the group, according to its lists. Rebinds on the way are added to `moved`.
    pub(crate) async fn member_of(
        &self,
        scope: &Scope,
        listing: Listing,
        name: &str,
        moved: &mut Vec<RebindNotice>,
    ) -> Option<&Member> {
        let look_up = || {
            let digest = &scope.session.digest;
            self.directory
                .look_up(digest, listing, name, Instant::now())
        };
        let mut known = look_up();
        if known == MemberLookup::Unknown {
            moved.extend(self.list(scope, listing).await.moved);
            known = look_up();
        }
        match known {
            MemberLookup::At(place) => self.members.get(place),
            MemberLookup::Nowhere | MemberLookup::Unknown => None,
        }
    }
}
