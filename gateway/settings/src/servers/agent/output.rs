//! How an agent's output is read: its form, and where things stand in it. Each field that is not written is the
//! profile's.

use super::output_rules::{Condition, Pointer};
use super::profile::{PROFILE, Profile};
use crate::reader::Reader;
use crate::rows::{settings, words};
use crate::setting::{List, Text};

const TEXT_BYTES_MAX: usize = 512;
const CONDITIONS_MAX: usize = 16;
const POINTER_SHAPE: &str =
    "a JSON pointer (RFC 6901) such as /item/text, or an empty text for none";
const CONDITION_SHAPE: &str = "texts of at most 512 bytes, each a JSON pointer (RFC 6901) and the value there, such as \
                               /type=result or /done=true";

settings! {
    /// How an agent's output is read.
    #[derive(Eq)]
    pub struct OutputRules(profile: &'static Profile) {
        /// What the agent prints.
        pub form: OutputForm = Choice("servers.output").unset("as the profile has it, else `json`")
            => |reader, row| reader.if_written(row).unwrap_or(profile.output),
        /// Where the output has the id under which the agent resumes.
        pub session_pointer: Option<Pointer> = Text("servers.session_pointer", TEXT_BYTES_MAX, POINTER_SHAPE, None)
            .unset("the profile's; without one, every run is fresh")
            => |reader, row| pointer(reader, row, form, profile.session_pointer),
        /// Where the output has the agent's answer. Required without a `profile`, but for the output `text`.
        pub result_pointer: Option<Pointer> = Text("servers.result_pointer", TEXT_BYTES_MAX, POINTER_SHAPE, None)
            .unset("the profile's")
            => |reader, row| pointer(reader, row, form, profile.result_pointer),
        /// Conditions that a value of the output must all meet for its answer to count.
        pub result_where: Vec<Condition> =
            List("servers.result_where", CONDITIONS_MAX, TEXT_BYTES_MAX, CONDITION_SHAPE)
            .unset("the profile's, else nothing")
            => |reader, row| conditions(reader, row, form, profile.result_where),
        /// Which of several answers in one output is the result.
        pub results: Results = Choice("servers.results").unset("as the profile has it, else `last`")
            => |reader, row| reader.if_written(row).unwrap_or(profile.results),
        /// Where the output says that the run failed: by anything but `false` and `null`. A run whose exit code is not
        /// 0 has failed in any case.
        pub error_pointer: Option<Pointer> = Text("servers.error_pointer", TEXT_BYTES_MAX, POINTER_SHAPE, None)
            .unset("the profile's, else the exit code alone says so")
            => |reader, row| pointer(reader, row, form, profile.error_pointer),
        /// Where the output has text that a client is shown while it waits.
        pub progress_pointer: Option<Pointer> = Text("servers.progress_pointer", TEXT_BYTES_MAX, POINTER_SHAPE, None)
            .unset("the profile's, else there is none")
            => |reader, row| pointer(reader, row, form, profile.progress_pointer),
        /// Conditions that a value of the output must all meet for its text to be shown.
        pub progress_where: Vec<Condition> =
            List("servers.progress_where", CONDITIONS_MAX, TEXT_BYTES_MAX, CONDITION_SHAPE)
            .unset("the profile's, else nothing")
            => |reader, row| conditions(reader, row, form, profile.progress_where),
    }
}

words! {
    /// What an agent prints.
    pub enum OutputForm {
        /// one JSON document
        Json = "json",
        /// one JSON value a line
        JsonLines = "json_lines",
        /// plain text, which all is the result; it has no session id, so every run is fresh
        Text = "text",
    }
}

words! {
    /// Which of several answers of one run is the result.
    pub enum Results {
        /// the last one is the result
        Last = "last",
        /// all of them are the result, with blank lines between them
        Joined = "joined",
    }
}

impl OutputRules {
    pub(super) fn parse(reader: &mut Reader<'_>, profile: &'static Profile) -> Self {
        let rules = Self::read(reader, profile);
        if rules.form == OutputForm::Text {
            refuse_pointers(reader);
        } else if rules.result_pointer.is_none() {
            refuse_missing_result(reader);
        }
        rules
    }
}

/// Refuses the pointers if the output is plain text, where they would have no effect.
fn refuse_pointers(reader: &mut Reader<'_>) {
    for setting in OutputRules::ROWS.iter().skip(1) {
        if reader.is_written(setting) {
            reader.refuse(
                setting,
                "",
                "the agent's output is plain text, in which nothing is looked for",
                "nothing, or output = \"json\" or \"json_lines\"",
            );
        }
    }
}

fn refuse_missing_result(reader: &mut Reader<'_>) {
    let row = &OutputRules::result_pointer;
    if reader.was_refused(row) || reader.was_refused(&PROFILE) {
        return;
    }
    let value = if reader.is_written(row) { "\"\"" } else { "" };
    reader.refuse(
        row,
        value,
        "it is missing, so nothing says where the agent's answer stands",
        "a JSON pointer (RFC 6901) such as /result, or output = \"text\"",
    );
}

/// Written and empty, it is none, whatever the profile has.
fn pointer(
    reader: &mut Reader<'_>,
    row: &'static Text,
    form: OutputForm,
    of_profile: Option<&str>,
) -> Option<Pointer> {
    let parse = |text: &str| Pointer::parse(text).map_err(str::to_owned);
    match form {
        OutputForm::Text => None,
        _ if reader.is_written(row) => reader.text(row, parse),
        _ => parse(of_profile?).ok(),
    }
}

fn conditions(
    reader: &mut Reader<'_>,
    row: &'static List,
    form: OutputForm,
    of_profile: &[&str],
) -> Vec<Condition> {
    let parse = |text: &str| Condition::parse(text).map_err(str::to_owned);
    match form {
        OutputForm::Text => Vec::new(),
        _ if reader.is_written(row) => reader.list(row, parse).unwrap_or_default(),
        _ => of_profile
            .iter()
            .filter_map(|text| parse(text).ok())
            .collect(),
    }
}
