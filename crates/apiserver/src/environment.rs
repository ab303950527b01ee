//! The source of time, uids and generated names. The server takes it as an argument, so that a test can repeat a run.
use std::{fmt, sync::Mutex};

use jiff::{SignedDuration, Timestamp};

/// The inputs of a server that are not deterministic: the clock and random numbers.
pub trait Environment: fmt::Debug + Send + Sync + 'static {
    fn now(&self) -> Timestamp;

    /// Sixteen random bytes, unique to this call.
    fn uid(&self) -> [u8; 16];

    /// The five characters after a `generateName`.
    fn suffix(&self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        self.uid()[..5].iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
    }
}

/// The system's clock and random numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEnvironment;

impl Environment for SystemEnvironment {
    #[expect(clippy::disallowed_methods, reason = "the one place where the server's time comes from")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn uid(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        // The same source that makes its keys; it cannot fail on a system that has TLS.
        let random = rustls::crypto::ring::default_provider().secure_random;
        random.fill(&mut bytes).expect("should have random numbers: every supported system provides them");
        bytes
    }
}

/// A deterministic environment: the same seed gives the same sequence of bytes. Its time is `start` plus the elapsed
/// time of the tokio clock, so tests can pause it.
#[derive(Debug)]
pub struct SeededEnvironment {
    start: Timestamp,
    began: tokio::time::Instant,
    state: Mutex<u64>,
}

impl SeededEnvironment {
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(seed: u64, start: Timestamp) -> Self {
        Self { start, began: tokio::time::Instant::now(), state: Mutex::new(seed) }
    }
}

impl Environment for SeededEnvironment {
    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.began.elapsed()).unwrap_or_default();
        self.start.checked_add(elapsed).unwrap_or(self.start)
    }

    /// `SplitMix64`: short, and good enough for names.
    fn uid(&self) -> [u8; 16] {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut next = || {
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = *state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&next().to_le_bytes());
        bytes[8..].copy_from_slice(&next().to_le_bytes());
        bytes
    }
}

/// A uid as Kubernetes writes it.
pub fn uid(environment: &dyn Environment) -> String {
    let mut bytes = environment.uid();
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = hex(&bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// A time as Kubernetes writes it: UTC, whole seconds.
pub fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
