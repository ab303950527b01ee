//! The environment of containers that ask for TPUs: who their peers are, and which of them they are.

use schema::quantity::Quantity;
use serde_json::{Value, json};

use super::{Place, placement::Subgroup};
use crate::{labels, leaderworkerset::revision::GroupTemplate};

const HOSTNAMES: &str = "TPU_WORKER_HOSTNAMES";
const ID: &str = "TPU_WORKER_ID";
const NAME: &str = "TPU_NAME";
const ADDRESSES: &str = "TPU_PROCESS_ADDRESSES";
const PORT: &str = "TPU_PROCESS_PORT";

/// The port of the first container; those after it count on.
const FIRST_PORT: usize = 8476;

/// Whether a leader of this template asks for TPUs.
pub(super) fn leader_asks(template: &GroupTemplate) -> bool {
    let pods = &template.pods;
    let leader = pods.leader_template.as_ref().unwrap_or(&pods.worker_template);
    let spec = &leader.json()["spec"];
    ["containers", "initContainers"]
        .iter()
        .flat_map(|list| spec[list].as_array().into_iter().flatten())
        .any(asks)
}

fn asks(container: &Value) -> bool {
    let asks = |amount: &Value| Quantity::read(amount).is_ok_and(|amount| !amount.is_zero());
    ["limits", "requests"].iter().any(|list| asks(&container["resources"][list]["google.com/tpu"]))
}

/// The environment of a pod's containers.
pub(super) struct Pod<'a> {
    pub(super) place: Place,
    pub(super) size: u32,
    pub(super) leader: &'a str,
    pub(super) subdomain: &'a str,
    pub(super) leader_asks: bool,
    pub(super) subgroup: Option<Subgroup>,
}

/// Tells the containers that ask for TPUs of each other, unless the author of the template has.
pub(super) fn set_environment(pod: &mut Value, told: &Pod<'_>) {
    if told.leader_asks && told.place.index > 0 {
        pod["metadata"]["annotations"][labels::LEADER_REQUESTS_TPUS] = "true".into();
    }
    let lists = pod["spec"].as_object_mut().into_iter().flatten();
    let lists = lists.filter(|(name, _)| matches!(name.as_str(), "containers" | "initContainers"));
    let all = lists.flat_map(|(_, list)| list.as_array_mut().into_iter().flatten());
    let mut containers: Vec<&mut Value> = all.filter(|container| asks(container)).collect();
    // In subgroups one container of a pod has TPUs.
    if told.subgroup.is_some() {
        containers.truncate(1);
    }
    let Some(first) = containers.first() else { return };
    if variable(first, HOSTNAMES).is_some() || variable(first, ID).is_some() {
        return;
    }
    let ports: Vec<String> = containers
        .iter()
        .enumerate()
        .map(|(i, container)| {
            let theirs = variable(container, PORT).and_then(|port| port["value"].as_str());
            theirs.map_or_else(|| (FIRST_PORT + i).to_string(), ToOwned::to_owned)
        })
        .collect();
    let Some((peers, place)) = told.peers() else { return };
    let of_each = |host: &String| ports.iter().map(|port| (host.clone(), port.clone())).collect::<Vec<_>>();
    let processes: Vec<(String, String)> = peers.iter().flat_map(of_each).collect();
    let hosts: Vec<&str> = processes.iter().map(|(host, _)| host.as_str()).collect();
    let addresses: Vec<String> = processes.iter().map(|(host, port)| format!("{host}:{port}")).collect();
    let each = ports.len();
    for (i, (container, port)) in containers.into_iter().zip(&ports).enumerate() {
        let has_port = variable(container, PORT).is_some();
        let mut told = vec![
            (HOSTNAMES, hosts.join(",")),
            (ID, (place as usize * each + i).to_string()),
            (NAME, told.leader.to_owned()),
            (ADDRESSES, addresses.join(",")),
        ];
        if !has_port {
            told.push((PORT, port.clone()));
        }
        let told = told.into_iter().map(|(name, value)| json!({"name": name, "value": value}));
        match container["env"].as_array_mut() {
            Some(env) => env.extend(told),
            None => container["env"] = told.collect(),
        }
    }
}

fn variable<'a>(container: &'a Value, name: &str) -> Option<&'a Value> {
    container["env"].as_array()?.iter().find(|variable| variable["name"] == name)
}

impl Pod<'_> {
    /// The hosts that work together, and the place of this one among them. A leader is one of them if it asks for TPUs.
    fn peers(&self) -> Option<(Vec<String>, u32)> {
        let worker = self.place.index;
        // A leader that belongs to no subgroup is no peer, whatever it asks for.
        let with_leader =
            self.leader_asks && self.subgroup.as_ref().is_none_or(|subgroup| subgroup.has_leaders);
        let first = u32::from(!with_leader);
        let (members, place) = match &self.subgroup {
            None => (first..self.size, worker.saturating_sub(first)),
            Some(subgroup) => {
                let start = subgroup.size * subgroup.index? + first;
                (start..start + subgroup.size, worker.saturating_sub(first) % subgroup.size)
            }
        };
        Some((members.map(|index| self.host(index)).collect(), place))
    }

    fn host(&self, index: u32) -> String {
        let Self { leader, subdomain, .. } = self;
        if index == 0 { format!("{leader}.{subdomain}") } else { format!("{leader}-{index}.{subdomain}") }
    }
}
