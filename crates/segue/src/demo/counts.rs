//! The same requests, counted by the load generator, the gateway and the model servers.

use std::{fs, path::Path};

use gateway::{Snapshot, load::Totals};

use crate::output::Error;

/// What each of the three counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// By the load: how every request ended for its user.
    pub(super) load: Totals,
    pub(super) gateway: ByGateway,
    pub(super) servers: ByServers,
}

/// The gateway counts requests where it reads them, of routes and of Services, and connections where it forwards bytes.
/// The load opens a connection for each request to a Service, so both are requests here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ByGateway {
    pub(super) requests: u64,
    pub(super) connections: u64,
}

impl ByGateway {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let routed: u64 = snapshot.routes.values().map(|counts| counts.requests).sum();
        let direct = || snapshot.cluster_addresses.values();
        let requests: u64 = direct().map(|counts| counts.requests).sum();
        let connections = direct().map(|counts| counts.accepted).sum();
        Self { requests: routed + requests + snapshot.unrouted, connections }
    }
}

/// What the model servers answered to the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ByServers {
    pub(super) answered: u64,
    pub(super) servers: usize,
    /// Those that did not end in order, and may have answered more than they wrote down.
    pub(super) killed: usize,
}

impl ByServers {
    /// From the files that the servers keep in a directory, each its own. To be read when all have ended.
    pub(super) fn read(directory: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Read { file: directory.display().to_string(), source };
        let mut all = Self::default();
        for entry in fs::read_dir(directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let text = fs::read(&path).map_err(failed)?;
                let counts: sample::Counts =
                    serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
                all.answered += counts.requests;
                all.servers += 1;
                all.killed += usize::from(!counts.ended);
            }
        }
        Ok(all)
    }
}

impl Counts {
    pub(super) fn by_gateway(&self) -> u64 {
        self.gateway.requests + self.gateway.connections
    }

    /// Whether the three agree, in words.
    pub(super) fn verdict(&self) -> &'static str {
        let asked = self.load.requests();
        if !self.disagreements().is_empty() {
            "the counts DIFFER"
        } else if self.by_gateway() == asked && self.servers.answered == asked {
            "the counts agree"
        } else {
            "the counts agree except for failed requests"
        }
    }

    /// What does not fit together, in sentences; nothing when the three agree.
    ///
    /// A request that failed may or may not have come to the gateway, and one that failed or broke off may or may not
    /// have been answered to the end: only its user knows that it was not. So with `n` of those, a count may be up to `n`
    /// less. When nothing failed, all three are the same number.
    pub(super) fn disagreements(&self) -> Vec<String> {
        let Totals { ok, app_errors, failed, .. } = self.load;
        let asked = self.load.requests();
        let mut found = Vec::new();
        let mut compare = |counter: &str, counted: u64, least: u64| {
            if !(least..=asked).contains(&counted) {
                let expected = if least == asked { asked.to_string() } else { format!("{least} to {asked}") };
                found.push(format!(
                    "{counter} counted {} instead of {expected}",
                    planner::counted(counted, "request")
                ));
            }
        };
        compare("the gateway", self.by_gateway(), asked - failed);
        compare("the model servers", self.servers.answered, ok + app_errors);
        if !found.is_empty() && self.servers.killed > 0 {
            found.push(format!(
                "{} of {} {} killed before the last count was written",
                self.servers.killed,
                planner::counted(self.servers.servers, "model server"),
                planner::agreed(self.servers.killed, "was", "were")
            ));
        }
        found
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// So many requests that all went well, each counted by all three.
    pub(in super::super) fn good(requests: u64) -> Counts {
        Counts {
            load: Totals { ok: requests, ..Totals::default() },
            gateway: ByGateway { requests: requests - requests / 3, connections: requests / 3 },
            servers: ByServers { answered: requests, servers: 8, killed: 0 },
        }
    }

    #[test]
    fn when_nothing_failed_one_request_more_or_less_is_a_disagreement() {
        assert_eq!(good(300).disagreements(), Vec::<String>::new());
        for off in [299, 301] {
            let mut counts = good(300);
            counts.servers.answered = off;
            assert_eq!(
                counts.disagreements(),
                [format!("the model servers counted {off} requests instead of 300")]
            );
            let mut counts = good(300);
            counts.gateway.requests = off - 100;
            assert_eq!(
                counts.disagreements(),
                [format!("the gateway counted {off} requests instead of 300")]
            );
        }
    }

    #[test]
    fn what_failed_or_broke_off_may_be_missing_and_nothing_else() {
        let mut counts = good(300);
        counts.load = Totals { ok: 290, app_errors: 1, failed: 4, truncated: 5 };
        counts.servers.answered = 291;
        counts.gateway.requests = 196;
        assert!(counts.disagreements().is_empty());
        assert_eq!(counts.verdict(), "the counts agree except for failed requests");
        counts.servers.answered = 290;
        counts.gateway.requests = 195;
        assert_eq!(
            counts.disagreements(),
            [
                "the gateway counted 295 requests instead of 296 to 300",
                "the model servers counted 290 requests instead of 291 to 300"
            ]
        );
    }

    #[test]
    fn a_killed_server_is_named_when_counts_are_short_and_only_then() {
        let mut counts = good(300);
        counts.servers.killed = 2;
        assert!(counts.disagreements().is_empty());
        counts.servers.answered = 299;
        let said = counts.disagreements().join("\n");
        assert!(said.contains("2 of 8 model servers were killed"), "{said}");
    }

    #[test]
    fn the_files_of_the_servers_are_added_up() {
        let directory = tempfile::tempdir().unwrap();
        let write = |file: &str, requests: u64, ended: bool| {
            let counts = sample::Counts { version: "v1".to_owned(), requests, in_flight: 0, ended };
            fs::write(directory.path().join(file), serde_json::to_string(&counts).unwrap()).unwrap();
        };
        write("1.json", 10, true);
        write("2.json", 5, false);
        write("2.part", 100, true);
        let read = ByServers::read(directory.path()).unwrap();
        assert_eq!(read, ByServers { answered: 15, servers: 2, killed: 1 });
    }
}
