//! Hints that a key gives about its value. Spellings of keys differ in case, in `_` and `-`, and in the joining of
//! words.

/// The likely type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Hint {
    /// The key gives no hint, or there is no key.
    None,
    /// A person's name: the key is or ends with `name`.
    Name,
    /// A telephone number.
    Phone,
    /// A social security number.
    Ssn,
}

impl Hint {
    /// The hint of this key.
    pub(in super::super) fn of(key: &str) -> Self {
        let letters: String = key
            .chars()
            .filter(|letter| letter.is_alphanumeric())
            .flat_map(char::to_lowercase)
            .collect();
        let has = |words: &[&str]| words.iter().any(|word| letters.contains(word));
        if letters.ends_with("name") {
            Self::Name
        } else if has(&["phone", "mobile", "fax"]) || ["tel", "cell"].contains(&letters.as_str()) {
            Self::Phone
        } else if letters.ends_with("ssn") || has(&["socialsecurity"]) {
            Self::Ssn
        } else {
            Self::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Hint;

    #[test]
    fn keys_say_what_is_under_them() {
        #[track_caller]
        fn check(key: &str, expected: Hint) {
            assert_eq!(Hint::of(key), expected, "{key}");
        }
        for key in [
            "name",
            "Name",
            "full_name",
            "lastName",
            "user-name",
            "NAME_",
        ] {
            check(key, Hint::Name);
        }
        for key in ["names", "named", "", "id"] {
            check(key, Hint::None);
        }
        for key in [
            "phone",
            "homePhone",
            "phone_number",
            "Tel.",
            "mobile",
            "FAX",
        ] {
            check(key, Hint::Phone);
        }
        check("hotel", Hint::None);
        check("ssn", Hint::Ssn);
        check("social-security-number", Hint::Ssn);
    }
}
