//! The issuer's keys: where they are read, how often, and which tokens they have verified.
//!
//! Invariants: an unreadable source keeps the keys that were read before, up to their greatest age; a verified token is known only together with
//! the key set that verified it, so that a key that is withdrawn takes its tokens along.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use mooring_secrets::file::FileError;
use mooring_settings::{TokenSettings, is_fetched_safely};
use mooring_upstream::with_causes;
use mooring_usage::BoundedCache;
use serde::Deserialize;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;
use url::Url;

use crate::fetch::{FetchError, Fetcher};
use crate::key::{Key, KeyOrigin, KeySetError, parse_keys};
use crate::metrics::{self, KeysRead};
use crate::token::{TokenDigest, VerifiedToken};

/// How often keys are fetched.
const FETCH_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// How often a file is read.
const FILE_INTERVAL: Duration = Duration::from_secs(10);
/// Shortest time between two attempts for tokens with an unknown key.
const UNKNOWN_KEY_INTERVAL: Duration = Duration::from_secs(10);
/// Pauses after failures: doubled from the first to the longest.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Most verified tokens that are known.
const VERIFIED_MAX: usize = 10_000;
/// Largest key file.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// Where an issuer without a path has its metadata: OpenID Connect Discovery 1.0, 4, and RFC 8414, 3.
const METADATA_PATHS: [&str; 2] = ["openid-configuration", "oauth-authorization-server"];

/// Why the keys could not be read.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The file cannot be read.
    #[error("the key set cannot be read")]
    File(#[source] std::io::Error),
    /// The file has symmetric keys and is not kept secret.
    #[error("the key set has symmetric keys")]
    Secret(#[source] FileError),
    /// The key set could not be fetched.
    #[error("the key set cannot be fetched from {url}")]
    Fetch {
        /// Where from.
        url: Box<str>,
        /// Why.
        #[source]
        cause: FetchError,
    },
    /// The issuer's metadata could not be fetched.
    #[error("the issuer's metadata cannot be fetched from {url}")]
    Metadata {
        /// The last address that was tried.
        url: Box<str>,
        /// Why.
        #[source]
        cause: FetchError,
    },
    /// The metadata are no metadata, those of another issuer, or name no safe address.
    #[error("the metadata at {url} are not those of the issuer, or have no jwks_uri with https")]
    MetadataInvalid {
        /// Where they were.
        url: Box<str>,
    },
    /// It is no key set.
    #[error("the key set is not valid")]
    KeySet(#[from] KeySetError),
}

/// Where the keys are read.
#[derive(Debug)]
enum KeyLocation {
    File(PathBuf),
    Url(Url),
    /// Where the issuer's metadata say.
    Issuer {
        issuer: String,
        metadata: Vec<Url>,
    },
}

/// The keys that were read last.
#[derive(Debug)]
pub(crate) struct KeySet {
    pub(crate) keys: Vec<Key>,
    verified: RwLock<BoundedCache<TokenDigest, Arc<VerifiedToken>>>,
}

impl KeySet {
    pub(crate) fn new(keys: Vec<Key>) -> Self {
        Self {
            keys,
            verified: RwLock::new(BoundedCache::new(VERIFIED_MAX)),
        }
    }

    /// A token that these keys have verified and that is still accepted.
    pub(crate) fn verified(&self, token: &TokenDigest, now: u64) -> Option<Arc<VerifiedToken>> {
        let verified = self.verified.read().unwrap_or_else(PoisonError::into_inner);
        let found = verified.peek(token);
        found.filter(|token| now < token.accepted_until).cloned()
    }

    /// Remembers a verified token.
    pub(crate) fn remember(&self, digest: TokenDigest, token: &Arc<VerifiedToken>) {
        let mut verified = self
            .verified
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        verified.insert(digest, Arc::clone(token));
    }
}

/// The state of the keys, for `/readyz`.
#[derive(Clone, Debug)]
pub struct KeysState {
    /// How many there are; none if they were never read.
    pub keys: Option<usize>,
    /// Why they could not be read at the last attempt.
    pub failure: Option<Box<str>>,
}

/// Reads the keys, and keeps them.
#[derive(Debug)]
pub(crate) struct KeySource {
    location: KeyLocation,
    fetcher: Fetcher,
    max_age: Duration,
    current: RwLock<Option<ReadKeys>>,
    failure: RwLock<Option<Box<str>>>,
    /// Held while the keys are read.
    attempts: Arc<Mutex<Attempts>>,
    /// An attempt was made, so that another one is due at another time.
    attempted: Notify,
}

#[derive(Debug)]
struct ReadKeys {
    set: Arc<KeySet>,
    /// When they were last read, changed or not.
    read_at: Instant,
}

#[derive(Debug, Default)]
struct Attempts {
    /// The end of the last one.
    last: Option<Instant>,
    failures_in_a_row: u32,
}

impl KeySource {
    pub(crate) fn new(settings: &TokenSettings, fetcher: Fetcher) -> Self {
        let location = match (&settings.jwks_file, &settings.jwks_url) {
            (Some(path), _) => KeyLocation::File(path.clone()),
            (None, Some(url)) => KeyLocation::Url(url.clone()),
            (None, None) => KeyLocation::Issuer {
                metadata: metadata_urls(&settings.issuer),
                issuer: settings.issuer.clone(),
            },
        };
        Self {
            location,
            fetcher,
            max_age: settings.keys_max_age,
            current: RwLock::default(),
            failure: RwLock::default(),
            attempts: Arc::default(),
            attempted: Notify::new(),
        }
    }

    /// The keys that were read last; none if they were never read, or cannot be read any more and are too old.
    pub(crate) fn current(&self) -> Option<Arc<KeySet>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        let keys = current.as_ref()?;
        (keys.read_at.elapsed() <= self.max_age).then(|| Arc::clone(&keys.set))
    }

    pub(crate) fn state(&self) -> KeysState {
        KeysState {
            keys: self.current().map(|set| set.keys.len()),
            failure: self
                .failure
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }

    /// Reads the keys for a token that names an unknown one. Requests that come meanwhile wait for the same attempt and
    /// share its outcome; one that comes soon after it does not cause another.
    pub(crate) async fn read_for_unknown(self: &Arc<Self>) {
        let mut attempts = Arc::clone(&self.attempts).lock_owned().await;
        if attempts.are_recent() {
            return;
        }
        // The attempt continues for the other requests if this one is dropped. Only the attempt that has the lock is a
        // task, so that unauthenticated senders cannot pile up tasks.
        let source = Arc::clone(self);
        let reading = tokio::spawn(async move { source.read(&mut attempts).await });
        if let Err(error) = reading.await {
            tracing::error!(%error, "reading the keys of the issuer panicked");
        }
    }

    /// Reads the keys now.
    pub(crate) async fn read_now(&self) {
        self.read(&mut *self.attempts.lock().await).await;
    }

    /// Reads the keys whenever they are due, until it is dropped.
    pub(crate) async fn keep_current(&self) {
        loop {
            let due = self.attempts.lock().await.next(self.interval());
            tokio::select! {
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)) => {}
                () = self.attempted.notified() => continue,
            }
            let mut attempts = self.attempts.lock().await;
            if attempts.next(self.interval()) == due {
                self.read(&mut attempts).await;
            }
        }
    }

    const fn interval(&self) -> Duration {
        match self.location {
            KeyLocation::File(_) => FILE_INTERVAL,
            KeyLocation::Url(_) | KeyLocation::Issuer { .. } => FETCH_INTERVAL,
        }
    }

    async fn read(&self, attempts: &mut Attempts) {
        let outcome = self.try_read().await;
        // Not when it began: an attempt may take longer than the interval, and those who waited for it share its failure.
        attempts.last = Some(Instant::now());
        let failure = match outcome {
            Ok(keys) => {
                attempts.failures_in_a_row = 0;
                metrics::keys_read(KeysRead::Ok);
                self.replace(keys);
                None
            }
            Err(error) => {
                attempts.failures_in_a_row = attempts.failures_in_a_row.saturating_add(1);
                metrics::keys_read(KeysRead::Failed);
                let cause = with_causes(&error);
                tracing::warn!(%cause, failures = attempts.failures_in_a_row, "reading the keys of the issuer failed");
                Some(cause.into())
            }
        };
        *self.failure.write().unwrap_or_else(PoisonError::into_inner) = failure;
        self.attempted.notify_one();
    }

    /// The keys take effect, unless they are the same: then the tokens that they have verified stay known.
    fn replace(&self, keys: Vec<Key>) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let read_at = Instant::now();
        match current.as_mut() {
            Some(current) if current.set.keys == keys => current.read_at = read_at,
            _ => {
                tracing::info!(keys = keys.len(), "the issuer's keys were read");
                let set = Arc::new(KeySet::new(keys));
                *current = Some(ReadKeys { set, read_at });
            }
        }
    }

    async fn try_read(&self) -> Result<Vec<Key>, KeysError> {
        let (document, origin) = match &self.location {
            KeyLocation::File(path) => (read_file(path).await?, KeyOrigin::File),
            KeyLocation::Url(url) => (self.fetch(url).await?, KeyOrigin::Network),
            KeyLocation::Issuer { issuer, metadata } => {
                let url = self.discover(issuer, metadata).await?;
                (self.fetch(&url).await?, KeyOrigin::Network)
            }
        };
        Ok(parse_keys(&document, origin)?)
    }

    async fn fetch(&self, url: &Url) -> Result<Bytes, KeysError> {
        let fetched = self.fetcher.get(url).await;
        fetched.map_err(|cause| KeysError::Fetch {
            url: url.as_str().into(),
            cause,
        })
    }

    /// Where the issuer's metadata say that its keys are.
    async fn discover(&self, issuer: &str, metadata: &[Url]) -> Result<Url, KeysError> {
        #[derive(Deserialize)]
        struct Metadata {
            issuer: String,
            jwks_uri: String,
        }
        let mut failed = Err(KeysError::KeySet(KeySetError::NotAKeySet));
        for url in metadata {
            match self.fetcher.get(url).await {
                Err(cause) => {
                    failed = Err(KeysError::Metadata {
                        url: url.as_str().into(),
                        cause,
                    })
                }
                Ok(document) => {
                    let metadata = serde_json::from_slice::<Metadata>(&document).ok();
                    let metadata = metadata.filter(|metadata| metadata.issuer == issuer);
                    let keys = metadata.and_then(|metadata| Url::parse(&metadata.jwks_uri).ok());
                    if let Some(keys) = keys.filter(is_fetched_safely) {
                        return Ok(keys);
                    }
                    failed = Err(KeysError::MetadataInvalid {
                        url: url.as_str().into(),
                    });
                }
            }
        }
        failed
    }
}

impl Attempts {
    fn are_recent(&self) -> bool {
        self.last
            .is_some_and(|last| last.elapsed() < UNKNOWN_KEY_INTERVAL)
    }

    /// When the next one is due; none if there was none yet.
    fn next(&self, interval: Duration) -> Option<Instant> {
        let doublings = self.failures_in_a_row.saturating_sub(1).min(16);
        let pause = match self.failures_in_a_row {
            0 => interval,
            _ => RETRY_MIN.saturating_mul(1 << doublings).min(RETRY_MAX),
        };
        Some(self.last? + pause)
    }
}

/// Where the metadata of this issuer may be.
pub(crate) fn metadata_urls(issuer: &str) -> Vec<Url> {
    let issuer = issuer.trim_end_matches('/');
    let Ok(base) = Url::parse(issuer) else {
        return Vec::new();
    };
    let path = base.path().trim_end_matches('/');
    let [openid, oauth] = METADATA_PATHS;
    let paths = [
        format!("{path}/.well-known/{openid}"),
        format!("/.well-known/{oauth}{path}"),
    ];
    let urls = paths.map(|path| {
        let mut url = base.clone();
        url.set_path(&path);
        url
    });
    urls.into()
}

/// A file with symmetric keys has to be secret.
async fn read_file(path: &std::path::Path) -> Result<Bytes, KeysError> {
    let path = path.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        let document = read_at_most(&path).map_err(KeysError::File)?;
        let keys = parse_keys(&document, KeyOrigin::File)?;
        if keys.iter().any(Key::is_symmetric) {
            let secret = mooring_secrets::file::read(&path, FILE_BYTES_MAX);
            return secret.map(Bytes::from).map_err(KeysError::Secret);
        }
        Ok(Bytes::from(document))
    });
    reading
        .await
        .unwrap_or_else(|error| Err(KeysError::File(error.into())))
}

fn read_at_most(path: &std::path::Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut document = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut document)?;
    Ok(document)
}
