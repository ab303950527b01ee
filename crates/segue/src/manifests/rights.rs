//! What the operator may do: what its kinds need, each with the reason, and nothing else.

use std::collections::BTreeSet;

use controllers::kind::{OtherOperator, Place, Right, Served};
use serde_json::{Value, json};

use crate::operator::webhook;

/// A right, to some objects or to all.
#[derive(Clone, Debug)]
pub(super) struct Granted {
    pub(super) right: Right,
    /// Only these objects; none means any.
    pub(super) names: Vec<String>,
}

impl Granted {
    fn of(right: Right) -> Self {
        Self { right, names: Vec::new() }
    }
}

/// What every kind needs.
const ANY: &[Right] = &[
    Right::new("events.k8s.io", "events", "create, patch", "say what happened; count what happens again"),
    at_home("coordination.k8s.io", "leases", "create", "make the Lease by which one of several leads"),
];

const fn at_home(
    group: &'static str,
    resource: &'static str,
    verbs: &'static str,
    why: &'static str,
) -> Right {
    Right { place: Place::Home, ..Right::new(group, resource, verbs, why) }
}

/// The groups whose kinds every API has.
const BUILT_IN: [&str; 5] = ["", "apps", "policy", "discovery.k8s.io", "events.k8s.io"];

/// The name of the Lease of the operator.
pub(crate) const LEASE: &str = "segue-operator";

/// Everything that these kinds need. `home` is the namespace of the operator.
pub(super) fn of(kinds: &[&Served], webhooks: bool, home: &str) -> Vec<Granted> {
    let own = kinds.iter().flat_map(|served| served.all_rights());
    let mut rights: Vec<Granted> = ANY.iter().copied().chain(own).map(Granted::of).collect();
    rights.push(Granted {
        names: vec![LEASE.to_owned()],
        right: at_home("coordination.k8s.io", "leases", "get, update", "lead, and say so every 2 seconds"),
    });
    rights.extend(definitions_are_seen(&rights));
    rights.extend(others_are_seen(kinds));
    if webhooks {
        rights.extend(webhooks_are_kept(home));
    }
    rights
}

/// The definitions of the kinds that are watched: one that is not installed may be later.
fn definitions_are_seen(rights: &[Granted]) -> Option<Granted> {
    let watched = rights.iter().map(|it| it.right).filter(|it| it.verbs.contains("watch"));
    let custom = watched.filter(|right| !BUILT_IN.contains(&right.group));
    let names: BTreeSet<String> = custom.map(|it| format!("{}.{}", it.resource, it.group)).collect();
    let right = Right::new(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "list, watch",
        "know which of the kinds are installed, also when they are later",
    );
    (!names.is_empty()).then(|| Granted { right: right.cluster_wide(), names: names.into_iter().collect() })
}

/// The rights to find other operators, by the names of their objects: two operators must not act on one object.
fn others_are_seen(kinds: &[&Served]) -> Vec<Granted> {
    let others: Vec<OtherOperator> = kinds.iter().filter_map(|served| served.other).collect();
    if others.is_empty() {
        return Vec::new();
    }
    let leases: Vec<String> = others.iter().map(|other| other.lease.to_owned()).collect();
    let services: Vec<String> = others.iter().map(|other| other.webhook_service.to_owned()).collect();
    let registered = "admissionregistration.k8s.io";
    let why = "name webhooks that another operator left behind";
    let alive = "see whether another operator of the same kinds is alive";
    let served = "see whether anything answers them";
    vec![
        Granted {
            names: leases,
            right: Right::new("coordination.k8s.io", "leases", "list", alive).cluster_wide(),
        },
        Granted::of(Right::new(registered, "mutatingwebhookconfigurations", "list", why).cluster_wide()),
        Granted::of(Right::new(registered, "validatingwebhookconfigurations", "list", why).cluster_wide()),
        Granted {
            names: services.clone(),
            right: Right::new("", "services", "get", "see whether their server is gone").cluster_wide(),
        },
        Granted { names: services, right: Right::new("", "endpoints", "get", served).cluster_wide() },
    ]
}

fn webhooks_are_kept(home: &str) -> Vec<Granted> {
    let registered = "admissionregistration.k8s.io";
    let may_read = "answer /metrics to those who may read it";
    vec![
        Granted::of(Right::new("authentication.k8s.io", "tokenreviews", "create", may_read).cluster_wide()),
        Granted::of(
            Right::new("authorization.k8s.io", "subjectaccessreviews", "create", may_read).cluster_wide(),
        ),
        Granted::of(at_home("", "secrets", "create", "make the Secret of the webhook's certificate")),
        Granted {
            names: vec![webhook::SECRET.to_owned()],
            right: at_home("", "secrets", "get, update", "share the certificate, and renew it in time"),
        },
        Granted {
            names: vec![super::cluster_wide(home)],
            right: Right::new(
                registered,
                "validatingwebhookconfigurations",
                "get, patch",
                "tell the API which certificate to trust",
            )
            .cluster_wide(),
        },
    ]
}

/// The rules of a Role: what holds in these places, once for each resource.
pub(super) fn rules(rights: &[Granted], places: &[Place]) -> Vec<Value> {
    let mut rules: Vec<(&Granted, BTreeSet<&str>)> = Vec::new();
    for granted in rights.iter().filter(|it| places.contains(&it.right.place)) {
        let Granted { right, names } = granted;
        let same = |(other, _): &&mut (&Granted, _)| {
            (other.right.group, other.right.path(), &other.names) == (right.group, right.path(), names)
        };
        let verbs = right.verbs.split(", ");
        match rules.iter_mut().find(same) {
            Some((_, known)) => known.extend(verbs),
            None => rules.push((granted, verbs.collect())),
        }
    }
    let rule = |(Granted { right, names }, verbs): &(&Granted, BTreeSet<&str>)| {
        let mut rule = json!({"apiGroups": [right.group], "resources": [right.path()], "verbs": verbs});
        if !names.is_empty() {
            rule["resourceNames"] = json!(names);
        }
        rule
    };
    rules.iter().map(rule).collect()
}
