//! How much of a schema and of its words becomes a stub. What is beyond becomes `any`: the tool can still be called.

/// Deepest nesting of types within one named type.
pub(super) const DEPTH_MAX: usize = 16;
/// Most schemas looked at for one side of a tool.
pub(super) const SCHEMAS_MAX: usize = 2_048;
/// Most work that intersecting kinds may take, in kinds written.
pub(super) const MEETING_MAX: usize = 32_768;
/// Most types of one schema that have a name of their own.
pub(super) const NAMED_MAX: usize = 128;
/// Most fields of one object.
pub(super) const FIELDS_MAX: usize = 256;
/// Most alternatives of one union, and most places of one tuple.
pub(super) const ALTERNATIVES_MAX: usize = 32;
/// Most values of one enumeration.
pub(super) const LITERALS_MAX: usize = 64;
/// Longest text that is a value of an enumeration, in characters.
pub(super) const LITERAL_CHARS_MAX: usize = 128;
/// Longest name of a field, in characters.
pub(super) const FIELD_NAME_CHARS_MAX: usize = 256;
/// Longest reference, in bytes.
pub(super) const REFERENCE_BYTES_MAX: usize = 512;
/// Longest identifier made of a name, in characters: with a number and an extension it still is the name of a file.
pub(super) const IDENTIFIER_CHARS_MAX: usize = 100;
/// Longest description of a tool in its stub, in characters.
pub(super) const DESCRIPTION_CHARS_MAX: usize = 8_192;
/// Longest description of a field, in characters.
pub(super) const FIELD_DESCRIPTION_CHARS_MAX: usize = 1_024;
/// Longest default of a field that its description has, in bytes of JSON.
pub(super) const DEFAULT_BYTES_MAX: usize = 128;
/// Longest summary of a tool in the files of its package, in characters.
pub(super) const SUMMARY_CHARS_MAX: usize = 160;
/// Longest stub in bytes. One that would be longer is made without types.
pub(super) const STUB_BYTES_MAX: usize = 128 * 1024;
/// Most parameters, and most fields of a result, that the summary of a tool names.
pub(super) const SUMMARY_FIELDS_MAX: usize = 12;
/// Most servers that a search which found nothing names.
pub(super) const SERVERS_TOLD_MAX: usize = 50;
/// Most words of a query that count.
pub(super) const QUERY_WORDS_MAX: usize = 16;

const _: () = assert!(
    IDENTIFIER_CHARS_MAX + 32 < 255,
    "a file's name is one path component"
);
const _: () = assert!(
    DESCRIPTION_CHARS_MAX * 12 < STUB_BYTES_MAX,
    "a stub without types is never too long, however its description is escaped"
);
