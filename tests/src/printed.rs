//! What a page prints as a result, compared in form with what a command or a gateway has printed: ids, digests, times and
//! numbers differ each time.

use anyhow::{Context, ensure};
use serde_json::Value;

/// The fewest hexadecimal digits that are taken for a digest.
const DIGEST_DIGITS_MIN: usize = 8;

/// The fewest characters that are taken for an id of digits and capitals.
const ID_LENGTH_MIN: usize = 20;

/// How an object on a page relates to the real one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Form {
    /// Members whose numbers, booleans and texts differ each time; their types do not.
    pub varying: &'static [&'static str],
    /// Members, objects, of which the page prints a part.
    pub shortened: &'static [&'static str],
}

/// The text with what differs each time in one form: digests and ids by their length, digits as 0, one space between words.
#[must_use]
pub fn form_of(text: &str) -> String {
    let words = text.split_whitespace().map(|word| {
        let core = word.trim_matches(|letter: char| !letter.is_ascii_alphanumeric());
        if is_uuid(core) {
            return word.replace(core, "#uuid");
        }
        let mut formed = String::new();
        for part in word.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
            let run = part.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
            formed.push_str(&form_of_run(run));
            formed.push_str(part.get(run.len()..).unwrap_or_default());
        }
        formed
    });
    words.collect::<Vec<_>>().join(" ")
}

fn is_uuid(word: &str) -> bool {
    let lengths = word.split('-').map(str::len);
    let is_digit = |letter: char| letter.is_ascii_hexdigit() || letter == '-';
    lengths.eq([8, 4, 4, 4, 12]) && word.chars().all(is_digit)
}

/// The form of letters and digits.
fn form_of_run(run: &str) -> String {
    let has = |is: fn(&u8) -> bool| run.bytes().any(|byte| is(&byte));
    let is_digest =
        run.len() >= DIGEST_DIGITS_MIN && run.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_id =
        run.len() >= ID_LENGTH_MIN && has(u8::is_ascii_digit) && !has(u8::is_ascii_lowercase);
    match is_digest || is_id {
        true => format!("#{}", run.len()),
        false => run.replace(|letter: char| letter.is_ascii_digit(), "0"),
    }
}

/// Whether lines of text have the same form.
///
/// # Errors
/// They have not.
pub fn same_text(page: &str, real: &str) -> anyhow::Result<()> {
    let (page_form, real_form) = (form_of(page), form_of(real));
    ensure!(
        page_form == real_form,
        "the page prints\n{page}\nand really it is\n{real}\n({page_form}\n{real_form})"
    );
    Ok(())
}

/// Whether JSON on a page has the same members with the same types as the real one, and the same values but for what the
/// form says. A text with `...` stands for any text.
///
/// # Errors
/// They differ; the error says where.
pub fn same_json(page: &Value, real: &Value, form: &Form) -> anyhow::Result<()> {
    same_member(page, real, form, "")
        .with_context(|| format!("the page prints\n{page:#}\nand really it is\n{real:#}"))
}

fn same_member(page: &Value, real: &Value, form: &Form, place: &str) -> anyhow::Result<()> {
    let name = place.rsplit('/').next().unwrap_or_default();
    let is_varying = form.varying.contains(&name);
    match (page, real) {
        (Value::Object(printed), Value::Object(members)) => {
            for (name, value) in printed {
                let place = format!("{place}/{}", name.replace('/', "~1"));
                let member = members.get(name);
                same_member(
                    value,
                    member.with_context(|| format!("{place} is missing"))?,
                    form,
                    &place,
                )?;
            }
            let further = members.keys().find(|name| !printed.contains_key(*name));
            ensure!(
                further.is_none() || form.shortened.contains(&name),
                "{place}: {further:?} is not on the page"
            );
            Ok(())
        }
        (Value::Array(printed), Value::Array(items)) => {
            ensure!(
                printed.len() == items.len(),
                "{place}: {} items",
                items.len()
            );
            let mut both = printed.iter().zip(items).enumerate();
            both.try_for_each(|(index, (printed, item))| {
                same_member(printed, item, form, &format!("{place}/{index}"))
            })
        }
        (Value::String(printed), Value::String(text)) => {
            let is_same =
                is_varying || printed.contains("...") || form_of(printed) == form_of(text);
            ensure!(is_same, "{place}: {text:?}");
            Ok(())
        }
        (Value::Number(_), Value::Number(_)) | (Value::Bool(_), Value::Bool(_)) if is_varying => {
            Ok(())
        }
        _ => {
            ensure!(page == real, "{place}: {real}");
            Ok(())
        }
    }
}

/// The commands of a block that follow `$ `, each with what the page prints below it.
#[must_use]
pub fn exchanges(block: &str) -> Vec<(String, String)> {
    let mut exchanges: Vec<(String, String)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), exchanges.last_mut()) {
            (Some(command), _) => exchanges.push((command.to_owned(), String::new())),
            (None, Some((_, printed))) => {
                printed.push_str(line);
                printed.push('\n');
            }
            (None, None) => {}
        }
    }
    exchanges
}

/// The commands of a block, each in one line; a backslash continues one in the next.
#[must_use]
pub fn commands(block: &str) -> Vec<String> {
    let lines = block.replace("\\\n", " ");
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::{Form, form_of, same_json, same_text};
    use serde_json::json;

    #[test]
    fn what_differs_each_time_has_one_form() {
        let check =
            |page, real, is_same| assert_eq!(same_text(page, real).is_ok(), is_same, "{real}");
        let printed = "5a1f09c3d2e87b46  local  2026-01-14T23:15:00.000Z";
        check(
            printed,
            "03a3941e32211f0e local 2026-11-26T09:43:33.689Z",
            true,
        );
        check(printed, "03a3941e local 2026-11-26T09:43:33.689Z", false);
        check(
            printed,
            "03a3941e32211f0e remote 2026-11-26T09:43:33.689Z",
            false,
        );
        assert_eq!(form_of("run 01J9Z3K5V8Q4W2N7C6X1R0TDHM, 17"), "run #26, 00");
        assert_eq!(form_of("(3f6d1c52-8a07-4b9e-b1c4-90d2e7a5f813)"), "(#uuid)");
    }

    #[test]
    fn json_has_the_members_of_the_page_and_no_others() {
        let form = Form {
            varying: &["ms"],
            shortened: &["metrics"],
        };
        let check = |page, real, is_same| {
            assert_eq!(same_json(&page, &real, &form).is_ok(), is_same, "{real}")
        };
        let page = json!({"ok": true, "id": "01J9...", "metrics": {"ms": 1.5}});
        check(
            page.clone(),
            json!({"ok": true, "id": "x", "metrics": {"ms": 2, "more": 1}}),
            true,
        );
        check(
            page.clone(),
            json!({"ok": false, "id": "x", "metrics": {"ms": 2}}),
            false,
        );
        check(
            page.clone(),
            json!({"ok": true, "id": "x", "metrics": {"ms": "2"}}),
            false,
        );
        check(
            page.clone(),
            json!({"ok": true, "id": "x", "metrics": {}}),
            false,
        );
        check(
            page,
            json!({"ok": true, "id": "x", "metrics": {"ms": 2}, "more": 1}),
            false,
        );
    }
}
