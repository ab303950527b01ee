//! Short names for contents.

use ring::digest::SHA1_FOR_LEGACY_USE_ONLY;
use serde_json::Value;

/// No vowels and no digits that look like one, so that no hash is a word.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A digest of eight characters: 27^8 are enough that the versions of a service do not meet, and where two did, what
/// they are made of is compared.
pub fn digest(value: &Value) -> String {
    let mut hash = fnv1(value.to_string().as_bytes());
    let mut text = String::with_capacity(8);
    for _ in 0..8 {
        text.push(char::from(ALPHABET[usize::try_from(hash % 27).unwrap_or(0)]));
        hash /= 27;
    }
    text
}

/// The SHA-1 of a text in hexadecimal digits, which the contract of group keys asks for.
pub(crate) fn sha1(text: &str) -> String {
    let hash = ring::digest::digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    hash.as_ref().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// FNV-1 of 64 bits: the same on every machine and in every version of ours, which the hashes of the library are not.
fn fnv1(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(*byte)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_digest_is_for_ever() {
        assert_eq!(digest(&json!({"a": 1, "b": [true, null]})), digest(&json!({"b": [true, null], "a": 1})));
        assert_ne!(digest(&json!({"a": 1})), digest(&json!({"a": 2})));
        // A change here would be a new version of every service that runs.
        assert_eq!(digest(&json!({"image": "model:1"})), "ctgz84f8");
    }
}
