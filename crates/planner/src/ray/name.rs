//! Names of pods: a function of the cluster, the place and the incarnation, so that asking twice makes one pod.

use super::types::Spec;
use crate::Uid;

/// What is left of 63 characters, the length of a host name, for the part that people read: a dash, eight digits of
/// hash and three numbers go behind it.
const READABLE: usize = 32;

/// The same for every head of a cluster: there is never more than one.
pub(super) fn head(spec: &Spec) -> String {
    stem(spec, "head", 0)
}

pub(super) fn worker(spec: &Spec, group: &str, replica: u32, host: u32, incarnation: u32) -> String {
    format!("{}-{replica}-{host}-{incarnation}", stem(spec, group, 1))
}

/// The hash keeps cluster `a` with group `b-c` from cluster `a-b` with group `c`, a cluster from its namesake that was
/// deleted a moment ago, and the head from a group called `head`.
fn stem(spec: &Spec, part: &str, kind: u8) -> String {
    let Uid(uid) = &spec.uid;
    // Groups may have capitals, and names of pods may not.
    let readable: String = format!("{}-{part}", spec.name).to_lowercase().chars().take(READABLE).collect();
    let hash = fnv(uid.bytes().chain([0, kind]).chain(part.bytes()));
    format!("{}-{hash:08x}", readable.trim_end_matches('-'))
}

/// FNV-1a. It must give the same number for ever, which the standard library's hash does not promise.
fn fnv(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
