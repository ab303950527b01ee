//! Other operators of the same kinds: never two on one object.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use controllers::kind::{OtherOperator, Renewed, Served};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhook,
    coordination::v1::{Lease, LeaseSpec},
    core::v1::{Endpoints, Service},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde::Deserialize;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

/// The term of a Lease that names none.
const TERM: Duration = Duration::from_secs(15);

/// How often a Lease is read while it is undecided whether its holder renews it.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The other operators of these kinds.
fn of(kinds: &[&'static Served]) -> impl Iterator<Item = (&'static Served, OtherOperator)> {
    kinds.iter().filter_map(|served| Some((*served, served.other?)))
}

/// What is known of other operators of the same kinds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// None that reconciles these kinds is alive.
    None,
    /// One is alive; the sentence says what to do.
    Alive(String),
    /// A Lease has a holder, and has not been observed for its term yet; the sentence says so.
    Unknown(String),
}

/// The Leases of other operators, as they were observed. A holder is alive if it renews while it is observed: the times in a
/// Lease are those of another host's clock, and are not read.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    seen: Mutex<BTreeMap<String, Observed>>,
}

/// A Lease as it was observed, and since when it is unchanged.
#[derive(Debug)]
struct Observed {
    spec: LeaseSpec,
    since: Instant,
    checked_at: Instant,
    /// It was written within a term before `since`.
    is_renewed: bool,
}

/// Whether the holder of a Lease is alive.
#[derive(Debug, PartialEq, Eq)]
enum Holder {
    /// There is no holder, or it has not renewed the Lease for a whole term.
    Dead,
    Alive(String),
    /// Undecided, for at most this long.
    Undecided(String, Duration),
}

impl Leases {
    /// Reads the Leases once, and returns what is known by now.
    pub(crate) async fn check(
        &self,
        client: &Client,
        kinds: &[&'static Served],
    ) -> Result<Found, kube::Error> {
        let leases: Api<Lease> = Api::all(client.clone());
        let mut found = Found::None;
        for (served, other) in of(kinds) {
            let (name, kind) = (other.lease, served.kind.name);
            let named = ListParams::default().fields(&format!("metadata.name={name}"));
            for lease in leases.list(&named).await? {
                let lease_name = format!("{}/{name}", lease.namespace().unwrap_or_default());
                let is_new = !self.lock().contains_key(&lease_name);
                match (self.observe(&lease_name, lease.spec.unwrap_or_default()), other.renewed) {
                    (Holder::Dead, _) => {}
                    (Holder::Alive(holder), Renewed::Reconciles) => {
                        return Ok(Found::Alive(format!(
                            "another operator reconciles {kind}s: {holder} holds the Lease {lease_name}; stop it, or use \
                             --namespaces and --split-with-others"
                        )));
                    }
                    (Holder::Undecided(holder, left), Renewed::Reconciles) => {
                        found = Found::Unknown(format!(
                            "the Lease {lease_name} of another operator of {kind}s is held by {holder}; waiting up to {} s to \
                             see whether {holder} renews it",
                            left.as_secs().max(1)
                        ));
                    }
                    (Holder::Alive(holder) | Holder::Undecided(holder, _), Renewed::MayReconcile(advice)) => {
                        if is_new {
                            eprintln!(
                                "note: the Lease {lease_name} is held by {holder}, which may reconcile {kind}s, too: {advice}"
                            );
                        }
                    }
                }
            }
        }
        Ok(found)
    }

    /// Reads the Leases until it is decided, and prints what is waited for. Returns the sentence about one that is alive.
    pub(crate) async fn find(
        &self,
        client: &Client,
        kinds: &[&'static Served],
    ) -> Result<Option<String>, kube::Error> {
        let mut is_told = false;
        loop {
            match self.check(client, kinds).await? {
                Found::None => return Ok(None),
                Found::Alive(why) => return Ok(Some(why)),
                Found::Unknown(why) => {
                    if !is_told {
                        eprintln!("note: {why}");
                    }
                    is_told = true;
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Observed>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a Lease, and returns whether its holder is alive.
    fn observe(&self, name: &str, spec: LeaseSpec) -> Holder {
        let now = Instant::now();
        let term = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let term = term.map_or(TERM, Duration::from_secs);
        let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty());
        let mut seen = self.lock();
        let sight = match seen.remove(name) {
            Some(sight) if sight.spec == spec => Observed { checked_at: now, ..sight },
            // What was written since the last look is no older than that.
            before => {
                let is_renewed = before.is_some_and(|before| now - before.checked_at <= term);
                Observed { spec, since: now, checked_at: now, is_renewed }
            }
        };
        let (age, is_renewed) = (now - sight.since, sight.is_renewed);
        seen.insert(name.to_owned(), sight);
        match holder {
            Some(holder) if age <= term && is_renewed => Holder::Alive(holder),
            Some(holder) if age <= term => Holder::Undecided(holder, term.saturating_sub(age)),
            _ => Holder::Dead,
        }
    }
}

/// Returns a sentence for each webhook of another operator that refuses every request because nothing serves it.
pub(crate) async fn stale_webhooks(
    client: &Client,
    kinds: &[&'static Served],
) -> Result<Vec<String>, kube::Error> {
    if of(kinds).next().is_none() {
        return Ok(Vec::new());
    }
    let mut found: Vec<Hook> = Vec::new();
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
        let configurations: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        for it in configurations.list(&ListParams::default()).await? {
            let configuration = format!("{kind} {}", it.name_any());
            let hooks = Vec::<ValidatingWebhook>::deserialize(&it.data["webhooks"]).unwrap_or_default();
            found.extend(hooks.into_iter().map(|hook| Hook { configuration: configuration.clone(), hook }));
        }
    }
    let mut lines = Vec::new();
    for hook in found.into_iter().filter(|hook| hook.is_strict() && hook.is_about(kinds)) {
        if let Some(why) = hook.unanswered(client).await {
            let Hook { hook: ValidatingWebhook { name, .. }, configuration } = hook;
            lines.push(format!(
                "the webhook {name} of {configuration} refuses every request, because {why}; delete that \
                 configuration if its operator is no longer in use"
            ));
        }
    }
    Ok(lines)
}

/// A webhook, of what has everything that matters here: a mutating one has the same fields.
struct Hook {
    configuration: String,
    hook: ValidatingWebhook,
}

/// How long a server of a webhook may take to take a connection.
const CONNECTS: Duration = Duration::from_secs(3);

impl Hook {
    /// Whether what it cannot judge is refused.
    fn is_strict(&self) -> bool {
        self.hook.failure_policy.as_deref().is_none_or(|policy| policy == "Fail")
    }

    /// Whether it judges objects of these kinds, or is one of an operator of theirs that is known by name. Ours never
    /// refuse what they cannot judge, and so are not strict.
    fn is_about(&self, kinds: &[&'static Served]) -> bool {
        let judges = |served: &&'static Served| {
            self.hook.rules.iter().flatten().any(|rule| {
                let has =
                    |list: &Option<Vec<String>>, wanted: &str| list.iter().flatten().any(|it| it == wanted);
                has(&rule.api_groups, served.kind.group) && has(&rule.resources, served.kind.plural)
            })
        };
        kinds.iter().any(judges)
            || of(kinds).any(|(_, other)| other.webhooks.contains(&self.hook.name.as_str()))
    }

    /// Why nothing answers for it, if that is certain: what may not be asked may be there.
    async fn unanswered(&self, client: &Client) -> Option<String> {
        if let Some(service) = &self.hook.client_config.service {
            let (namespace, name) = (service.namespace.as_str(), service.name.as_str());
            let services: Api<Service> = Api::namespaced(client.clone(), namespace);
            let Some(service) = services.get_opt(name).await.ok()? else {
                return Some(format!("its Service {namespace}/{name} is gone"));
            };
            if !selects_pods(&service) {
                return None;
            }
            let endpoints: Api<Endpoints> = Api::namespaced(client.clone(), namespace);
            let known = endpoints.get_opt(name).await.ok()?;
            let subsets = known.iter().flat_map(|it| it.subsets.iter().flatten());
            let ready = subsets.clone().any(|it| it.addresses.as_ref().is_some_and(|it| !it.is_empty()));
            return (!ready).then(|| format!("nothing is ready behind its Service {namespace}/{name}"));
        }
        let url: http::Uri = self.hook.client_config.url.as_deref()?.parse().ok()?;
        let address = (url.host()?.trim_matches(['[', ']']).to_owned(), url.port_u16().unwrap_or(443));
        let connected = timeout(CONNECTS, TcpStream::connect(address)).await;
        let refused = !matches!(connected, Ok(Ok(_)));
        refused.then(|| {
            format!("{} takes no connection, seen from here", url.authority().map_or("", |it| it.as_str()))
        })
    }
}

/// Whether Kubernetes keeps the Endpoints of a Service. Where it does not, missing Endpoints prove nothing: the Service is
/// a name outside the cluster, or its addresses are written by hand.
fn selects_pods(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| {
        let selects = spec.selector.as_ref().is_some_and(|selector| !selector.is_empty());
        selects && spec.type_.as_deref() != Some("ExternalName")
    })
}

#[cfg(test)]
mod tests {
    use kube::api::PostParams;
    use serde_json::{Value, json};
    use testbed::Embedded;

    use super::*;

    /// As its holder writes it, by its own clock.
    fn lease(holder: &Value, renewed: &str) -> LeaseSpec {
        let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed});
        serde_json::from_value(spec).unwrap()
    }

    fn alive() -> Holder {
        Holder::Alive("them".to_owned())
    }

    /// The clocks of hosts differ, and step.
    #[tokio::test(start_paused = true)]
    async fn a_holder_is_alive_that_renews_before_our_eyes_whatever_its_clock_says() {
        for year in [1970, 2026, 2099] {
            let at = |second: u32| lease(&json!("them"), &format!("{year}-01-01T00:00:{second:02}.000000Z"));
            let leases = Leases::default();
            let unknown = Holder::Undecided("them".to_owned(), Duration::from_secs(15));
            assert_eq!(leases.observe("a", at(0)), unknown);
            tokio::time::advance(Duration::from_secs(2)).await;
            assert_eq!(leases.observe("a", at(2)), alive());
            tokio::time::advance(Duration::from_secs(15)).await;
            assert_eq!(leases.observe("a", at(2)), alive(), "its term is not over");
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(leases.observe("a", at(2)), Holder::Dead);
            // It was written at some time of that hour.
            tokio::time::advance(Duration::from_hours(1)).await;
            assert_eq!(leases.observe("a", at(30)), unknown);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_dead_that_was_seen_unchanged_for_its_term() {
        let leases = Leases::default();
        let left = lease(&json!("them"), "2099-01-01T00:00:00.000000Z");
        for second in 0..=15 {
            let left_for = Duration::from_secs(15 - second);
            assert_eq!(leases.observe("a", left.clone()), Holder::Undecided("them".to_owned(), left_for));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(leases.observe("a", left), Holder::Dead);
        for nobody in [json!(null), json!("")] {
            assert_eq!(leases.observe("b", lease(&nobody, "2099-01-01T00:00:00.000000Z")), Holder::Dead);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_not_known_yet_is_said_and_what_may_be_another_stops_nobody() {
        let api = Embedded::start().await.unwrap();
        let put = async |name: &str, second: u32| {
            let spec = lease(&json!("them"), &format!("1970-01-01T00:00:{second:02}.000000Z"));
            let metadata = kube::api::ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
            let lease = Lease { metadata, spec: Some(spec) };
            let leases: Api<Lease> = Api::namespaced(api.client(), "default");
            let parameters = kube::api::PatchParams::apply("them").force();
            leases.patch(name, &parameters, &kube::api::Patch::Apply(&lease)).await.unwrap();
        };
        let kinds = ["LeaderWorkerSet", "ModelServing"].map(|name| controllers::kind::named(name).unwrap());
        let leases = Leases::default();
        put("lease.kthena.controller-manager", 1).await;
        assert_eq!(leases.check(&api.client(), &kinds).await.unwrap(), Found::None);
        put("b8b2488c.x-k8s.io", 1).await;
        let Found::Unknown(why) = leases.check(&api.client(), &kinds).await.unwrap() else { panic!() };
        assert!(why.contains("default/b8b2488c.x-k8s.io") && why.contains("waiting up to 15 s"), "{why}");
        put("b8b2488c.x-k8s.io", 2).await;
        let Found::Alive(why) = leases.check(&api.client(), &kinds).await.unwrap() else { panic!() };
        assert!(why.contains("them holds the Lease default/b8b2488c.x-k8s.io; stop it"), "{why}");
    }

    /// The webhooks of Kthena, as its chart has them.
    #[tokio::test(flavor = "multi_thread")]
    async fn webhooks_of_another_operator_of_model_servings_alone_are_named() {
        let api = Embedded::start().await.unwrap();
        let client = api.client();
        let post = async |path: &str, body: &Value| {
            let request = http::Request::post(path).header("content-type", "application/json");
            let request = request.body(body.to_string().into_bytes()).unwrap();
            client.request::<Value>(request).await.unwrap()
        };
        // The embedded API has no webhooks, so these are as good as any other objects.
        let group = "admissionregistration.k8s.io";
        for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
            let plural = format!("{}s", kind.to_lowercase());
            let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let version = json!({
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            });
            let names = json!({"kind": kind, "plural": plural});
            let definition = json!({
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.{group}")},
                "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]},
            });
            post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
        }
        let name = "validate-workload-ai-v1alpha1-modelserving.volcano.sh";
        let service = json!({"name": "kthena-controller-manager-webhook", "namespace": "kthena-system"});
        let configuration = json!({
            "apiVersion": format!("{group}/v1"),
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "kthena-controller-manager-validating-webhook"},
            "webhooks": [{
                "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
                "clientConfig": {"service": service},
            }],
        });
        post(&format!("/apis/{group}/v1/validatingwebhookconfigurations"), &configuration).await;
        let kinds = [controllers::kind::named("ModelServing").unwrap()];
        let lines = stale_webhooks(&client, &kinds).await.unwrap();
        let gone = "its Service kthena-system/kthena-controller-manager-webhook is gone";
        assert!(lines.len() == 1 && lines[0].contains(name) && lines[0].contains(gone), "{lines:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_a_service_that_selects_pods_has_nothing_ready_behind_it() {
        let api = Embedded::start().await.unwrap();
        let services: Api<Service> = Api::namespaced(api.client(), "default");
        let ports = json!([{"port": 443}]);
        for (name, spec) in [
            ("selects", json!({"ports": ports, "selector": {"nobody": "has-this"}})),
            ("by-hand", json!({"ports": ports})),
            ("selects-nothing", json!({"ports": ports, "selector": {}})),
            ("outside", json!({"type": "ExternalName", "externalName": "hooks.example.com"})),
            (
                "outside-selects",
                json!({
                    "type": "ExternalName", "externalName": "hooks.example.com", "selector": {"a": "b"},
                }),
            ),
        ] {
            let service = json!({"metadata": {"name": name}, "spec": spec});
            let service = serde_json::from_value(service).unwrap();
            services.create(&PostParams::default(), &service).await.unwrap();
        }
        let unanswered = async |name: &str| {
            let hook = json!({
                "name": "x", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"service": {"namespace": "default", "name": name}},
            });
            let hook = Hook {
                configuration: "MutatingWebhookConfiguration x".to_owned(),
                hook: serde_json::from_value(hook).unwrap(),
            };
            hook.unanswered(&api.client()).await
        };
        let why = unanswered("selects").await;
        assert_eq!(why.as_deref(), Some("nothing is ready behind its Service default/selects"));
        let why = unanswered("gone").await;
        assert_eq!(why.as_deref(), Some("its Service default/gone is gone"));
        for name in ["by-hand", "selects-nothing", "outside", "outside-selects"] {
            assert_eq!(unanswered(name).await, None, "{name}");
        }
    }

    #[test]
    fn only_operators_of_the_kinds_that_are_on_matter() {
        let named = |name: &str| of(&[controllers::kind::named(name).unwrap()]).count();
        assert_eq!(["LeaderWorkerSet", "ModelServing", "ModelDeployment"].map(named), [1, 1, 0]);
    }
}
