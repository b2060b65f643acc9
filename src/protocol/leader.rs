//! The content of a leadership's value (P36): its token, and who leads.

use crate::protocol::fencing::FencingToken;
use crate::protocol::value::Value;

/// Before the token in the label of a leader's value.
const MARK: &str = "leader";

/// The most bytes that `info` may take in a value, where `%` and `:` take three.
pub const MAX_LEADER_INFO: usize = 1024;

/// The label of a value whose client leads under this token.
///
/// The value carries the token, as the one that instances store may be that of a campaign that was refused.
pub fn leader_label(token: FencingToken, info: &str) -> String {
    format!("{MARK} {token} {info}")
}

/// The token and the info in the value of a leader; `None` for the value of any other lock.
pub fn read_leader(value: &[u8]) -> Option<(FencingToken, String)> {
    let label = Value::label(value)?;
    let (token, info) = label.strip_prefix(MARK)?.strip_prefix(' ')?.split_once(' ')?;
    Some((FencingToken::from_number(token.parse().ok()?)?, info.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    proptest! {
        #[test]
        fn token_and_info_come_back(token in 1_u64..1 << 63, info in ".*") {
            let token = FencingToken::from_number(token).unwrap();
            let value = Value::new("", Uuid::nil(), &leader_label(token, &info));
            prop_assert_eq!(read_leader(value.as_bytes()), Some((token, info)));
        }

        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            prop_assert!(read_leader(&bytes).is_none());
        }
    }

    #[test]
    fn the_value_of_a_lock_names_no_leader() {
        for label in ["host/1", "leader", "leader 7", "leader x y", "leader 0 a", "leaders 7 a"] {
            assert_eq!(read_leader(Value::new("", Uuid::nil(), label).as_bytes()), None, "{label}");
        }
    }
}
