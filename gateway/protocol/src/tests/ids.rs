//! The forms of rewritten ids; only the gateway's own forms are restored.

use proptest::prelude::*;

use super::{id_json, respell};
use crate::ids::{
    Epoch, ID_BYTES_MAX, Id, Owner, RequestOrigin, RequestTag, RewrittenId, Seal, ServerRequestId,
    WIRE_ID_BYTES_MAX, gateway_id, is_same_id, tagged_id,
};

fn wrapped(owner: Owner, id: &str) -> String {
    let wrapped = RewrittenId {
        owner,
        id: Id::from_json(id).unwrap(),
    };
    let mut out = String::new();
    wrapped.write(&mut out);
    assert_eq!(out.len(), wrapped.len(), "{out}");
    out
}

#[test]
fn the_forms_are_those_of_the_table() {
    let untagged = Owner::Client(None);
    assert_eq!(wrapped(untagged, "7"), r#""c::7""#);
    assert_eq!(wrapped(untagged, r#""a""#), r#""c::\"a\"""#);
    assert_eq!(
        wrapped(untagged, r#""\u0041\"""#),
        r#""c::\"\\u0041\\\"\"""#
    );
    let tagged = Owner::Client(Some(RequestTag(10)));
    let form = r#""c:0000000000000000000000000000000a:-7""#;
    assert_eq!(wrapped(tagged, "-7"), form);
    assert_eq!(
        tagged_id(RequestTag(10), Id::from_json("-7").unwrap()),
        form
    );
    let server = Owner::Server(Epoch(u64::MAX), None);
    assert_eq!(wrapped(server, "0"), r#""s:18446744073709551615:0""#);
    let sealed = Owner::Server(Epoch(3), Some(Seal(10)));
    let form = r#""s:3.0000000000000000000000000000000a:7""#;
    assert_eq!(wrapped(sealed, "7"), form);
    assert_eq!(gateway_id("01J-boot", 3).unwrap(), r#""01J-boot:3""#);
}

#[test]
fn only_the_gateways_forms_are_restored() {
    for raw in [
        "7",
        "null",
        "1.5",
        "{}",
        r#""""#,
        r#""c""#,
        r#""c:""#,
        r#""c:x""#,
        r#""c:1.0""#,
        r#""c:null""#,
        r#""c:\"a""#,
        r#""c:1 ""#,
        r#""c:1""#,
        r#""c:\"a\"""#,
        r#""c::""#,
        r#""c:::1""#,
        r#""c:0000000000000000000000000000000a""#,
        r#""c:0000000000000000000000000000000a:""#,
        r#""c:000000000000000000000000000000a:1""#,
        r#""c:00000000000000000000000000000000a:1""#,
        r#""c:0000000000000000000000000000000A:1""#,
        r#""c@1:1""#,
        r#""s:1:1""#,
        r#""x:1""#,
        r#""boot:""#,
        r#""boot:x""#,
        r#""boot:+1""#,
        r#""bo ot:1""#,
    ] {
        assert_eq!(
            RequestOrigin::of_value(raw),
            RequestOrigin::Foreign,
            "{raw}"
        );
    }
    for raw in [
        "7",
        r#""s:1""#,
        r#""s:1:""#,
        r#""s:x:1""#,
        r#""s:01:1""#,
        r#""s:1:1.0""#,
        r#""s::1""#,
        r#""c:1""#,
        r#""s:18446744073709551616:1""#,
        r#""s:1:{}""#,
        r#""s:1.:1""#,
        r#""s:1.a:1""#,
        r#""s:1.0000000000000000000000000000000A:1""#,
        r#""s:1.000000000000000000000000000000000:1""#,
        r#""s:.0000000000000000000000000000000a:1""#,
    ] {
        assert_eq!(ServerRequestId::of_value(raw), None, "{raw}");
    }
}

#[test]
fn ids_are_the_same_by_value() {
    for (one, other, same) in [
        ("7", "7", true),
        ("7", "\"7\"", false),
        ("\"A\"", r#""\u0041""#, true),
        ("\"A\"", "\"a\"", false),
        ("null", "\"null\"", false),
    ] {
        assert_eq!(is_same_id(one, other), same, "{one} {other}");
    }
}

#[test]
fn boot_ids_cannot_be_mistaken_for_prefixes() {
    for boot in ["", "c", "s", "a:b", "c@1", "a\"b", "ä1", &"x".repeat(129)] {
        assert_eq!(gateway_id(boot, 1), None, "{boot}");
    }
}

#[test]
fn the_longest_id_fits_the_wire_limit_in_its_longest_spelling() {
    let id = format!("\"{}\"", r"\\".repeat(ID_BYTES_MAX / 2 - 1));
    assert_eq!(id.len(), ID_BYTES_MAX);
    for owner in [
        Owner::Client(Some(RequestTag(u128::MAX))),
        Owner::Server(Epoch(u64::MAX), Some(Seal(u128::MAX))),
    ] {
        let longest = respell(&wrapped(owner, &id), 2);
        assert!(longest.len() <= WIRE_ID_BYTES_MAX, "{}", longest.len());
    }
}

proptest! {
    #[test]
    fn client_ids_round_trip(
        id in id_json(),
        tag in prop::option::of(any::<u128>()),
        how in 0..3_usize,
    ) {
        let tag = tag.map(RequestTag);
        let sent = wrapped(Owner::Client(tag), &id);
        let wire = respell(&sent, how);
        prop_assert!(is_same_id(&sent, &wire));
        let expected = RequestOrigin::Client { id: id.as_str().into(), tag };
        prop_assert_eq!(RequestOrigin::of_value(&wire), expected);
        prop_assert_eq!(ServerRequestId::of_value(&wire), None);
    }

    #[test]
    fn server_ids_round_trip(id in id_json(), epoch in any::<u64>(), seal in any::<Option<u128>>(), how in 0..3_usize) {
        let (epoch, seal) = (Epoch(epoch), seal.map(Seal));
        let wire = respell(&wrapped(Owner::Server(epoch, seal), &id), how);
        let expected = ServerRequestId { epoch, id: id.as_str().into(), seal };
        prop_assert_eq!(ServerRequestId::of_value(&wire), Some(expected));
        prop_assert_eq!(RequestOrigin::of_value(&wire), RequestOrigin::Foreign);
    }

    #[test]
    fn gateway_ids_are_recognized(boot in "[A-Za-z0-9._-]{2,40}", sequence in any::<u64>(), how in 0..3_usize) {
        let wire = respell(&gateway_id(&boot, sequence).unwrap(), how);
        let expected = RequestOrigin::Gateway { boot: boot.as_str().into(), sequence };
        prop_assert_eq!(RequestOrigin::of_value(&wire), expected);
    }
}

#[test]
fn a_seal_has_one_spelling() {
    let text = "00112233445566778899aabbccddeeff";
    let Seal(seal) = Seal::parse(text).unwrap();
    assert_eq!(format!("{seal:032x}"), text);
    for other in [
        "",
        "00112233445566778899aabbccddeef",
        "00112233445566778899aabbccddeeff0",
        "00112233445566778899AABBCCDDEEFF",
        "+0112233445566778899aabbccddeeff",
        " 0112233445566778899aabbccddeeff",
        "g0112233445566778899aabbccddeeff",
    ] {
        assert_eq!(Seal::parse(other), None, "{other}");
    }
}
