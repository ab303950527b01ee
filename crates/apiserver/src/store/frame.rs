//! Frames: how bytes are laid out in a file so that damage shows.
//!
//! A file is a header and then frames, one per batch. A frame says how long it is under a checksum of its own, so that
//! a flipped bit in a length cannot pass for a write that was cut short, and both of its ends have bits in every byte,
//! so that a flipped bit cannot pass for a sector that was never written.

const MARK: [u8; 4] = [0xa5, 0x5e, 0x67, 0xe5];
const END: u8 = 0xa5;
const HEAD: usize = 16;
/// What a disk writes as a whole.
const SECTOR: usize = 512;

pub(super) const FILE_HEAD: usize = 24;
const VERSION: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Log,
    Snapshot,
}

impl Kind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Log => b"SEGUELOG",
            Self::Snapshot => b"SEGUESNP",
        }
    }
}

/// The first bytes of a file. The revision is that of the snapshot, or the first that a log may hold.
pub(super) fn file_head(kind: Kind, revision: u64) -> Vec<u8> {
    let mut head = Vec::with_capacity(FILE_HEAD);
    head.extend_from_slice(kind.magic());
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&revision.to_le_bytes());
    let sum = crc32fast::hash(&head);
    head.extend_from_slice(&sum.to_le_bytes());
    head
}

pub(super) enum BadHead {
    Damaged(&'static str),
    Version(u32),
}

/// Files get their name once their head is durable: a head that is cut short is damage.
pub(super) fn check_file_head(file: &[u8], kind: Kind, revision: u64) -> Result<(), BadHead> {
    let Some((head, sum)) = file.get(..FILE_HEAD).map(|head| head.split_at(FILE_HEAD - 4)) else {
        return Err(BadHead::Damaged("the head is cut short"));
    };
    if !head.starts_with(kind.magic()) {
        return Err(BadHead::Damaged("it does not begin like a file of this store"));
    }
    if crc32fast::hash(head) != number(sum) {
        return Err(BadHead::Damaged("the checksum of the head does not match"));
    }
    if number(&head[8..12]) != VERSION {
        return Err(BadHead::Version(number(&head[8..12])));
    }
    if head[12..20] != revision.to_le_bytes() {
        return Err(BadHead::Damaged("the head and the name differ in the revision"));
    }
    Ok(())
}

/// Builds one frame in place: the payload is written once, behind the room for its head.
pub(super) struct Frame(Vec<u8>);

impl Frame {
    pub(super) fn new() -> Self {
        Self(vec![0; HEAD])
    }

    pub(super) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.push(END);
        let (head, payload) = self.0.split_at_mut(HEAD);
        let length = u32::try_from(payload.len()).expect("should fit: batches are bounded far below 4 GiB");
        head[..4].copy_from_slice(&MARK);
        head[4..8].copy_from_slice(&length.to_le_bytes());
        head[8..12].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
        let sum = crc32fast::hash(&head[..12]);
        head[12..].copy_from_slice(&sum.to_le_bytes());
        self.0
    }
}

/// What is at an offset of a file.
pub(super) enum Next<'file> {
    /// A payload, and where the frame after it is.
    Frame(&'file [u8], usize),
    End,
    /// The last write did not reach the disk as a whole, so it was never acknowledged.
    Torn,
    Damaged(&'static str),
}

pub(super) fn next(file: &[u8], offset: usize) -> Next<'_> {
    let rest = &file[offset..];
    if rest.is_empty() {
        return Next::End;
    }
    if rest.len() < HEAD {
        return Next::Torn;
    }
    let Some(length) = length(rest) else {
        let torn = misses_a_sector(file, offset, offset + HEAD) && !frame_after(file, offset);
        return if torn {
            Next::Torn
        } else {
            Next::Damaged("the checksum of a frame's head does not match")
        };
    };
    let end = offset + HEAD + length;
    if end > file.len() {
        return Next::Torn;
    }
    if let Some(payload) = intact(rest) {
        return Next::Frame(payload, end);
    }
    // Frames are synced one by one: only the last can be torn.
    let torn = end == file.len() && misses_a_sector(file, offset, end);
    if torn { Next::Torn } else { Next::Damaged("the checksum of a frame does not match") }
}

/// The length of the payload, if the head of the frame is whole.
fn length(rest: &[u8]) -> Option<usize> {
    let head = rest.get(..HEAD)?;
    let whole = head.starts_with(&MARK) && crc32fast::hash(&head[..12]) == number(&head[12..]);
    whole.then(|| number(&head[4..8]) as usize)
}

fn intact(rest: &[u8]) -> Option<&[u8]> {
    let payload = rest.get(HEAD..HEAD + length(rest)?)?;
    let (end, records) = payload.split_last()?;
    (crc32fast::hash(payload) == number(&rest[8..12]) && *end == END).then_some(records)
}

/// etcd's rule: a write that reached the disk only in part leaves a sector that is all zeros. What this writes never
/// has one.
fn misses_a_sector(file: &[u8], from: usize, to: usize) -> bool {
    let mut start = from;
    while start < to {
        let end = to.min((start / SECTOR + 1) * SECTOR);
        if file[start..end].iter().all(|byte| *byte == 0) {
            return true;
        }
        start = end;
    }
    false
}

/// Whether anything was written after the frame at this offset: then that frame had been synced.
fn frame_after(file: &[u8], offset: usize) -> bool {
    (offset + 1..file.len()).any(|at| intact(&file[at..]).is_some())
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| (number << 8) | u32::from(*byte))
}
