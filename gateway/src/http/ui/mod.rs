//! The operators' page at `/ui`: HTML that the gateway renders, over the functions of the REST interface and of operators.
//!
//! ```text
//! assets     the style sheet and the scripts, in the binary, under names with their digest
//! headers    the content security policy, and the check that a request is from the page itself
//! sign_in    who looks at the page: a sealed cookie, or the request's own identity
//! context    an identified operator, from which every page and every act begins
//! html       what pages are made of
//! layout     the frame of an operator's pages, with the navigation
//! pages      one file for each page, with its acts
//! live       server-sent events with parts of pages
//! ```
//!
//! Invariants: without a right nothing is shown, and an act needs a token that only the page of the same sign-in has. Text
//! of sessions, tools and runs is data: templates escape it, and no script or style is written into a page.

#![allow(
    clippy::result_large_err,
    reason = "a refusal is the reply itself, and rare"
)]

mod assets;
mod context;
mod headers;
mod html;
mod layout;
mod live;
mod navigation;
mod pages;
mod sign_in;
mod target;

use std::sync::Arc;

use axum::Router;
use axum::middleware;

use super::app::App;

/// The routes; none if the page is disabled. The caller adds the host and origin guard.
pub(super) fn routes(app: &Arc<App>) -> Router<Arc<App>> {
    if app.page.is_none() {
        return Router::new();
    }
    Router::new()
        .merge(assets::routes())
        .merge(sign_in::routes())
        .merge(pages::routes())
        .layer(middleware::from_fn_with_state(
            Arc::clone(app),
            headers::protect,
        ))
}
