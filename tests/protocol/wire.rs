//! What is stored and published, as recorded bytes (`docs/wire.md`). Clients of different releases hold locks beside each
//! other: a change here is a change of what they agreed on.

use redquorum::testing::protocol::{
    Access, AdmissionRecord, ClientId, CurrentHolder, FencingToken, Message, ProcessIdentity, RecordOrigin, Value,
    Waiter, leader_label, read_leader,
};
use uuid::Uuid;

const PAGE: &str = include_str!("../../docs/wire.md");

fn client() -> ClientId {
    ClientId::new([0x01, 0xab, 0xff, 0x00, 0x9a, 0x10])
}

fn id(last: u128) -> Uuid {
    Uuid::from_u128(0x01ab_ff00_9a10_4000_8000_0000_0000_0000 + last)
}

#[test]
fn values_are_as_recorded() {
    for (holder, label, last, recorded) in [
        ("", "web-3/4711", 1, ":01abff009a1040008000000000000001:web-3/4711"),
        ("request-8f3c", "web-3/4711", 2, "request-8f3c:01abff009a1040008000000000000002:web-3/4711"),
        ("deploy:7 100%", "", 3, "deploy%3A7 100%25:01abff009a1040008000000000000003:"),
    ] {
        assert_eq!(Value::new(holder, id(last), label).as_bytes(), recorded.as_bytes());
        let read = CurrentHolder::from_value(recorded.as_bytes());
        assert_eq!((read.holder.unwrap_or_default(), read.label.unwrap_or_default()), (holder.into(), label.into()));
        assert_eq!(read.client.as_deref(), Some("01abff009a10"));
        assert!(PAGE.contains(recorded), "{recorded}");
    }
}

#[test]
fn a_leaders_value_is_as_recorded() {
    let token = FencingToken::from_number(244_395_247_974_068_224).unwrap();
    let recorded = ":01abff009a1040008000000000000004:leader 244395247974068224 10.0.0.7%3A8080";
    let value = Value::new("", id(4), &leader_label(token, "10.0.0.7:8080"));
    assert_eq!(value.as_bytes(), recorded.as_bytes());
    assert_eq!(read_leader(recorded.as_bytes()), Some((token, "10.0.0.7:8080".to_owned())));
    assert!(PAGE.contains(recorded));
}

#[test]
fn a_channel_is_as_recorded() {
    assert_eq!(client().channel(), "redquorum:wake:01abff009a10");
}

#[test]
fn an_admission_record_is_as_recorded() {
    let common = "5f0c8a9be07d1c24/9e107d9d372bb682 1764072000000 10000 waits 1764071990000";
    let identity =
        ProcessIdentity::new("5f0c8a9be07d1c2433a8fd0a42d5a4c9a17a8a0b", "9e107d9d372bb6826bd81d3542a419d6f15d1d16");
    let usual = AdmissionRecord {
        identity,
        vote_from_ms: 1_764_072_000_000,
        longest_ttl_ms: 10_000,
        origin: RecordOrigin::Waits,
        order: 1_764_071_990_000,
    };
    assert_eq!(usual.to_wire(), common);
    assert_eq!(AdmissionRecord::from_wire(common.as_bytes()), Some(usual));
    assert!(PAGE.contains(&format!("\n{common}\n")));
}

#[test]
fn tokens_are_stored_as_recorded() {
    // 2025-01-01 and 59 788 800.123456 s later.
    let token = FencingToken::propose(1_735_689_600_000_000 + 59_788_800_123_456, None);
    assert_eq!((token.get(), token.to_wire().as_str()), (59_788_800_123_456 * 4096, "59788800123456"));
    assert_eq!(FencingToken::from_score(59_788_800_123_456.0), Some(token));
    assert_eq!(token.next_grant().to_wire(), "59788800123457");
    assert!(PAGE.contains("59788800123456"));
}

#[test]
fn messages_are_as_recorded() {
    let key = b"orders:42".to_vec();
    let first = Waiter { ticket: 0x0006_4d0c_1e2b_3c44, client: client(), access: Access::Write };
    let other = ClientId::new([0x02, 0xcd, 0x00, 0xaa, 0x55, 0xf0]);
    let second = Waiter { ticket: 0x0006_4d0c_1e2b_3c45, client: other, access: Access::Read };
    let waiting = |forwarded| Message::Waiting {
        waiter: Waiter { ticket: 0x0006_52b0_c8a1_f000, client: client(), access: Access::Write },
        forwarded,
        key: key.clone(),
    };
    for (message, recorded, is_shown) in [
        (waiting(false), "w01000652b0c8a1f00001abff009a10w0009orders:42", true),
        (waiting(true), "f01000652b0c8a1f00001abff009a10w0009orders:42", false),
        (Message::Next { access: Access::Write, then: vec![], key: key.clone() }, "n000009orders:42", false),
        (Message::Next { access: Access::Read, then: vec![], key: key.clone() }, "r000009orders:42", true),
        (
            Message::Next { access: Access::Write, then: vec![first, second], key: key.clone() },
            "n0200064d0c1e2b3c4401abff009a10w00064d0c1e2b3c4502cd00aa55f0r0009orders:42",
            true,
        ),
    ] {
        assert_eq!(message.to_wire().as_deref(), Some(recorded.as_bytes()));
        assert_eq!(Message::from_wire(recorded.as_bytes()), Some(message));
        assert!(!is_shown || PAGE.contains(recorded), "{recorded}");
    }
}
