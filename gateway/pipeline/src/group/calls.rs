//! Requests for a single member of a group: the one that the request's name or URI resolves to.

use super::member_reply::own_result;
use super::members::Member;
use super::message::GroupMessage;
use crate::request::RequestServer as _;
use mooring_protocol::renaming::{Reference, reference, with_name, with_reference};
use mooring_protocol::{ErrorKind, Listing, Method, Reply, call};
use mooring_router::affinity::RebindNotice;
use mooring_settings::GroupNames;

/// Longest part of a name that an error repeats, in characters.
const SHOWN_MAX: usize = 60;

/// The resolved member, and the name to use there.
struct NamedMember<'a> {
    member: &'a Member,
    /// The member's own name, if it differs from the group's.
    renamed: Option<&'a str>,
    /// Rebinds that happened while the member was looked up.
    moved: Vec<RebindNotice>,
}

impl GroupMessage<'_> {
    /// tools/call and prompts/get.
    pub(super) async fn to_named(&self, listing: Listing) -> Reply {
        let Some(name) = self.message.params.name() else {
            return self.refuse_params("the request needs a name");
        };
        let Some(named) = self.resolve_name(listing, &name).await else {
            return self.unknown(listing, &name).await;
        };
        let own = named.renamed.unwrap_or(&name);
        if listing == Listing::Tools && !self.may_call(named.member, own) {
            return self.unknown(listing, &name).await;
        }
        match named.renamed {
            None => self.relay(named.member, &named.moved).await,
            Some(own) => match with_name(self.message, own) {
                Some(text) => self.relay_text(named.member, text, &named.moved).await,
                None => self.refuse(ErrorKind::Internal),
            },
        }
    }

    /// completion/complete: for an argument of a prompt, or of a resource template.
    pub(super) async fn complete(&self) -> Reply {
        match reference(self.message) {
            Some(Reference::Prompt(name)) => {
                let Some(named) = self.resolve_name(Listing::Prompts, &name).await else {
                    return self.unknown(Listing::Prompts, &name).await;
                };
                match named.renamed {
                    None => self.relay(named.member, &named.moved).await,
                    Some(own) => match with_reference(self.message, own) {
                        Some(text) => self.relay_text(named.member, text, &named.moved).await,
                        None => self.refuse(ErrorKind::Internal),
                    },
                }
            }
            Some(Reference::Resource(uri)) => {
                let mut moved = Vec::new();
                match self.resolve_uri(&uri, &mut moved).await {
                    Some(member) => self.relay(member, &moved).await,
                    None => self.unknown(Listing::Templates, &uri).await,
                }
            }
            None => self.refuse_params("completion/complete needs one ref"),
        }
    }

    /// resources/read, subscribe and unsubscribe.
    pub(super) async fn to_resource(&self, method: Method) -> Reply {
        let Some(uri) = self.message.params.uri() else {
            return self.refuse_params("the request needs a uri");
        };
        let mut moved = Vec::new();
        match self.resolve_uri(&uri, &mut moved).await {
            Some(member) => self.relay(member, &moved).await,
            // A subscription at a member without the resource would promise updates that never come.
            None if method == Method::ResourcesSubscribe => {
                self.unknown(Listing::Resources, &uri).await
            }
            None => self.try_each_member(method, &uri, moved).await,
        }
    }

    fn may_call(&self, member: &Member, tool: &str) -> bool {
        let (policy, caller) = (&self.request.core.policy, &self.request.identity);
        policy.may_call(caller, member.id().as_str(), tool)
    }

    async fn resolve_name<'a>(
        &'a self,
        listing: Listing,
        name: &'a str,
    ) -> Option<NamedMember<'a>> {
        let group = &self.request.server;
        let mut moved = Vec::new();
        let (member, renamed) = match group.names() {
            GroupNames::Prefixed => {
                let (member, own) = group.split(name)?;
                (member, Some(own))
            }
            GroupNames::Unchanged => {
                let found = group
                    .member_of(&self.scope(), listing, name, &mut moved)
                    .await;
                (found?, None)
            }
        };
        Some(NamedMember {
            member,
            renamed,
            moved,
        })
    }

    /// The member that lists the resource, or a template that its URI matches.
    async fn resolve_uri(&self, uri: &str, moved: &mut Vec<RebindNotice>) -> Option<&Member> {
        let (group, scope) = (&self.request.server, self.scope());
        let mut upstreams = group.members().iter().filter(|m| m.upstream().is_some());
        if let (Some(only), None) = (upstreams.next(), upstreams.next()) {
            // Code servers have no resources, so no other member can have it.
            return Some(only);
        }
        for listing in [Listing::Resources, Listing::Templates] {
            if let Some(member) = group.member_of(&scope, listing, uri, moved).await {
                return Some(member);
            }
        }
        None
    }

    /// An unlisted resource may still exist: the members are tried one after another, until one returns a result.
    /// Reading and unsubscribing are harmless at the others.
    async fn try_each_member(
        &self,
        method: Method,
        uri: &str,
        mut moved: Vec<RebindNotice>,
    ) -> Reply {
        if let Err(reply) = self.check_session().await {
            return reply;
        }
        let session_router = &self.request.core.session_router;
        let scope = self.scope();
        let mut failure = None;
        for server in self.request.server.upstreams() {
            let text = call::again(&session_router.next_id(), method, self.message.raw_params());
            let answer = scope.ask_in_time(server, text).await;
            moved.extend(answer.moved);
            match answer.outcome {
                Ok(Some(result)) => return own_result(self.message.id(), &result, &moved),
                Ok(None) => {}
                Err(cause) => failure = failure.or(Some((server, cause))),
            }
        }
        match failure {
            Some((server, failure)) => self.failed(server.id.as_str(), &failure),
            None => self.unknown(Listing::Resources, uri).await,
        }
    }

    /// No member was called, so the session still has to be checked: a client whose session has ended must learn that.
    async fn unknown(&self, listing: Listing, name: &str) -> Reply {
        if let Err(reply) = self.check_session().await {
            return reply;
        }
        let group = &self.request.server;
        let shown: String = name.chars().take(SHOWN_MAX).collect();
        let members = group.ids().join(", ");
        let (what, named) = match listing {
            Listing::Tools => ("tool", group.names()),
            Listing::Prompts => ("prompt", group.names()),
            Listing::Resources | Listing::Templates => ("resource", GroupNames::Unchanged),
        };
        self.refuse_params(match named {
            GroupNames::Prefixed => {
                format!("unknown {what} {shown:?}: names are <server>__<{what}>, and the servers are {members}")
            }
            GroupNames::Unchanged => {
                format!("unknown {what} {shown:?}: none of the servers {members} has it")
            }
        })
    }
}
