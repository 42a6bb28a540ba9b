//! `/ui`: the first page that the operator may see.

use axum::response::Response;

use super::NAVIGATION;
use crate::http::ui::context::PageContext;
use crate::http::ui::layout::{self, nothing};

pub(super) async fn show(context: PageContext) -> Response {
    let may_see =
        |item: &&super::NavigationItem| item.rights.iter().any(|right| context.may(*right));
    match NAVIGATION.iter().find(may_see) {
        Some(item) => layout::see_other(item.path),
        None => layout::page(
            &context,
            "Mooring",
            None,
            nothing("There is nothing to see."),
        ),
    }
}
