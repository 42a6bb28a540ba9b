//! The reply of COUNT.

use mooring_session::index::SessionCounts;

use crate::ffi::Context;

/// The reply of COUNT, with whether each owner is alive.
pub(crate) fn session_counts(
    context: &Context,
    is_complete: bool,
    counts: &SessionCounts<'_>,
    is_alive: impl Fn(&str) -> bool,
) {
    context.begin_reply(4);
    context.flag("complete", is_complete);
    context.reply_bytes(b"groups");
    context.reply_array(counts.groups.len());
    for (prefix, sessions) in &counts.groups {
        context.reply_map(4);
        context.bytes("prefix", prefix);
        context.integer("active", sessions.active);
        context.integer("expired", sessions.expired);
        context.integer("ended", sessions.ended);
    }
    context.reply_bytes(b"instances");
    context.reply_array(counts.instances.len());
    for (server, instance, bindings) in &counts.instances {
        context.reply_map(3);
        context.text("server", server);
        context.text("instance", instance);
        context.integer("bindings", *bindings);
    }
    context.reply_bytes(b"owners");
    context.reply_array(counts.owners.len());
    for (worker, bindings) in &counts.owners {
        context.reply_map(3);
        context.text("worker", worker);
        context.flag("alive", is_alive(worker));
        context.integer("bindings", *bindings);
    }
}
