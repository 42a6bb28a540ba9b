//! The tools of one server, as this gateway knows them: in memory, from the volume, or from the server itself.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mooring_session::time::Millis;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::file::{ListFile, ListQueryLock, ListSnapshot};
use super::listed_tool::{ListedTool, MountableServer, ServerTools};
use super::listing::{ListError, list};
use crate::calls::Upstreams;
use mooring_store::unix_now_ms;

/// Longest wait for a server's first list of tools.
const FIRST_WITHIN: Duration = Duration::from_secs(10);
/// The same for a program, which has to start and may have to be fetched first, as `npx` and `uvx` do.
const FIRST_OF_PROGRAM_WITHIN: Duration = Duration::from_secs(30);
/// Minimum time for which the list of a program is cached, because a refresh starts the program.
const PROGRAM_BELIEVED_FOR: Duration = Duration::from_secs(60 * 60);
/// Interval of checking whether another gateway has the first list.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a server that failed is left alone.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// The purpose for which a call needs the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CatalogNeed {
    /// It uses the tools: the first list of a server is waited for.
    Tools,
    /// It uses other files of the session: what is known suffices.
    Files,
}

#[derive(Debug)]
pub(super) struct Source {
    server: MountableServer,
    file: Option<ListFile>,
    ttl: Duration,
    /// Longest wait of a call for the first list.
    first_within: Duration,
    known: Mutex<CachedList>,
    /// Held while this gateway queries the server.
    asking: tokio::sync::Mutex<()>,
    /// Longest wait for the whole of an answer.
    answer_timeout: Duration,
}

#[derive(Debug, Default)]
struct CachedList {
    /// None before the first answer.
    tools: Option<Arc<[ListedTool]>>,
    /// When they were asked for, in milliseconds since 1970.
    at_ms: u64,
    /// Not before then is the server asked again.
    not_before: Option<Instant>,
}

impl Source {
    pub(super) fn new(
        server: MountableServer,
        base_dir: Option<&Path>,
        ttl: Duration,
        answer_timeout: Duration,
    ) -> Self {
        let (ttl, first_within, answer_timeout) = match server.is_program {
            true => (
                ttl.max(PROGRAM_BELIEVED_FOR),
                FIRST_OF_PROGRAM_WITHIN,
                answer_timeout.max(FIRST_OF_PROGRAM_WITHIN),
            ),
            false => (ttl, FIRST_WITHIN, answer_timeout),
        };
        Self {
            file: base_dir.map(|base| ListFile::new(base, server.id.as_str())),
            server,
            ttl,
            first_within,
            known: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            answer_timeout,
        }
    }

    /// Whether this is the list of exactly this server.
    pub(super) fn is_of(&self, server: &MountableServer) -> bool {
        self.server == *server
    }

    /// The server's id.
    pub(super) fn server(&self) -> &str {
        self.server.id.as_str()
    }

    /// The tools. A list that is out of date is returned, and refreshed in the background. None if there never was
    /// one and the server does not answer.
    pub(super) async fn tools(
        self: &Arc<Self>,
        upstreams: &Arc<dyn Upstreams>,
        need: CatalogNeed,
    ) -> Option<ServerTools> {
        let (mut tools, mut is_due) = self.known();
        if tools.is_none() && self.read_file().await {
            (tools, is_due) = self.known();
        }
        if is_due {
            let (source, asked) = (Arc::clone(self), Arc::clone(upstreams));
            let refreshing = tokio::spawn(async move { source.refresh(&asked).await });
            if tools.is_none() && need == CatalogNeed::Tools {
                let wait = upstreams.answer_wait(self.server(), self.first_within);
                // A longer query continues in its task, for a later call.
                if tokio::time::timeout(wait, refreshing).await.is_err() {
                    upstreams.note_answer(self.server(), false);
                }
            }
        }
        let tools = tools.or_else(|| self.known().0)?;
        Some(ServerTools {
            server: self.server.id.clone(),
            tools,
        })
    }

    /// The cached tools, and whether a query is due.
    fn known(&self) -> (Option<Arc<[ListedTool]>>, bool) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let age_ms = unix_now_ms().saturating_sub(known.at_ms);
        let is_old = known.tools.is_none() || age_ms >= Millis::from(self.ttl).get();
        let is_left_alone = known.not_before.is_some_and(|until| Instant::now() < until);
        (known.tools.clone(), is_old && !is_left_alone)
    }

    async fn refresh(&self, upstreams: &Arc<dyn Upstreams>) {
        let (known, _) = self.known();
        let _asking = match self.asking.try_lock() {
            Ok(asking) => asking,
            // Another call asks; one without a list waits for that.
            Err(_) if known.is_some() => return,
            Err(_) => self.asking.lock().await,
        };
        while self.known().1 {
            if self.read_file().await && !self.known().1 {
                return;
            }
            match self.ask_alone().await {
                Ok(Some(asking)) => return self.ask(upstreams, asking).await,
                // Another gateway asks.
                Ok(None) if known.is_some() => return,
                Ok(None) => tokio::time::sleep(PAUSE).await,
                Err(error) => {
                    tracing::debug!(server = %self.server.id, %error, "tool list not shared through the volume");
                    return self.ask(upstreams, None).await;
                }
            }
        }
    }

    /// Loads the list from the volume if it is newer than the cached one.
    async fn read_file(&self) -> bool {
        let Some(file) = self.file.clone() else {
            return false;
        };
        match spawn_blocking(move || file.read()).await {
            Ok(Some(listed)) => {
                self.note(listed);
                true
            }
            _ => false,
        }
    }

    /// The right to ask, over the whole fleet; without a volume, over this gateway alone.
    async fn ask_alone(&self) -> std::io::Result<Option<Option<ListQueryLock>>> {
        let Some(file) = self.file.clone() else {
            return Ok(Some(None));
        };
        let asked = spawn_blocking(move || file.ask()).await;
        Ok(asked.map_err(std::io::Error::other)??.map(Some))
    }

    /// Asks, for no longer than an answer may take: no other gateway asks meanwhile.
    async fn ask(&self, upstreams: &Arc<dyn Upstreams>, asking: Option<ListQueryLock>) {
        let answer = tokio::time::timeout(self.answer_timeout, list(upstreams, &self.server));
        let listed = match answer.await.unwrap_or(Err(ListError::Late)) {
            Ok(tools) => ListSnapshot {
                at_ms: unix_now_ms(),
                tools,
            },
            Err(error) => {
                if matches!(error, ListError::Late) {
                    upstreams.note_answer(self.server(), false);
                }
                return self.failed(&error);
            }
        };
        upstreams.note_answer(self.server(), true);
        if let (Some(file), Some(asking)) = (&self.file, asking)
            && let Err(error) = write(file.clone(), asking, listed.clone()).await
        {
            tracing::warn!(server = %self.server.id, %error, "tool list not written to the volume");
        }
        self.note(listed);
    }

    fn failed(&self, error: &ListError) {
        tracing::warn!(server = %self.server.id, %error, "tools/list failed; the last known tools stay mounted");
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.not_before = Some(Instant::now() + AFTER_FAILURE);
    }

    fn note(&self, listed: ListSnapshot) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.tools.is_none() || listed.at_ms >= known.at_ms {
            if known.tools.as_deref() != Some(&listed.tools) {
                known.tools = Some(listed.tools.into());
            }
            known.at_ms = listed.at_ms;
            known.not_before = None;
        }
    }
}

/// Writes the list, and lets the next one ask.
async fn write(file: ListFile, asking: ListQueryLock, listed: ListSnapshot) -> std::io::Result<()> {
    spawn_blocking(move || file.write(&asking, &listed))
        .await
        .map_err(std::io::Error::other)?
}
