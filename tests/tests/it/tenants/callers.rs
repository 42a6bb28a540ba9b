//! The two callers, and how the gateway knows them.

use mooring_tests::identity_provider::IdentityProvider;
use mooring_tests::session::Opening;
use serde_json::json;

pub(super) const ADA: Caller = Caller {
    user: "ada@vermilion.example",
    team: "team-vermilion",
};
pub(super) const BOB: Caller = Caller {
    user: "bob@cobalt.example",
    team: "team-cobalt",
};

#[derive(Clone, Copy)]
pub(super) struct Caller {
    pub(super) user: &'static str,
    pub(super) team: &'static str,
}

/// How callers are known.
pub(super) enum Authentication {
    TrustedHeader,
    /// By tokens of one provider: Ada's and Bob's.
    Jwt {
        provider: Box<IdentityProvider>,
        tokens: [String; 2],
    },
}

impl Authentication {
    pub(super) async fn by_tokens() -> anyhow::Result<Self> {
        let provider = Box::new(IdentityProvider::start().await?);
        let token = async |caller: Caller| {
            let claims = json!({"sub": caller.user, "groups": [caller.team]});
            provider.sign(&json!({}), &claims, "key").await
        };
        let tokens = [token(ADA).await?, token(BOB).await?];
        Ok(Self::Jwt { provider, tokens })
    }

    /// The lines of `[auth]`; more may follow.
    pub(super) fn toml(&self) -> String {
        match self {
            Self::TrustedHeader => {
                "[auth]\nmode = \"trusted-header\"\ntrusted_peers = [\"127.0.0.1\"]\n".to_owned()
            }
            Self::Jwt { provider, .. } => provider.auth_toml(),
        }
    }

    pub(super) fn headers(&self, caller: Caller) -> Vec<(&'static str, String)> {
        match self {
            Self::TrustedHeader => vec![
                ("x-mooring-user", caller.user.to_owned()),
                ("x-mooring-teams", caller.team.to_owned()),
            ],
            Self::Jwt { tokens, .. } => {
                let [ada, bob] = tokens;
                let token = if caller.user == ADA.user { ada } else { bob };
                vec![("authorization", format!("Bearer {token}"))]
            }
        }
    }

    pub(super) fn opening(&self, caller: Caller) -> anyhow::Result<Opening> {
        let mut headers = self.headers(caller).into_iter();
        headers.try_fold(Opening::default(), |opening, (name, value)| {
            opening.header(name, &value)
        })
    }
}
