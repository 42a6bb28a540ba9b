//! The date of an entry, in the form that ECMAScript defines and `toISOString` writes.
//!
//! Invariant: a date means the same on every machine. A time without a zone is refused, since it would be the local
//! time of the machine that wrote it.

use time::{Date, Month, UtcDateTime};

const MS_PER_MINUTE: i64 = 60_000;
const MS_PER_DAY: i64 = 24 * 60 * MS_PER_MINUTE;

/// Milliseconds since 1970 of a date such as `2026-01-14T23:15:00Z`: a day, or a day and a time to the minute, second
/// or fraction, in UTC or with an offset. None for anything else, and for dates that do not exist.
pub(super) fn unix_ms(text: &str) -> Option<i64> {
    let mut rest = DateParser(text.trim());
    let days = date(&mut rest)?;
    if rest.0.is_empty() {
        return Some(days * MS_PER_DAY);
    }
    rest.one_of(&['T', 't', ' '])?;
    let of_day = time(&mut rest)?;
    let offset = offset(&mut rest)?;
    rest.0
        .is_empty()
        .then_some(days * MS_PER_DAY + of_day - offset)
}

/// The unparsed rest.
struct DateParser<'a>(&'a str);

impl DateParser<'_> {
    /// A number of this many digits.
    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        self.0 = rest;
        is_number.then(|| digits.parse().ok())?
    }

    fn one_of(&mut self, allowed: &[char]) -> Option<char> {
        let found = self.0.chars().next().filter(|one| allowed.contains(one))?;
        self.0 = self.0.strip_prefix(found)?;
        Some(found)
    }

    /// A two-digit number after a separator, within a range.
    fn part(&mut self, mark: char, most: i64) -> Option<i64> {
        self.one_of(&[mark])?;
        self.digits(2).filter(|value| *value <= most)
    }
}

/// The number of a day: 0 for 1 January 1970.
fn date(rest: &mut DateParser<'_>) -> Option<i64> {
    let year = i32::try_from(rest.digits(4)?).ok()?;
    let month = u8::try_from(rest.part('-', 12)?).ok()?;
    let day = u8::try_from(rest.part('-', 31)?).ok()?;
    let date = Date::from_calendar_date(year, Month::try_from(month).ok()?, day).ok()?;
    Some((date - UtcDateTime::UNIX_EPOCH.date()).whole_days())
}

/// Milliseconds of the day. 24:00 is the end of the day.
fn time(rest: &mut DateParser<'_>) -> Option<i64> {
    let hour = rest.digits(2).filter(|hour| *hour <= 24)?;
    let minute = rest.part(':', 59)?;
    let mut ms = 0;
    if rest.0.starts_with(':') {
        ms = rest.part(':', 59)? * 1_000 + fraction(rest)?;
    }
    let of_day = (hour * 60 + minute) * MS_PER_MINUTE + ms;
    (of_day <= MS_PER_DAY).then_some(of_day)
}

/// Milliseconds in a fraction of a second; further digits are dropped.
fn fraction(rest: &mut DateParser<'_>) -> Option<i64> {
    if rest.one_of(&['.', ',']).is_none() {
        return Some(0);
    }
    let (mut ms, mut worth, mut count) = (0, 100, 0_u32);
    while rest.0.starts_with(|one: char| one.is_ascii_digit()) {
        ms += rest.digits(1)? * worth;
        worth /= 10;
        count += 1;
    }
    (count > 0).then_some(ms)
}

/// The zone's offset from UTC in milliseconds.
fn offset(rest: &mut DateParser<'_>) -> Option<i64> {
    let sign = match rest.one_of(&['Z', 'z', '+', '-'])? {
        '+' => 1,
        '-' => -1,
        _ => return Some(0),
    };
    let hour = rest.digits(2).filter(|hour| *hour <= 23)?;
    let minute = rest.part(':', 59)?;
    Some(sign * (hour * 60 + minute) * MS_PER_MINUTE)
}
