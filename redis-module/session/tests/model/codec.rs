//! The stored form: what is written is what is read, what is not ours stays, and what is corrupt is named.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use mooring_session::codec::{
    BindingHead, BorrowedRecord, CorruptRecord, SCHEMA_VERSION, changes, decode, decode_lifetime,
    encode, encode_lifetime,
};
use mooring_session::explain::explain;
use mooring_session::limits::{TTL_MAX, TTL_MIN};
use mooring_session::names::{
    ContentHash, InstanceName, LabelName, LabelValue, Principal, Reason, ServerName, SessionId,
    Token, UpstreamSession, WorkerId,
};
use mooring_session::record::{
    Binding, Cleaning, LEAST_READER, Lifecycle, Phase, Record, SessionLifetime,
};
use mooring_session::time::{Millis, Monotonic, Timestamp};
use mooring_session::workers::Workers;
use mooring_session::{Context, NoIndex, Tuning};

use crate::support::server;

type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

/// At which length Redis stops keeping a hash a listpack by default.
const LISTPACK_VALUE_BYTES: usize = 64;
const IDENTIFIER: &str = "[A-Za-z0-9._:-]";
const VISIBLE: &str = "[!-~]";
/// Text without control characters, in one, two, three and four bytes of UTF-8.
const TEXT: &str = "[ -~é漢🚢]";

fn text<T: std::fmt::Debug>(
    alphabet: &str,
    least: usize,
    most: usize,
    parse: impl Fn(&[u8]) -> T,
) -> impl Strategy<Value = T> {
    let pattern = format!("{alphabet}{{{least},{most}}}");
    proptest::string::string_regex(&pattern)
        .unwrap()
        .prop_map(move |text| parse(text.as_bytes()))
}

fn moment() -> impl Strategy<Value = Timestamp> {
    // Thirteen digits: from 1970 to 2286.
    (0_u64..10_000_000_000_000).prop_map(Timestamp::from_unix_ms)
}

fn lifetime() -> impl Strategy<Value = SessionLifetime> {
    (
        prop_oneof![Just(Lifecycle::Active), Just(Lifecycle::Ended)],
        moment(),
        moment(),
        moment(),
        TTL_MIN.get()..=TTL_MAX.get(),
    )
        .prop_map(
            |(lifecycle, created_at, last_used_at, expires_at, ttl)| SessionLifetime {
                least_reader: LEAST_READER,
                lifecycle,
                created_at,
                last_used_at,
                expires_at,
                ttl: Millis::new(ttl),
            },
        )
}

fn worker_id() -> impl Strategy<Value = WorkerId> {
    text(VISIBLE, 1, 128, |bytes| {
        WorkerId::parse(bytes).unwrap_or_else(|_| WorkerId::parse(b"w:1").unwrap())
    })
}

fn upstream_session() -> impl Strategy<Value = UpstreamSession> {
    text(VISIBLE, 1, 1024, |bytes| {
        UpstreamSession::parse(bytes).unwrap()
    })
}

fn instance_name() -> impl Strategy<Value = InstanceName> {
    text(VISIBLE, 1, 128, |b| InstanceName::parse(b).unwrap())
}

fn binding() -> impl Strategy<Value = Binding> {
    let phase = prop_oneof![
        Just(Phase::Bound),
        moment().prop_map(|lease_until| Phase::Claimed { lease_until })
    ];
    (
        (phase, moment(), moment(), 0_u64..1_000_000_000),
        instance_name(),
        (
            option::of(upstream_session()),
            option::of(upstream_session()),
            option::of(instance_name()),
        ),
        (option::of(worker_id()), worker_id()),
        text(VISIBLE, 1, 64, |b| Token::parse(b).unwrap()),
        option::of(text(TEXT, 1, 30, |b| Reason::parse(b).unwrap())),
    )
        .prop_map(|(head, instance, left, (owner, driver), token, reason)| {
            let (phase, epoch, bound_at, rebinds) = head;
            let (upstream_session, previous, unreported_loss) = left;
            Binding {
                phase,
                instance,
                upstream_session,
                owner,
                driver,
                epoch: epoch.unix_ms(),
                bound_at,
                rebinds,
                last_reason: reason,
                token,
                previous,
                unreported_loss,
            }
        })
}

fn record() -> impl Strategy<Value = Record> {
    let cleaning = (option::of(worker_id()), moment()).prop_map(|(worker, lease_until)| Cleaning {
        worker,
        lease_until,
    });
    let principal = text(TEXT, 1, 80, |bytes| {
        Principal::parse(bytes).unwrap_or_else(|_| Principal::parse(b"alice").unwrap())
    });
    (
        text(IDENTIFIER, 1, 128, |b| SessionId::parse(b).unwrap()),
        principal,
        (any::<u64>(), any::<u64>()),
        lifetime(),
        option::of(text(VISIBLE, 1, 64, |b| ContentHash::parse(b).unwrap())),
        btree_map(
            text(IDENTIFIER, 1, 32, |b| LabelName::parse(b).unwrap()),
            text(TEXT, 0, 64, |b| LabelValue::parse(b).unwrap()),
            0..4,
        ),
        btree_map(
            text(VISIBLE, 1, 60, |b| ServerName::parse(b).unwrap()),
            binding(),
            0..3,
        ),
        option::of(cleaning),
    )
        .prop_map(
            |(id, principal, numbers, lifetime, content_hash, labels, bindings, cleaning)| Record {
                id,
                principal,
                generation: numbers.0,
                highest_epoch: numbers.1,
                lifetime,
                content_hash,
                labels,
                bindings,
                cleaning,
            },
        )
}

/// Fields of a later module: names that the table of this version does not hold.
fn unknown_fields() -> impl Strategy<Value = Fields> {
    let name = prop_oneof![
        "[acdfinotuvwxy]:[!-~]{0,20}".prop_map(String::into_bytes),
        "[A-Z]{1,3}".prop_map(String::into_bytes),
        Just(b"\xff\xfe".to_vec()),
        Just(Vec::new()),
    ];
    btree_map(name, vec(any::<u8>(), 0..40), 0..4)
}

fn fields_of(record: &Record) -> Fields {
    encode(record)
        .into_iter()
        .map(|(field, value)| (field.into_bytes(), value.into_bytes()))
        .collect()
}

fn pairs(fields: &Fields) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields
        .iter()
        .map(|(field, value)| (field.as_slice(), value.as_slice()))
}

fn named(field: &[u8]) -> CorruptRecord {
    CorruptRecord::field(field)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_what_is_read(record in record(), unknown in unknown_fields()) {
        let mut fields = fields_of(&record);
        fields.extend(unknown);
        prop_assert_eq!(
            BorrowedRecord::decode(pairs(&fields)),
            Ok(BorrowedRecord::of(&record))
        );
        prop_assert_eq!(decode(pairs(&fields)), Ok(record));
    }

    #[test]
    fn the_changes_lead_from_one_record_to_the_other_and_touch_nothing_else(
        before in record(),
        after in record(),
        keeps_bindings in any::<bool>(),
        unknown in unknown_fields(),
    ) {
        let mut after = after;
        if keeps_bindings {
            after.bindings.extend(before.bindings.clone());
        }
        let mut fields = fields_of(&before);
        fields.extend(unknown.clone());
        let changes = changes(pairs(&fields), &after);
        for field in &changes.delete {
            prop_assert!(fields.remove(field.as_bytes()).is_some(), "{} was not there", field);
        }
        for (field, value) in changes.set {
            let old = fields.insert(field.clone().into_bytes(), value.clone().into_bytes());
            prop_assert_ne!(old, Some(value.into_bytes()), "{} was written in vain", field);
        }
        let mut expected = fields_of(&after);
        expected.extend(unknown);
        prop_assert_eq!(fields, expected);
    }

    #[test]
    fn an_explanation_is_of_lines_without_secrets(record in record(), now in moment()) {
        /// What is shorter may be in any line by chance.
        const SECRET_BYTES: usize = 12;
        let workers = Workers::new(Monotonic::default(), Millis::default());
        let context = Context {
            now,
            floor: 0,
            tuning: &Tuning::default(),
            workers: &workers.at(Monotonic::default()),
            node: &NoIndex,
        };
        let lines = explain(&record, "digest", &[], &|_| "digest".to_owned(), &context);
        let bindings = record.bindings.values();
        let secrets: Vec<&str> = bindings
            .flat_map(|binding| {
                let sessions = [&binding.upstream_session, &binding.previous];
                let sessions = sessions.into_iter().flatten().map(|session| session.as_str());
                sessions.chain([binding.token.as_str()])
            })
            .chain([record.id.as_str()])
            .filter(|secret| secret.len() >= SECRET_BYTES)
            .collect();
        prop_assert!(lines.len() >= 2 + record.bindings.len());
        for line in lines {
            prop_assert!(!line.chars().any(char::is_control), "{:?}", line);
            let told = secrets.iter().find(|secret| line.contains(**secret));
            prop_assert!(told.is_none(), "{:?} tells {:?}", line, told);
        }
    }

    #[test]
    fn what_a_use_writes_fits_any_listpack(record in record()) {
        let longest_worker = record.cleaning.as_ref().and_then(|c| c.worker.as_ref());
        for (field, value) in encode(&record) {
            prop_assert!(field.len() <= LISTPACK_VALUE_BYTES, "the field name {}", field);
            let is_packed = field == "s"
                // Thirteen digits, a space and a name that the caller chose.
                || (field == "z" && longest_worker.is_none_or(|worker| worker.as_str().len() <= 50));
            prop_assert!(!is_packed || value.len() <= LISTPACK_VALUE_BYTES, "{}: {}", field, value);
        }
    }

    #[test]
    fn random_bytes_are_refused_or_read_and_never_panic(
        fields in btree_map(
            prop_oneof![
                vec(any::<u8>(), 0..12),
                "(s|id|p|z|[bkqrml]:[a-c]{0,2})".prop_map(String::into_bytes),
            ],
            prop_oneof![
                vec(any::<u8>(), 0..40),
                "(1 1 )?(active|ended|claimed|bound|-)?( ?[0-9]{1,21}){0,6}( [a-c:-]{1,3}){0,4}".prop_map(String::into_bytes),
            ],
            0..12,
        ),
        value in vec(any::<u8>(), 0..80),
    ) {
        if let Ok(record) = decode(pairs(&fields)) {
            prop_assert_eq!(decode(pairs(&fields_of(&record))), Ok(record));
        }
        match decode_lifetime(&value) {
            Err(CorruptRecord::Newer(version)) => prop_assert!(version > SCHEMA_VERSION),
            Err(corrupt) => prop_assert_eq!(corrupt, named(b"s")),
            Ok(lifetime) => prop_assert_eq!(decode_lifetime(encode_lifetime(&lifetime).as_bytes()), Ok(lifetime)),
        }
        match BindingHead::decode("tools", &value) {
            Err(corrupt) => prop_assert_eq!(corrupt, named(b"b:tools")),
            Ok(head) => {
                let written = head.encode();
                prop_assert_eq!(BindingHead::decode("tools", written.as_bytes()), Ok(head));
            }
        }
    }

    /// One damaged field: the record is refused by that field's name, or it was damaged into another valid value.
    #[test]
    fn a_damaged_field_is_named(
        record in record(),
        which in any::<prop::sample::Index>(),
        garbage in vec(any::<u8>(), 0..30),
    ) {
        let mut fields = fields_of(&record);
        let field = which.get(&fields.keys().cloned().collect::<Vec<_>>()).clone();
        let old = fields.insert(field.clone(), garbage.clone());
        prop_assume!(old != Some(garbage));
        match decode(pairs(&fields)) {
            Ok(read) => prop_assert_ne!(read, record),
            Err(CorruptRecord::Newer(_)) => prop_assert_eq!(field, b"s".to_vec()),
            Err(corrupt) => prop_assert_eq!(corrupt, named(&field)),
        }
    }
}

fn small_record() -> Fields {
    [
        ("s", "1 1 active 1 2 3 4000"),
        ("id", "5 6 s1 abc"),
        ("p", "alice"),
        ("z", "7 w:1"),
        ("l:init", "x"),
        ("b:tools", "claimed 6 1 9 0 a w:1 -"),
        ("k:tools", "t"),
    ]
    .into_iter()
    .map(|(field, value)| (field.into(), value.into()))
    .collect()
}

#[test]
fn every_field_that_must_be_there_is_missed_by_name() {
    assert!(decode(pairs(&small_record())).is_ok());
    for field in ["s", "id", "p", "k:tools"] {
        let mut fields = small_record();
        fields.remove(field.as_bytes());
        assert_eq!(decode(pairs(&fields)), Err(named(field.as_bytes())));
    }
    for field in ["z", "l:init", "b:tools"] {
        let mut fields = small_record();
        fields.remove(field.as_bytes());
        assert!(decode(pairs(&fields)).is_ok(), "{field} may be absent");
    }
}

#[test]
fn every_field_that_does_not_read_is_named() {
    for (field, value) in [
        ("s", ""),
        ("s", "1 1 active 1 2 3"),
        ("s", "1 1 active 1 2 3 4 5"),
        ("s", "1 1 active 1 2 3 4 "),
        ("s", "1 1 expired 1 2 3 4"),
        ("s", "1 1 active 1  2 3 4"),
        ("s", "1 1 active 1 -2 3 4"),
        ("s", "x 1 active 1 2 3 4"),
        ("s", "1 x active 1 2 3 4"),
        ("s", "1 active 1 2 3 4"),
        ("id", ""),
        ("id", "5 6"),
        ("id", "5 6 s1 abc d"),
        ("id", "5 6 s1 "),
        ("id", "5 6  abc"),
        ("id", "5 6 s/1"),
        ("id", "05 6 s1"),
        ("id", "18446744073709551616 6 s1"),
        ("id", "5 six s1"),
        ("p", "*"),
        ("p", ""),
        ("m:tools", "http://gone/"),
        ("m:tools", "6"),
        ("z", "7"),
        ("z", "7 "),
        ("z", "w:1 7"),
        ("z", "7 w 1"),
        ("l:init", "a\nb"),
        ("l:a b", "x"),
        ("b:tools", "bound 6 1 0 0 a w:1"),
        ("b:tools", "bound 6 1 0 a w:1 -"),
        ("b:tools", "bound 6 1 2 0 a w:1 -"),
        ("b:tools", "bound 6 1 0 0 0 a w:1 - u 7"),
        ("b:tools", "orphaned 6 1 0 0 a w:1 -"),
        ("b:tools", "bound 6 1 0 0  w:1 -"),
        ("b:tools", "bound 6 1 0 0 a  w:1 -"),
        ("b:tools", "bound 6 1 0 0 a - -"),
        ("b:tools", "bound 6 1 0 0 a \u{e9} -"),
        ("b:tools", "bound 6 1 0 0 a w:1 - "),
        ("b:tools", "bound 6 1 0 0 a w:1 -\t"),
        ("b:tools", " bound 6 1 0 0 a w:1 -"),
        ("k:tools", ""),
        ("q:tools", " "),
        ("r:tools", "\u{7}"),
    ] {
        let mut fields = small_record();
        fields.insert(field.into(), value.into());
        assert_eq!(
            decode(pairs(&fields)),
            Err(named(field.as_bytes())),
            "{field}: {value:?}"
        );
    }
}

/// What may be absent: the owner has a word that is no worker's, and the upstream session stands last.
#[test]
fn an_owner_and_an_upstream_session_may_be_absent() {
    for (names, owner, upstream_session) in [
        ("a w:1 -", None, None),
        ("a w:1 - -", None, Some("-")),
        ("a w:1 v:2", Some("v:2"), None),
        ("a w:1 v:2 u", Some("v:2"), Some("u")),
    ] {
        let value = format!("bound 6 1 0 0 {names}");
        let head = BindingHead::decode("tools", value.as_bytes()).unwrap();
        assert_eq!((head.instance, head.driver), ("a", "w:1"), "{names}");
        assert_eq!(
            (head.owner, head.upstream_session),
            (owner, upstream_session),
            "{names}"
        );
        assert_eq!(head.encode(), value);
        let mut fields = small_record();
        fields.insert("b:tools".into(), value.into());
        let read = decode(pairs(&fields)).unwrap();
        assert_eq!(fields_of(&read), fields);
    }
}

/// Redis finds a field by looking through those before it.
#[test]
fn what_a_use_reads_stands_first() {
    let record = decode(pairs(&small_record())).unwrap();
    let fields = encode(&record);
    let names: Vec<_> = fields.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(names, ["s", "p", "id", "z", "l:init", "b:tools", "k:tools"]);
}

/// A module that does not know the field leaves it behind with another epoch, or without a binding; it reads the head.
#[test]
fn a_loss_to_report_is_of_its_epoch_and_binding_alone() {
    let loss = |fields: &Fields| {
        let record = decode(pairs(fields)).unwrap();
        let binding = record.bindings.get(&server("tools"));
        binding.and_then(|binding| binding.unreported_loss.clone())
    };
    let mut fields = small_record();
    fields.insert("m:tools".into(), "6 http://gone/".into());
    let read = decode(pairs(&fields)).unwrap();
    assert_eq!(loss(&fields).unwrap().as_str(), "http://gone/");
    assert_eq!(fields_of(&read), fields);

    fields.insert("b:tools".into(), "bound 6 1 1 0 a w:1 -".into());
    assert!(loss(&fields).is_some());
    for (numbers, has_unreported_loss) in [
        ("bound 6 1 1 0", true),
        ("bound 6 1 0 0", false),
        ("claimed 6 1 1 0", false),
    ] {
        let value = format!("{numbers} a w:1 -");
        let head = BindingHead::decode("tools", value.as_bytes()).unwrap();
        assert_eq!(head.has_unreported_loss, has_unreported_loss, "{numbers}");
    }

    fields.insert("m:tools".into(), "5 http://gone/".into());
    assert_eq!(loss(&fields), None);
    let read = decode(pairs(&fields)).unwrap();
    assert_eq!(changes(pairs(&fields), &read).delete, ["m:tools"]);
    for field in ["b:tools", "k:tools"] {
        fields.remove(field.as_bytes());
    }
    assert_eq!(loss(&fields), None);
}

/// A module that drops a binding and does not know a letter leaves its field behind.
#[test]
fn what_is_left_of_a_dropped_binding_has_no_value_and_goes_with_the_next_write() {
    let sound = decode(pairs(&small_record())).unwrap();
    for letter in ["k", "q", "r", "m"] {
        let field = format!("{letter}:other");
        let mut fields = small_record();
        fields.insert(field.clone().into(), b"x".to_vec());
        assert_eq!(decode(pairs(&fields)).as_ref(), Ok(&sound), "{letter}");
        assert_eq!(changes(pairs(&fields), &sound).delete, [field]);
    }
}

/// A record says itself which versions understand it, and goes on saying so when an older one has written it.
#[test]
fn a_record_of_a_newer_version_is_refused_only_where_that_says_so() {
    let newer = SCHEMA_VERSION + 1;
    let mut fields = small_record();
    fields.insert(b"s".to_vec(), format!("{newer} {newer} whatever").into());
    assert_eq!(decode(pairs(&fields)), Err(CorruptRecord::Newer(newer)));

    let times = "active 1 2 3 4000";
    fields.insert(
        b"s".to_vec(),
        format!("{newer} {SCHEMA_VERSION} {times}").into(),
    );
    fields.insert(b"n:tools".to_vec(), b"of the newer version".to_vec());
    let read = decode(pairs(&fields)).unwrap();
    assert_eq!(read, decode(pairs(&small_record())).unwrap());
    let changes = changes(pairs(&fields), &read);
    let ours = format!("{SCHEMA_VERSION} {SCHEMA_VERSION} {times}");
    assert_eq!(changes.set, [("s".to_owned(), ours)]);
    assert!(changes.delete.is_empty(), "{changes:?}");

    let lifetime = SessionLifetime {
        least_reader: newer,
        ..read.lifetime
    };
    let written = encode_lifetime(&lifetime);
    assert_eq!(
        decode_lifetime(written.as_bytes()),
        Err(CorruptRecord::Newer(newer))
    );
}

#[test]
fn a_corrupt_field_is_shown_as_text_whatever_its_bytes() {
    let corrupt = named(b"l:\xff\n");
    assert_eq!(corrupt.to_string(), r"corrupt session record: l:\xff\n");
}

#[test]
fn the_longest_values_fit_a_listpack() {
    let longest = Timestamp::from_unix_ms(9_999_999_999_999);
    let lifetime = SessionLifetime {
        least_reader: LEAST_READER,
        lifecycle: Lifecycle::Active,
        created_at: longest,
        last_used_at: longest,
        expires_at: longest,
        ttl: TTL_MAX,
    };
    let value = encode_lifetime(&lifetime);
    assert!(value.len() <= LISTPACK_VALUE_BYTES, "{value}");
    assert_eq!(decode_lifetime(value.as_bytes()), Ok(lifetime));
}

/// Records as `redis-cli HGETALL` prints them, in a folder for each schema version. Every version is read; what this
/// version writes is there byte for byte.
#[test]
fn every_version_of_the_layout_is_read_as_it_was_written() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut files = 0;
    for version in 1..=SCHEMA_VERSION {
        for file in root.join(format!("v{version}")).read_dir().unwrap() {
            let path = file.unwrap().path();
            let dump = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = dump.lines().collect();
            let stored: Vec<(&str, &str)> =
                lines.chunks(2).map(|pair| (pair[0], pair[1])).collect();
            let bytes = stored
                .iter()
                .map(|(field, value)| (field.as_bytes(), value.as_bytes()));
            let record = decode(bytes).unwrap_or_else(|corrupt| panic!("{path:?}: {corrupt}"));
            let written = encode(&record);
            let again: Vec<_> = (written.iter())
                .map(|(field, value)| (field.as_str(), value.as_str()))
                .collect();
            if version == SCHEMA_VERSION {
                assert_eq!(again, stored, "{path:?}");
            }
            let again = again
                .iter()
                .map(|(field, value)| (field.as_bytes(), value.as_bytes()));
            assert_eq!(decode(again), Ok(record), "{path:?}");
            files += 1;
        }
    }
    assert!(files >= 9, "{files} files");
}
