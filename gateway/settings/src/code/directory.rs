//! Where the directories of code sessions are.

use std::path::PathBuf;

use crate::paths::absolute;
use crate::reader::{Reader, Reason};
use crate::setting::{Disclosure, SettingInfo, Text};
use crate::source::Environment;
use crate::state_home::state_home;

pub(super) const BASE_DIR: Text = Text {
    about: SettingInfo::new(
        "code.base_dir",
        "The directory under which sessions keep their files. All gateways of a fleet share it: one volume, mounted at \
         each. It is made if it is missing.",
    )
    .seed("CODE_EXECUTION_BASE_DIR")
    .unset("`$XDG_STATE_HOME/mooring/code`, or `~/.local/state/mooring/code`"),
    default: None,
    shape: "an absolute path of a directory",
    bytes_max: 4096,
    disclosure: Disclosure::Open,
};

/// `None` where it was refused, or nothing says where it is.
pub(super) fn parse(reader: &mut Reader<'_>, environment: &Environment) -> Option<PathBuf> {
    if reader.is_written(&BASE_DIR.about) {
        let written = reader.text(&BASE_DIR, parse_directory);
        if written.is_some() || reader.was_refused(&BASE_DIR.about) {
            return written;
        }
    }
    Some(state_home(environment)?.join("mooring").join("code"))
}

/// Says that nothing says where it is, unless something wrong was said.
pub(super) fn refuse_missing(reader: &mut Reader<'_>) {
    if reader.was_refused(&BASE_DIR.about) {
        return;
    }
    reader.refuse(
        &BASE_DIR.about,
        String::new(),
        "a server of kind code needs a directory, and neither XDG_STATE_HOME nor HOME is an absolute path".to_owned(),
        BASE_DIR.shape.to_owned(),
    );
}

fn parse_directory(text: &str) -> Result<PathBuf, Reason> {
    let path = absolute(text)?;
    if path.parent().is_none() {
        return Err("it is the root directory".to_owned());
    }
    Ok(path)
}
