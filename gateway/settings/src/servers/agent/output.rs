//! How an agent's output is read: its form, and where things stand in it.

use super::output_rules::{Condition, OutputForm, OutputRules, Pointer, Results};
use super::profile::{PROFILE, Profile};
use crate::reader::{Reader, Reason};
use crate::setting::{Choice, ChoiceOption, Disclosure, List, Setting, SettingInfo, Text};

pub(super) const OUTPUT: Choice<OutputForm> = Choice {
    about: SettingInfo::new("servers.output", "What the agent prints.")
        .unset("as the profile has it, else `json`"),
    default: ChoiceOption {
        name: "json",
        value: OutputForm::Json,
        meaning: "one JSON document",
    },
    others: &[
        ChoiceOption {
            name: "json_lines",
            value: OutputForm::JsonLines,
            meaning: "one JSON value a line",
        },
        ChoiceOption {
            name: "text",
            value: OutputForm::Text,
            meaning: "plain text, which all is the result; it has no session id, so every run is fresh",
        },
    ],
    later: &[],
};

pub(super) const SESSION_POINTER: Text = pointer(
    SettingInfo::new(
        "servers.session_pointer",
        "Where the output has the id under which the agent resumes.",
    )
    .unset("the profile's; without one, every run is fresh"),
);

pub(super) const RESULT_POINTER: Text = pointer(
    SettingInfo::new(
        "servers.result_pointer",
        "Where the output has the agent's answer. Required without a `profile`, but for the output `text`.",
    )
    .unset("the profile's"),
);

pub(super) const RESULT_WHERE: List = conditions(
    SettingInfo::new(
        "servers.result_where",
        "What has to stand in a value of the output, all of it, for its answer to count.",
    )
    .unset("the profile's, else nothing"),
);

pub(super) const RESULTS: Choice<Results> = Choice {
    about: SettingInfo::new(
        "servers.results",
        "What becomes of several answers in one output.",
    )
    .unset("as the profile has it, else `last`"),
    default: ChoiceOption {
        name: "last",
        value: Results::Last,
        meaning: "the last one is the result",
    },
    others: &[ChoiceOption {
        name: "joined",
        value: Results::Joined,
        meaning: "all of them are the result, with blank lines between them",
    }],
    later: &[],
};

pub(super) const ERROR_POINTER: Text = pointer(
    SettingInfo::new(
        "servers.error_pointer",
        "Where the output says that the run failed: by anything but `false` and `null`. A run whose exit code is not 0 \
         has failed in any case.",
    )
    .unset("the profile's, else the exit code alone says so"),
);

pub(super) const PROGRESS_POINTER: Text = pointer(
    SettingInfo::new(
        "servers.progress_pointer",
        "Where the output has text that a client is shown while it waits.",
    )
    .unset("the profile's, else there is none"),
);

pub(super) const PROGRESS_WHERE: List = conditions(
    SettingInfo::new(
        "servers.progress_where",
        "What has to stand in a value of the output, all of it, for its text to be shown.",
    )
    .unset("the profile's, else nothing"),
);

/// What says something only of JSON.
const OF_JSON: [Setting; 7] = [
    Setting::Text(&SESSION_POINTER),
    Setting::Text(&RESULT_POINTER),
    Setting::List(&RESULT_WHERE),
    Setting::Choice(&RESULTS),
    Setting::Text(&ERROR_POINTER),
    Setting::Text(&PROGRESS_POINTER),
    Setting::List(&PROGRESS_WHERE),
];

const fn pointer(about: SettingInfo) -> Text {
    Text {
        about,
        default: None,
        shape: "a JSON pointer (RFC 6901) such as /item/text, or an empty text for none",
        bytes_max: 512,
        disclosure: Disclosure::Open,
    }
}

const fn conditions(about: SettingInfo) -> List {
    List {
        about,
        shape: "texts of at most 512 bytes, each a JSON pointer (RFC 6901) and what stands there, such as \
                /type=result or /done=true",
        items_max: 16,
        item_bytes_max: 512,
        disclosure: Disclosure::Open,
    }
}

/// What is written, else the profile's; each field by itself.
pub(super) fn parse(reader: &mut Reader<'_>, profile: Option<&'static Profile>) -> OutputRules {
    let form = profile.map_or(OutputForm::Json, |profile| profile.output);
    let form = reader.choice_or(&OUTPUT, form);
    if form == OutputForm::Text {
        refuse_pointers(reader);
        return text_rules();
    }
    let results = profile.map_or(Results::Last, |profile| profile.results);
    let rules = OutputRules {
        form,
        session_pointer: parse_pointer(
            reader,
            &SESSION_POINTER,
            profile.and_then(|of| of.session_pointer),
        ),
        result_pointer: parse_pointer(
            reader,
            &RESULT_POINTER,
            profile.and_then(|of| of.result_pointer),
        ),
        result_where: parse_conditions(reader, &RESULT_WHERE, profile.map(|of| of.result_where)),
        results: reader.choice_or(&RESULTS, results),
        error_pointer: parse_pointer(
            reader,
            &ERROR_POINTER,
            profile.and_then(|of| of.error_pointer),
        ),
        progress_pointer: parse_pointer(
            reader,
            &PROGRESS_POINTER,
            profile.and_then(|of| of.progress_pointer),
        ),
        progress_where: parse_conditions(
            reader,
            &PROGRESS_WHERE,
            profile.map(|of| of.progress_where),
        ),
    };
    if rules.result_pointer.is_none() {
        refuse_missing_result(reader);
    }
    rules
}

fn text_rules() -> OutputRules {
    OutputRules {
        form: OutputForm::Text,
        session_pointer: None,
        result_pointer: None,
        result_where: Vec::new(),
        results: Results::Last,
        error_pointer: None,
        progress_pointer: None,
        progress_where: Vec::new(),
    }
}

/// Beside plain text they would be wishes that nobody hears.
fn refuse_pointers(reader: &mut Reader<'_>) {
    for setting in OF_JSON {
        if reader.is_written(setting.about()) {
            reader.refuse(
                setting.about(),
                String::new(),
                "the agent's output is plain text, in which nothing is looked for".to_owned(),
                "nothing, or output = \"json\" or \"json_lines\"".to_owned(),
            );
        }
    }
}

fn refuse_missing_result(reader: &mut Reader<'_>) {
    let about = &RESULT_POINTER.about;
    if reader.was_refused(about) || reader.was_refused(&PROFILE.about) {
        return;
    }
    let value = if reader.is_written(about) { "\"\"" } else { "" };
    reader.refuse(
        about,
        value.to_owned(),
        "it is missing, so nothing says where the agent's answer stands".to_owned(),
        "a JSON pointer (RFC 6901) such as /result, or output = \"text\"".to_owned(),
    );
}

/// Written and empty, it is none, whatever the profile has.
fn parse_pointer(
    reader: &mut Reader<'_>,
    setting: &'static Text,
    of_profile: Option<&str>,
) -> Option<Pointer> {
    if reader.is_written(&setting.about) {
        reader.text(setting, to_pointer)
    } else {
        of_profile.and_then(|text| Pointer::parse(text).ok())
    }
}

fn parse_conditions(
    reader: &mut Reader<'_>,
    setting: &'static List,
    of_profile: Option<&[&str]>,
) -> Vec<Condition> {
    if reader.is_written(&setting.about) {
        return reader.list(setting, to_condition).unwrap_or_default();
    }
    let texts = of_profile.unwrap_or_default().iter();
    texts
        .filter_map(|text| Condition::parse(text).ok())
        .collect()
}

fn to_pointer(text: &str) -> Result<Pointer, Reason> {
    Pointer::parse(text).map_err(|error| error.to_string())
}

fn to_condition(text: &str) -> Result<Condition, Reason> {
    Condition::parse(text).map_err(|error| error.to_string())
}
