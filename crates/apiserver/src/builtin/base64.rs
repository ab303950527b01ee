//! Bytes as Kubernetes writes them: standard base64 with padding.
use serde_json::Value;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes as base64.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= chunk.len() { digit as char } else { '=' });
        }
    }
    text
}

/// The bytes of a text, or the place of the first byte that does not belong there. Line breaks are skipped, as Go does.
pub fn decode(text: &str) -> Result<Vec<u8>, usize> {
    let mut input = text.bytes().enumerate().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n'));
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    loop {
        let (mut bits, mut digits) = (0, 0);
        while digits < 4 {
            match input.next() {
                None if digits == 0 => return Ok(bytes),
                // Go names the start of the group that is cut short.
                None => return Err(text.len() - digits),
                Some((_, byte)) if digit(byte).is_some() => {
                    bits = bits << 6 | digit(byte).unwrap_or_default();
                    digits += 1;
                }
                Some((at, b'=')) => return padded(bytes, bits, digits, at, input, text.len()),
                Some((at, _)) => return Err(at),
            }
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..]);
    }
}

/// The end of a text, from its first padding on.
fn padded(
    mut bytes: Vec<u8>,
    bits: u32,
    digits: usize,
    at: usize,
    mut rest: impl Iterator<Item = (usize, u8)>,
    end: usize,
) -> Result<Vec<u8>, usize> {
    let second = |rest: &mut dyn Iterator<Item = (usize, u8)>| match rest.next() {
        None => Err(end),
        Some((_, b'=')) => Ok(()),
        Some((at, _)) => Err(at),
    };
    match digits {
        2 => second(&mut rest)?,
        3 => {}
        _ => return Err(at),
    }
    if let Some((at, _)) = rest.next() {
        return Err(at);
    }
    let whole = bits << (6 * (4 - digits));
    bytes.extend_from_slice(&whole.to_be_bytes()[1..digits]);
    Ok(bytes)
}

fn digit(byte: u8) -> Option<u32> {
    ALPHABET.iter().position(|a| *a == byte).and_then(|at| u32::try_from(at).ok())
}

/// Base64 as the server prints it again.
pub fn canonical(value: &Value) -> Result<Value, String> {
    let bytes = decode(value.as_str().unwrap_or_default());
    bytes
        .map(|bytes| Value::from(encode(&bytes)))
        .map_err(|at| format!("illegal base64 data at input byte {at}"))
}
