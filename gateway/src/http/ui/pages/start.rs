//! `/ui`: the first page that the operator may see.

use axum::response::Response;

use crate::http::ui::context::PageContext;
use crate::http::ui::html::{self as page_html, nothing};
use crate::http::ui::layout;
use crate::http::ui::navigation::{NAVIGATION, NavigationItem};

pub(super) async fn show(context: PageContext) -> Response {
    let may_see = |item: &&NavigationItem| item.rights.iter().any(|right| context.may(*right));
    match NAVIGATION.iter().find(may_see) {
        Some(item) => page_html::see_other(item.path),
        None => layout::page(
            &context,
            "Mooring",
            None,
            nothing("There is nothing to see."),
        ),
    }
}
