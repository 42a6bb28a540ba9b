//! What all requests to the operators' page share: keys, the OpenID provider and the open streams. It knows no requests.

mod form_tokens;
mod live_connections;
mod sealed_cookies;

use std::time::Duration;

pub(super) use self::form_tokens::FormOwner;
use self::form_tokens::FormTokens;
use self::live_connections::LiveConnections;
pub(super) use self::live_connections::LivePermit;
use self::sealed_cookies::SealedCookies;
pub(super) use self::sealed_cookies::{BegunSignIn, FLOW_SECONDS, SealedText, SignIn, deletion};
use mooring_identity::OpenIdClient;
use mooring_peers::fleet::{KeyRing, SealKey};
use mooring_settings::UiSettings;
use mooring_upstream::ClientError;

/// The operators' page of this gateway.
#[derive(Debug)]
pub struct OperatorPage {
    /// Seals who has signed in.
    pub(super) cookies: SealedCookies,
    /// The tokens of forms.
    pub(super) form_tokens: FormTokens,
    /// The OpenID provider; none if people do not sign in there.
    pub(super) openid: Option<OpenIdClient>,
    /// How long people stay signed in.
    pub(super) sign_in_lifetime: Duration,
    /// The open streams of events.
    pub(super) live: LiveConnections,
}

impl OperatorPage {
    /// The page of these settings. Sign-ins are sealed with the keys of the fleet; without a fleet, or without its keys, this
    /// process has a key of its own.
    ///
    /// # Errors
    /// The OpenID provider is reached over TLS, and there are no root certificates.
    pub(crate) fn new(settings: &UiSettings, ring: Option<&KeyRing>) -> Result<Self, ClientError> {
        let seal = match ring {
            Some(ring) => SealKey::of_page(ring),
            None => SealKey::of_page(&KeyRing::random()),
        };
        let provider = settings.sign_in_provider.clone();
        Ok(Self {
            cookies: SealedCookies::new(seal.clone()),
            form_tokens: FormTokens::new(seal),
            openid: provider.map(OpenIdClient::new).transpose()?,
            sign_in_lifetime: settings.sign_in_lifetime,
            live: LiveConnections::default(),
        })
    }
}
