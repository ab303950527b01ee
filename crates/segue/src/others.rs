//! Other operators of the same kinds: never two on one object.

use std::time::Duration;

use api::Kind;
use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    coordination::v1::Lease,
    core::v1::Service,
};
use kube::{Api, Client, ResourceExt, api::ListParams};

/// An operator that looks after a kind of ours, and how it is known.
#[derive(Debug)]
pub(crate) struct Other {
    kind: &'static Kind,
    /// By which one of its replicas leads.
    pub(crate) lease: &'static str,
    /// What its webhooks are called, whatever holds them.
    webhooks: &'static [&'static str],
    /// Who answers them.
    pub(crate) webhook_service: &'static str,
}

const OTHERS: &[Other] = &[Other {
    kind: &api::leaderworkerset::KIND,
    lease: "b8b2488c.x-k8s.io",
    webhooks: &["mleaderworkerset.kb.io", "vleaderworkerset.kb.io", "mpod.kb.io", "vpod.kb.io"],
    webhook_service: "lws-webhook-service",
}];

/// A lease that was renewed within so many of its terms counts as alive: clocks differ, and who hangs may come back.
const TERMS: u32 = 4;

/// The term of a lease that names none.
const TERM: Duration = Duration::from_secs(15);

/// The other operators of these kinds.
pub(crate) fn of(kinds: &[&Kind]) -> impl Iterator<Item = &'static Other> {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
    OTHERS.iter().filter(move |other| names.contains(&other.kind.name))
}

/// The first other operator that is alive, in a sentence that says what to do.
pub(crate) async fn alive(
    client: &Client,
    kinds: &[&Kind],
    now: Duration,
) -> Result<Option<String>, kube::Error> {
    let leases: Api<Lease> = Api::all(client.clone());
    for other in of(kinds) {
        let named = ListParams::default().fields(&format!("metadata.name={}", other.lease));
        for lease in leases.list(&named).await? {
            if let Some(holder) = holder(&lease, now) {
                let (kind, namespace) = (other.kind.name, lease.namespace().unwrap_or_default());
                return Ok(Some(format!(
                    "another operator looks after {kind}s: the Lease {namespace}/{} is alive and held by {holder}; stop \
                     that operator, or tell it to leave some namespaces alone and give those here with --namespaces and \
                     --split-with-others",
                    other.lease
                )));
            }
        }
    }
    Ok(None)
}

/// Who holds a lease, if anybody who is alive does.
fn holder(lease: &Lease, now: Duration) -> Option<&str> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())?;
    let renewed = Duration::try_from(spec.renew_time.as_ref()?.0.as_duration()).ok()?;
    let term = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let term = term.map_or(TERM, Duration::from_secs);
    (renewed.abs_diff(now) <= term * TERMS).then_some(holder)
}

/// Webhooks that another operator left behind: they refuse everything, and nobody answers for them.
pub(crate) async fn left_behind(client: &Client, kinds: &[&Kind]) -> Result<Vec<String>, kube::Error> {
    let mut found: Vec<Hook> = Vec::new();
    if of(kinds).next().is_none() {
        return Ok(Vec::new());
    }
    let all = ListParams::default();
    for it in Api::<MutatingWebhookConfiguration>::all(client.clone()).list(&all).await? {
        let name = format!("MutatingWebhookConfiguration {}", it.name_any());
        let hooks = it.webhooks.into_iter().flatten();
        found.extend(hooks.map(|hook| Hook::new(&name, hook.name, hook.failure_policy, hook.client_config)));
    }
    for it in Api::<ValidatingWebhookConfiguration>::all(client.clone()).list(&all).await? {
        let name = format!("ValidatingWebhookConfiguration {}", it.name_any());
        let hooks = it.webhooks.into_iter().flatten();
        found.extend(hooks.map(|hook| Hook::new(&name, hook.name, hook.failure_policy, hook.client_config)));
    }
    let theirs = |hook: &Hook| of(kinds).any(|other| other.webhooks.contains(&hook.name.as_str()));
    let mut lines = Vec::new();
    for hook in found.into_iter().filter(|hook| hook.is_strict && theirs(hook)) {
        if let Some(service) = hook.service
            && is_gone(client, &service).await
        {
            let (namespace, name) = service;
            lines.push(format!(
                "the webhook {} of {} refuses what it is asked about, because its Service {namespace}/{name} is gone; \
                 delete that configuration if nobody uses its operator any more",
                hook.name, hook.configuration
            ));
        }
    }
    Ok(lines)
}

/// What matters of a webhook.
struct Hook {
    configuration: String,
    name: String,
    /// What it cannot judge is refused.
    is_strict: bool,
    service: Option<(String, String)>,
}

impl Hook {
    fn new(configuration: &str, name: String, policy: Option<String>, client: WebhookClientConfig) -> Self {
        let is_strict = policy.is_none_or(|policy| policy == "Fail");
        let service = client.service.map(|service| (service.namespace, service.name));
        Self { configuration: configuration.to_owned(), name, is_strict, service }
    }
}

/// Whether a Service is gone for certain; one that we may not ask for may be there.
async fn is_gone(client: &Client, (namespace, name): &(String, String)) -> bool {
    matches!(Api::<Service>::namespaced(client.clone(), namespace).get_opt(name).await, Ok(None))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn lease(holder: &Value, renewed: &str) -> Lease {
        let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed});
        serde_json::from_value(json!({"metadata": {"name": "x"}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_lease_is_alive_while_it_is_held_and_renewed_and_a_minute_longer() {
        let at = Duration::from_secs;
        let held = lease(&json!("them"), "1970-01-01T00:10:00.000000Z");
        assert_eq!(holder(&held, at(600)), Some("them"));
        assert_eq!(holder(&held, at(660)), Some("them"));
        assert_eq!(holder(&held, at(540)), Some("them"), "their clock may be ahead");
        assert_eq!(holder(&held, at(661)), None);
        for nobody in [json!(null), json!("")] {
            assert_eq!(holder(&lease(&nobody, "1970-01-01T00:10:00.000000Z"), at(600)), None);
        }
    }

    #[test]
    fn only_operators_of_the_kinds_that_are_on_matter() {
        assert_eq!(of(&[&api::leaderworkerset::KIND]).count(), 1);
        assert_eq!(of(&[&api::modeldeployment::KIND]).count(), 0);
    }
}
