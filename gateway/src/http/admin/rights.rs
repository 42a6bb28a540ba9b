//! What a caller may use and do.

use axum::response::Response;
use mooring_session::names::Principal;

use super::context::AdminContext;
use crate::http::rest::{Code, Problem, QueryParameter, RestRoute};
use mooring_admin::CallerRights;
use mooring_identity::Identity;
use mooring_settings::Right;

const QUERY: [QueryParameter; 3] = [
    QueryParameter::new("teams", "the user's teams, separated by commas"),
    QueryParameter::new("roles", "the user's roles, separated by commas"),
    QueryParameter::new(
        "scopes",
        "the scopes of the user's token, separated by commas",
    ),
];

pub(super) fn routes() -> Vec<RestRoute> {
    vec![
        RestRoute::get(
            "/admin/users/{user}/rights",
            "Shows what a user with these teams, roles and scopes may use and do, and by which rule",
            show,
        )
        .needs(Right::SessionsRead)
        .query(&QUERY)
        .reading_tool("users_rights")
.replies::<CallerRights>(),
    ]
}

async fn show(context: AdminContext) -> Result<Response, Problem> {
    let query = context.query(&QUERY)?;
    let names = |name: &str| -> Vec<String> {
        let names = query.text(name).unwrap_or_default().split(',');
        let names = names.map(str::trim).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    };
    let principal = Principal::parse(context.path_part(0).as_bytes())
        .map_err(|error| Problem::new(Code::InvalidQuery, error.to_string()))?;
    let caller = Identity {
        teams: names("teams").into(),
        roles: names("roles"),
        scopes: names("scopes"),
        ..Identity::of(principal)
    };
    let rights = context.operator.rights_of(&context.identity, &caller)?;
    Ok(context.reply(&rights))
}
