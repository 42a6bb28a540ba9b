//! Card numbers, social security numbers and telephone numbers: groups of digits and their separators.
//!
//! A run of groups ends at anything but one or two of the usual separators. From each of its groups on, every type takes
//! the longest number that it can read; the length of a number is limited, so a run is read in a time that grows with
//! its length.

use std::ops::Range;

use super::Hint;
use mooring_settings::PersonalDataType;

/// The types that [`find`] looks for in one pass.
pub(super) const TYPES: [PersonalDataType; 3] = [
    PersonalDataType::CreditCard,
    PersonalDataType::Ssn,
    PersonalDataType::Phone,
];

/// Most digits of one number.
const DIGITS_MAX: usize = 19;
/// Most groups of one number: its digits, each alone.
const GROUPS_MAX: usize = DIGITS_MAX;

/// Digits without anything between them.
#[derive(Clone, Debug)]
struct Group {
    range: Range<usize>,
    /// The separator between this group and the previous one of its run; none for the first.
    between: Separator,
}

/// The separator of two groups of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separator {
    Nothing,
    /// One separator.
    One(char),
    /// A parenthesis, and perhaps a separator beside it.
    Parenthesis,
}

/// The numbers of a text. `hint` is what its key says.
pub(super) fn find(text: &str, hint: Hint, push: &mut impl FnMut(PersonalDataType, Range<usize>)) {
    if let Some(kind) = classify_by_hint(text, hint) {
        push(kind, 0..text.len());
        return;
    }
    let mut run: Vec<Group> = Vec::new();
    let mut end = 0;
    while let Some(group) = next_group(text, end) {
        let between = text.get(end..group.start).and_then(separator);
        match between {
            Some(between) if !run.is_empty() => run.push(Group {
                range: group.clone(),
                between,
            }),
            _ => {
                read_run(text, &run, push);
                run.clear();
                run.push(Group {
                    range: group.clone(),
                    between: Separator::Nothing,
                });
            }
        }
        end = group.end;
    }
    read_run(text, &run, push);
}

/// Classifies the digits of a JSON number.
pub(super) fn of_number(decimal: &str, hint: Hint) -> Option<PersonalDataType> {
    let digits: Vec<u8> = values(decimal);
    if digits.len() != decimal.len() {
        return None;
    }
    match hint {
        _ if is_card(&digits) => Some(PersonalDataType::CreditCard),
        Hint::Phone if (6..=15).contains(&digits.len()) => Some(PersonalDataType::Phone),
        Hint::Ssn if (8..=9).contains(&digits.len()) => Some(PersonalDataType::Ssn),
        _ => None,
    }
}

/// Classifies a whole text by its key.
fn classify_by_hint(text: &str, hint: Hint) -> Option<PersonalDataType> {
    let (kind, counts, marks) = match hint {
        Hint::Phone => (
            PersonalDataType::Phone,
            5..=20,
            "+-./()# extEXT\u{a0}\u{2011}",
        ),
        Hint::Ssn => (PersonalDataType::Ssn, 9..=9, " -."),
        Hint::None | Hint::Name => return None,
    };
    let count = text.bytes().filter(u8::is_ascii_digit).count();
    let is_all_known = text
        .chars()
        .all(|letter| letter.is_ascii_digit() || marks.contains(letter));
    (counts.contains(&count) && is_all_known).then_some(kind)
}

fn next_group(text: &str, from: usize) -> Option<Range<usize>> {
    let rest = text.as_bytes().get(from..)?;
    let start = from + rest.iter().position(u8::is_ascii_digit)?;
    let digits = text.as_bytes().get(start..)?;
    let length = digits
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    Some(start..start + length)
}

/// The separator of two groups, if they may belong to one number.
fn separator(between: &str) -> Option<Separator> {
    let is_separator = |letter: char| " -.\u{a0}\u{2010}\u{2011}\u{2013}".contains(letter);
    let mut letters = between.chars();
    match (
        letters.next(),
        letters.next(),
        letters.next(),
        letters.next(),
    ) {
        (Some(one), None, ..) if is_separator(one) => Some(Separator::One(one)),
        (Some('(' | ')'), None, ..) => Some(Separator::Parenthesis),
        (Some(')'), Some(two), None, _) if is_separator(two) => Some(Separator::Parenthesis),
        (Some(one), Some('('), None, _) if is_separator(one) => Some(Separator::Parenthesis),
        (Some('('), Some('0'), Some(')'), None) => Some(Separator::Parenthesis),
        _ => None,
    }
}

fn read_run(text: &str, run: &[Group], push: &mut impl FnMut(PersonalDataType, Range<usize>)) {
    for start in 0..run.len() {
        let groups = run.get(start..).unwrap_or_default();
        let groups = groups
            .get(..GROUPS_MAX.min(groups.len()))
            .unwrap_or_default();
        for (kind, length) in [
            (PersonalDataType::CreditCard, card(text, groups)),
            (PersonalDataType::Ssn, ssn(groups)),
            (PersonalDataType::Phone, phone(text, groups)),
        ] {
            let last = length.checked_sub(1).and_then(|last| groups.get(last));
            if let (Some(first), Some(last)) = (groups.first(), last) {
                push(kind, opening(text, first.range.start)..last.range.end);
            }
        }
    }
}

/// Where a number begins whose digits begin here: a `+` and a parenthesis belong to it.
fn opening(text: &str, digits: usize) -> usize {
    let before = text.get(..digits).unwrap_or_default();
    let opened = before.strip_suffix('(').unwrap_or(before);
    opened.strip_suffix('+').unwrap_or(opened).len()
}

/// How many of the groups are a card number: 13 to 19 digits of an issuer, with one kind of separator, whose check digit is
/// right. None is 0.
fn card(text: &str, groups: &[Group]) -> usize {
    let mut digits: Vec<u8> = Vec::with_capacity(DIGITS_MAX);
    let mut found = 0;
    let kind = groups.get(1).map(|second| second.between);
    for (count, group) in (1..).zip(groups) {
        let belongs = count == 1 || (Some(group.between) == kind && is_of_card(group.between));
        if !belongs || digits.len() + group.range.len() > DIGITS_MAX {
            break;
        }
        digits.extend(values(text.get(group.range.clone()).unwrap_or_default()));
        if is_card(&digits) {
            found = count;
        }
    }
    found
}

/// Points separate fractions, and no card number.
fn is_of_card(between: Separator) -> bool {
    matches!(between, Separator::One(separator) if separator != '.')
}

/// Whether these are the digits of a card: the issuers' first digits, and Luhn's sum.
fn is_card(digits: &[u8]) -> bool {
    let first = |count: usize| {
        let digits = digits.iter().take(count);
        digits.fold(0_u32, |number, digit| number * 10 + u32::from(*digit))
    };
    let is_issued = match digits.len() {
        13 | 16 | 19 if first(1) == 4 => true,
        15 => matches!(first(2), 34 | 37),
        14 => matches!(first(2), 30 | 36 | 38 | 39),
        16 if matches!(first(2), 51..=55) || matches!(first(4), 2221..=2720) => true,
        16..=19 => matches!(first(2), 35 | 60 | 62 | 64 | 65 | 81),
        13 => matches!(first(2), 50 | 56..=69),
        _ => false,
    };
    is_issued && luhn(digits)
}

fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .zip([1_u32, 2].into_iter().cycle())
        .map(|(digit, weight)| {
            let product = u32::from(*digit) * weight;
            product / 10 + product % 10
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Three, two and four digits with one kind of separator. None is 0.
fn ssn(groups: &[Group]) -> usize {
    let is_one = lengths_are(groups, &[3, 2, 4])
        && matches!(groups, [_, two, three, ..] if two.between == three.between);
    if is_one { 3 } else { 0 }
}

/// How many of the groups are a telephone number. None is 0.
fn phone(text: &str, groups: &[Group]) -> usize {
    let Some(first) = groups.first() else {
        return 0;
    };
    let digits = text.get(first.range.clone()).unwrap_or_default();
    let before = text.get(..first.range.start).unwrap_or_default();
    let opened = before.strip_suffix('(').unwrap_or(before);
    if opened.ends_with('+') && !digits.starts_with('0') {
        return longest(groups, 7..=15, |_| true);
    }
    if let Some(rest) = digits.strip_prefix("00")
        && !rest.starts_with('0')
    {
        return longest(groups, 9..=17, |_| true);
    }
    north_american(text, groups, before).max(with_trunk_prefix(groups, digits, before))
}

/// 555-123-4567, perhaps after a 1, with any separators; or ten digits that can be one.
fn north_american(text: &str, groups: &[Group], before: &str) -> usize {
    let digits = |group: Option<&Group>| {
        let range = group.map(|group| group.range.clone());
        range.and_then(|range| text.get(range)).unwrap_or_default()
    };
    if lengths_are(groups, &[3, 3, 4]) {
        return 3;
    }
    if lengths_are(groups, &[1, 3, 3, 4]) && digits(groups.first()) == "1" {
        return 4;
    }
    let is_fraction = groups
        .get(1)
        .is_some_and(|second| second.between == Separator::One('.'));
    if lengths_are(groups, &[3, 7]) && !is_fraction {
        return 2;
    }
    let whole = digits(groups.first());
    let own = match whole.len() {
        10 => whole,
        11 => whole.strip_prefix('1').unwrap_or_default(),
        _ => "",
    };
    let is_apart =
        !before.ends_with(|letter: char| letter.is_alphanumeric() || "_-.".contains(letter));
    // Seconds since 1970 begin with a 1.
    usize::from(is_apart && own.starts_with(|first: char| first >= '2'))
}

/// A number of one country as it is written within it: a 0, and nine to twelve digits in all with one kind of separator.
fn with_trunk_prefix(groups: &[Group], first: &str, before: &str) -> usize {
    let is_apart =
        !before.ends_with(|letter: char| letter.is_alphanumeric() || "_-.,".contains(letter));
    if !is_apart || !first.starts_with('0') || first.len() < 2 || first.starts_with("00") {
        return 0;
    }
    let kind = groups
        .iter()
        .skip(1)
        .map(|group| group.between)
        .find(|between| *between != Separator::Parenthesis);
    longest(groups, 9..=12, |group| {
        group.between == Separator::Parenthesis || Some(group.between) == kind
    })
}

/// The most groups from the first on that have as many digits as `wanted`, each of them belonging to the one before.
fn longest(
    groups: &[Group],
    wanted: std::ops::RangeInclusive<usize>,
    belongs: impl Fn(&Group) -> bool,
) -> usize {
    let mut digits = 0;
    let mut found = 0;
    for (count, group) in (1..).zip(groups) {
        digits += group.range.len();
        if digits > *wanted.end() || (count > 1 && !belongs(group)) {
            break;
        }
        if wanted.contains(&digits) {
            found = count;
        }
    }
    found
}

fn lengths_are(groups: &[Group], wanted: &[usize]) -> bool {
    let lengths = groups.iter().map(|group| group.range.len());
    groups.len() >= wanted.len()
        && lengths
            .zip(wanted)
            .all(|(length, wanted)| length == *wanted)
}

fn values(digits: &str) -> Vec<u8> {
    let digits = digits.bytes().filter(u8::is_ascii_digit);
    digits.map(|digit| digit - b'0').collect()
}
