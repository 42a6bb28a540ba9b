//! Values that the file borrows from the gateway's environment, so that it need not hold a secret itself.

use crate::reader::Reason;
use crate::source::Environment;
use crate::value::Value;

/// A value that starts like this names the environment variable that holds it.
const MARK: &str = "env:";

/// What a written text stands for: itself, or the value of the variable that it names. The reason never repeats a
/// value.
pub(super) fn value(text: &str, environment: &Environment) -> Result<String, Reason> {
    let Some(variable) = text.strip_prefix(MARK) else {
        return Ok(text.to_owned());
    };
    match environment.get(variable) {
        Some(Value::Word(value)) => Ok(value),
        Some(_) => Err(format!("the variable {variable} is not UTF-8")),
        None => Err(format!(
            "the environment variable {variable:?} is not set, or empty"
        )),
    }
}
