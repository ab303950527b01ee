//! Allocation of pod addresses. Every address of 127.0.0.0/8 works on Linux without configuration.
use std::{collections::BTreeSet, net::Ipv4Addr};

/// The address of the node, `status.hostIP`.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A range of IPv4 addresses, as address and prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub first: Ipv4Addr,
    pub prefix: u8,
}

impl Default for Range {
    /// 127.64.0.0/10: far from 127.0.0.1 and from what resolvers use.
    fn default() -> Self {
        Self { first: Ipv4Addr::new(127, 64, 0, 0), prefix: 10 }
    }
}

/// The allocated addresses. A released address is allocated again as late as possible, because clients may still
/// send to it.
#[derive(Debug)]
pub(crate) struct Pool {
    range: Range,
    next: u32,
    taken: BTreeSet<Ipv4Addr>,
}

impl Pool {
    pub fn new(range: Range) -> Self {
        Self { range, next: 1, taken: BTreeSet::new() }
    }

    /// The number of addresses that can be allocated: all but the first and the last.
    fn size(&self) -> u32 {
        1_u32.checked_shl(32 - u32::from(self.range.prefix.min(32))).unwrap_or(u32::MAX).saturating_sub(2)
    }

    fn holds(&self, address: Ipv4Addr) -> bool {
        let offset = u32::from(address).checked_sub(u32::from(self.range.first));
        offset.is_some_and(|offset| (1..=self.size()).contains(&offset))
    }

    /// Returns the address that the pod had, if it is free, or a new one.
    pub fn take(&mut self, had: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        if let Some(had) = had.filter(|had| self.holds(*had))
            && self.taken.insert(had)
        {
            let offset = u32::from(had) - u32::from(self.range.first);
            self.next = self.next.max(offset + 1);
            return Some(had);
        }
        for _ in 0..self.size() {
            if self.next > self.size() {
                self.next = 1;
            }
            let address = Ipv4Addr::from(u32::from(self.range.first) + self.next);
            self.next += 1;
            if self.taken.insert(address) {
                return Some(address);
            }
        }
        None
    }

    pub fn give_back(&mut self, address: Ipv4Addr) {
        self.taken.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Pool {
        Pool::new(Range { first: Ipv4Addr::new(127, 64, 0, 0), prefix: 29 })
    }

    fn last(address: Option<Ipv4Addr>) -> Option<u8> {
        address.map(|address| address.octets()[3])
    }

    #[test]
    fn an_address_is_reused_as_late_as_possible() {
        let mut pool = small();
        assert_eq!(last(pool.take(None)), Some(1));
        assert_eq!(last(pool.take(None)), Some(2));
        pool.give_back(Ipv4Addr::new(127, 64, 0, 1));
        let rest: Vec<_> = (0..5).map(|_| last(pool.take(None)).unwrap()).collect();
        assert_eq!(rest, [3, 4, 5, 6, 1]);
        assert_eq!(pool.take(None), None, "all are taken");
    }

    #[test]
    fn a_pod_gets_back_what_it_had_unless_it_is_not_ours() {
        let mut pool = small();
        assert_eq!(last(pool.take(Some(Ipv4Addr::new(127, 64, 0, 4)))), Some(4));
        assert_eq!(last(pool.take(Some(Ipv4Addr::new(127, 64, 0, 4)))), Some(5));
        assert_eq!(last(pool.take(Some(Ipv4Addr::new(10, 0, 0, 4)))), Some(6));
    }
}
