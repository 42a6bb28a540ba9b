//! `mooring sessions`: works on the sessions of the store that the settings name, without a gateway, by the commands
//! that gateways use. Gateways may run meanwhile.
//!
//! Invariant: if the store is unreachable, nothing is done: no command is served from memory. Text printed for people
//! contains no control characters, and no secret except an agent's session in `show` and in an export.

mod agent_record;
mod agent_records;
mod export;
mod history;
mod import;
mod list;
mod outcome;
mod policy;
mod room;
mod show;
mod target;
mod why;

pub use self::outcome::{Outcome, SessionsError};
use self::target::StoreTarget;
use crate::cli::{SessionsArguments, SessionsCommand};

/// Runs the command and returns what to print.
///
/// # Errors
/// See [`SessionsError`].
pub async fn run(arguments: SessionsArguments) -> Result<Outcome, SessionsError> {
    let target = StoreTarget::load(&arguments.store)?;
    match arguments.command {
        SessionsCommand::Import {
            file,
            owner,
            overwrite,
        } => {
            let conflicts = if overwrite {
                import::OnKnown::Overwrite
            } else {
                import::OnKnown::KeepNewer
            };
            let file = file.map_or_else(import::default_file, Ok)?;
            import::run(&target, &owner, &file, conflicts).await
        }
        SessionsCommand::Export { file, owner } => export::run(&target, &owner, &file).await,
        SessionsCommand::List {
            principal,
            server,
            kind,
            limit,
            json,
        } => {
            let wanted = list::ListFilter::parse(principal, server, kind, limit)?;
            list::run(&target, &wanted, json).await
        }
        SessionsCommand::Show {
            session,
            history,
            json,
        } => show::show(&target, &session, history, json).await,
        SessionsCommand::Why { session, json } => why::run(&target, &session, json).await,
        SessionsCommand::End { session } => show::end(&target, &session).await,
        SessionsCommand::Search { .. }
        | SessionsCommand::Move { .. }
        | SessionsCommand::EndMatching { .. } => Err(SessionsError::Flag(
            "this command asks a gateway, not the store".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests;
