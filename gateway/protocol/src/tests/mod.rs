//! Tests across several files of the wire layer, and their generators.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod envelope;
mod ids;
mod rewrite;
mod sse;
mod stream;

use proptest::prelude::*;
use proptest::sample::Index;

/// The text of a JSON string, with escapes, brackets and the gateway's own prefixes.
fn string_literal() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "id",
        "é",
        "\u{1f980}",
        r"\u0041",
        r"\ud800",
        r#"\""#,
        r"\\",
        r"\n",
        r"\/",
        "{",
        "}",
        "[",
        ",",
        ":",
        "c:",
        "s:1:",
        " ",
        "7",
        "data",
    ]);
    prop::collection::vec(piece, 0..6).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

/// The text of a valid id or progress token.
fn id_json() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        Just("-0".to_owned()),
        Just("18446744073709551616123".to_owned()),
        string_literal(),
    ]
}

/// White space that JSON allows between tokens.
fn space() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "", "", " ", "\n", "\r\n\t "])
}

/// An object with these members, in the given order.
fn object_of(members: &[(String, String)], space: &str) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(key, value)| format!("{space}{key}{space}:{space}{value}{space}"))
        .collect();
    format!("{{{space}{}}}", members.join(","))
}

/// The text of any JSON value.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        prop::sample::select(vec![
            "null", "true", "false", "0", "-1.50", "1e400", "{}", "[ ]"
        ])
        .prop_map(str::to_owned),
        string_literal(),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let key = prop_oneof![Just("\"id\"".to_owned()), string_literal()];
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..4), space()).prop_map(|(items, space)| {
                format!("[{space}{}{space}]", items.join(&format!("{space},")))
            }),
            (prop::collection::vec((key, inner), 0..4), space())
                .prop_map(|(members, space)| object_of(&members, space)),
        ]
    })
}

/// Members that the gateway ignores.
fn other_members() -> impl Strategy<Value = Vec<(String, String)>> {
    let key = prop::sample::select(vec![
        "x",
        "ids",
        "vendor",
        r"\u0069",
        "idd",
        "xid",
        "\u{e9}",
        r"i\u0064x",
    ])
    .prop_map(|key| format!("\"{key}\""));
    prop::collection::vec((key, json()), 0..3)
}

/// The ways in which a JSON string may be re-encoded.
fn respell(literal: &str, how: usize) -> String {
    let Ok(text) = serde_json::from_str::<String>(literal) else {
        return literal.to_owned();
    };
    match how % 3 {
        0 => literal.to_owned(),
        1 => serde_json::to_string(&text).unwrap(),
        _ => {
            let units: Vec<String> = text
                .encode_utf16()
                .map(|unit| format!("\\u{unit:04x}"))
                .collect();
            format!("\"{}\"", units.concat())
        }
    }
}

/// Splits the bytes at these offsets.
fn chunks<'a>(bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 0..12)
}
