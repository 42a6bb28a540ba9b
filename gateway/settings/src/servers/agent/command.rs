//! What an agent is run with: the command, and the arguments with which it resumes.

use super::super::stdio::command::{COMMAND, parse_word, parse_words, refuse};
use super::profile::{PROFILE, Profile, RESUME};
use super::template::CommandTemplate;
use crate::reader::Reader;

/// What is written, else the profile's; each of the two by itself.
pub(super) fn parse(reader: &mut Reader<'_>, profile: &'static Profile) -> CommandTemplate {
    let is_written = reader.is_written(&COMMAND);
    let command = match is_written {
        true => parse_words(reader),
        false => Some(words(profile.command)).filter(|words| !words.is_empty()),
    };
    let resume = match reader.is_written(&RESUME) {
        true => reader.list(&RESUME, parse_word).unwrap_or_default(),
        false => words(profile.resume),
    };
    if !is_written && command.is_none() && !reader.was_refused(&PROFILE) {
        refuse(
            reader,
            "",
            "it is missing, and so is a `profile`, which has one",
        );
    }
    let is_refused = reader.was_refused(&COMMAND) || reader.was_refused(&RESUME);
    match command {
        Some(command) if !is_refused => checked(reader, &command, &resume),
        _ => CommandTemplate::default(),
    }
}

fn checked(reader: &mut Reader<'_>, command: &[String], resume: &[String]) -> CommandTemplate {
    CommandTemplate::parse(command, resume).unwrap_or_else(|error| {
        let row = match error.is_about_resume() {
            true => &RESUME,
            false => &COMMAND,
        };
        reader.refuse(row, "[...]", error.to_string(), row.allowed());
        CommandTemplate::default()
    })
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
