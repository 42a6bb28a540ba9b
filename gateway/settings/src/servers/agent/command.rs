//! What an agent is run with: the command, and the arguments with which it resumes.

use super::super::stdio::command::{COMMAND, parse_word, parse_words, refuse_missing};
use super::profile::{PROFILE, Profile};
use super::template::CommandTemplate;
use crate::reader::Reader;
use crate::setting::{Disclosure, List, SettingInfo};

pub(super) const RESUME: List = List {
    about: SettingInfo::new(
        "servers.resume",
        "The arguments with which the agent takes up an earlier session, whose id it gave: `{session}`. They stand where \
         `servers.command` has the argument `{resume}`, else at its end.",
    )
    .unset("the profile's; without one, every run is fresh"),
    shape: "texts of at most 4096 bytes, of which one holds {session}, such as [\"--resume={session}\"]",
    items_max: 32,
    item_bytes_max: 4096,
    disclosure: Disclosure::Hidden,
};

/// What is written, else the profile's; each of the two by itself.
pub(super) fn parse(reader: &mut Reader<'_>, profile: Option<&'static Profile>) -> CommandTemplate {
    let is_written = reader.is_written(&COMMAND.about);
    let command = if is_written {
        parse_words(reader)
    } else {
        profile.map(|profile| owned(profile.command))
    };
    let resume = if reader.is_written(&RESUME.about) {
        reader.list(&RESUME, parse_word).unwrap_or_default()
    } else {
        profile
            .map(|profile| owned(profile.resume))
            .unwrap_or_default()
    };
    if !is_written && profile.is_none() && !reader.was_refused(&PROFILE.about) {
        refuse_missing(
            reader,
            "it is missing, and so is a `profile`, which has one",
        );
    }
    let is_refused = reader.was_refused(&COMMAND.about) || reader.was_refused(&RESUME.about);
    match command {
        Some(command) if !is_refused => checked(reader, &command, &resume),
        _ => CommandTemplate::default(),
    }
}

fn checked(reader: &mut Reader<'_>, command: &[String], resume: &[String]) -> CommandTemplate {
    match CommandTemplate::parse(command, resume) {
        Ok(template) => template,
        Err(error) => {
            let setting = if error.is_about_resume() {
                &RESUME
            } else {
                &COMMAND
            };
            reader.refuse(
                &setting.about,
                "[...]".to_owned(),
                error.to_string(),
                setting.allowed(),
            );
            CommandTemplate::default()
        }
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().copied().map(str::to_owned).collect()
}
