//! Tables and text for people.

use serde_json::Value;

/// Most characters of one table cell.
const CELL_CHARS_MAX: usize = 80;

/// Rows with aligned columns under a header.
pub(crate) fn table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let mut lines: Vec<Vec<String>> = vec![titles.iter().map(ToString::to_string).collect()];
    lines.extend(
        rows.iter()
            .map(|row| row.iter().map(|cell| shortened(cell)).collect()),
    );
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let mut padded = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            padded.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(padded.trim_end());
        text.push('\n');
    }
    text
}

/// A row for each of these values. A column is its title and where its cells are.
pub(crate) fn listing(values: &[Value], columns: &[(&str, &str)]) -> String {
    let (titles, pointers): (Vec<&str>, Vec<&str>) = columns.iter().copied().unzip();
    let row = |value| pointers.iter().map(|at| cell(value, at)).collect();
    table(&titles, &values.iter().map(row).collect::<Vec<_>>())
}

/// One line of a table, truncated if too long.
pub(crate) fn shortened(text: &str) -> String {
    let line = printable(text).replace(['\n', '\t'], " ");
    match line.char_indices().nth(CELL_CHARS_MAX) {
        None => line,
        Some(_) => {
            let head: String = line.chars().take(CELL_CHARS_MAX - 1).collect();
            format!("{head}…")
        }
    }
}

/// Text that cannot control a terminal: control characters are escaped as Rust writes them.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => shown.push(character),
            control if control.is_control() || is_direction(control) => {
                shown.extend(control.escape_unicode());
            }
            other => shown.push(other),
        }
    }
    shown
}

/// Characters that change the text direction.
fn is_direction(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A value of the response as a cell; a hyphen if it is missing.
pub(crate) fn cell(row: &Value, pointer: &str) -> String {
    match row.pointer(pointer) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// The rows of a list in the response.
pub(crate) fn rows<'a>(answer: &'a Value, list: &str) -> &'a [Value] {
    answer
        .get(list)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Named values, one per line.
pub(crate) fn fields(of: &Value, named: &[(&str, &str)]) -> String {
    let width = named
        .iter()
        .map(|(name, _)| name.len())
        .max()
        .unwrap_or_default();
    let line = |(name, pointer): &(&str, &str)| {
        format!(
            "{name:<width$}  {}\n",
            printable(&cell(of, pointer)).replace('\n', " ")
        )
    };
    named.iter().map(line).collect()
}
