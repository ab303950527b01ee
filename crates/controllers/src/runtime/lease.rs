//! One leader at a time, by a Lease.
//!
//! Guarantees: a leader that does not renew in time has stopped when another one may take over, if both clocks run at
//! about the same speed; they need not agree on the time. A leader that stops on purpose gives the lease back, and
//! another takes it at once. What two leaders would do nevertheless, each write's own conditions forbid.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use planner::Time;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::runtime::timestamp;

/// How long a lease holds without being renewed.
const LEASE_DURATION: Duration = Duration::from_secs(15);

/// How long a leader may go on without having renewed it: shorter, so that it has stopped before another begins.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// How often it is renewed or asked for.
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// The lease of the controllers, asked for under a name of one's own.
#[derive(Clone, Debug)]
pub struct Claim {
    api: Api<Lease>,
    name: String,
    identity: String,
    clock: fn() -> Time,
    is_gone: fn(&str) -> bool,
}

/// Why a leadership ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was told to stop, and gave the lease back.
    Stopped,
    /// It could not renew in time: another may lead.
    Lost,
}

/// A lease as it was seen, and since when it has been so.
struct ObservedLease {
    lease: Option<Lease>,
    since: Instant,
}

impl Claim {
    /// A claim on the lease of this name.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str, clock: fn() -> Time) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, name: name.to_owned(), identity: identity.to_owned(), clock, is_gone: |_| false }
    }

    /// The same, where it can be known that a holder is no more: its term is not waited for.
    #[must_use]
    pub fn unless_gone(self, is_gone: fn(&str) -> bool) -> Self {
        Self { is_gone, ..self }
    }

    /// Waits until the lease is ours; false if told to stop before.
    pub async fn acquire(&self, stop: &mut watch::Receiver<bool>) -> bool {
        let mut sight: Option<ObservedLease> = None;
        loop {
            if let Ok(Ok(lease)) = timeout(RETRY_PERIOD, self.api.get_opt(&self.name)).await {
                let same = sight.as_ref().is_some_and(|sight| sight.lease == lease);
                let since = sight.filter(|_| same).map_or_else(Instant::now, |sight| sight.since);
                let free = self.is_free(lease.as_ref(), since);
                if free && self.write(lease.as_ref(), &self.identity).await {
                    return true;
                }
                sight = Some(ObservedLease { lease, since });
            }
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return false,
                () = sleep(RETRY_PERIOD) => {}
            }
        }
    }

    /// Renews until told to stop, and then gives the lease back; or until it is lost.
    pub async fn keep(&self, stop: &mut watch::Receiver<bool>) -> End {
        let mut renewed = Instant::now();
        loop {
            let stopped = tokio::select! {
                biased;
                stopped = stop.wait_for(|stop| *stop) => stopped.is_ok(),
                () = sleep(RETRY_PERIOD) => false,
            };
            if stopped {
                self.renew("").await;
                return End::Stopped;
            }
            let began = Instant::now();
            if timeout(RENEW_DEADLINE, self.renew(&self.identity)).await == Ok(true) {
                renewed = began;
            }
            if renewed.elapsed() >= RENEW_DEADLINE {
                return End::Lost;
            }
        }
    }

    /// Whether this process may take the lease: it is free or ours, or its holder has not renewed it for a whole term
    /// that this process has observed.
    fn is_free(&self, lease: Option<&Lease>, since: Instant) -> bool {
        let Some(spec) = lease.and_then(|lease| lease.spec.as_ref()) else { return true };
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        let term = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let term = term.map_or(LEASE_DURATION, Duration::from_secs);
        let is_over = since.elapsed() > term || (self.is_gone)(holder);
        holder.is_empty() || holder == self.identity || is_over
    }

    async fn renew(&self, holder: &str) -> bool {
        let Ok(Some(lease)) = self.api.get_opt(&self.name).await else { return false };
        let ours =
            lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()) == Some(&self.identity);
        ours && self.write(Some(&lease), holder).await
    }

    /// Writes the holder, on the condition that the lease has not changed since.
    async fn write(&self, lease: Option<&Lease>, holder: &str) -> bool {
        let now = MicroTime(timestamp((self.clock)()));
        let before = lease.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let stays = before.holder_identity.as_deref() == Some(holder);
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
            acquire_time: if stays { before.acquire_time } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(before.lease_transitions.unwrap_or_default() + i32::from(!stays)),
            ..LeaseSpec::default()
        };
        let metadata = lease.map_or_else(
            || ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            |lease| lease.metadata.clone(),
        );
        let wanted = Lease { metadata, spec: Some(spec) };
        let parameters = PostParams::default();
        match lease {
            None => self.api.create(&parameters, &wanted).await.is_ok(),
            Some(_) => self.api.replace(&self.name, &parameters, &wanted).await.is_ok(),
        }
    }
}
