//! The forms of rewritten ids; only the gateway's own forms are restored.

use proptest::prelude::*;

use super::{id_json, respell};
use crate::ids::{
    Epoch, ID_BYTES_MAX, Id, Lane, Owner, RequestOrigin, RewrittenId, Seal, ServerRequestId,
    WIRE_ID_BYTES_MAX, gateway_id,
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
    let client = Owner::Client(None);
    assert_eq!(wrapped(client, "7"), r#""c:7""#);
    assert_eq!(wrapped(client, r#""a""#), r#""c:\"a\"""#);
    assert_eq!(wrapped(client, r#""\u0041\"""#), r#""c:\"\\u0041\\\"\"""#);
    let pooled = Owner::Client(Some(Lane(10)));
    assert_eq!(wrapped(pooled, "-7"), r#""c@10:-7""#);
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
        r#""c@:1""#,
        r#""c@01:1""#,
        r#""c@+1:1""#,
        r#""c@1""#,
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
        Owner::Client(Some(Lane(u64::MAX))),
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
        lane in prop::option::of(any::<u64>()),
        how in 0..3_usize,
    ) {
        let lane = lane.map(Lane);
        let wire = respell(&wrapped(Owner::Client(lane), &id), how);
        let expected = RequestOrigin::Client { id: id.as_str().into(), lane };
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
