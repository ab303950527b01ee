//! The definitions of the Gateway API, for an API that does not have them.
use serde_json::Value;

/// Gateway API 1.5.1, standard channel, without descriptions. What each is for is at gateway-api.sigs.k8s.io.
const CRDS: [&str; 5] = [
    include_str!("../crds/gatewayclasses.json"),
    include_str!("../crds/gateways.json"),
    include_str!("../crds/httproutes.json"),
    include_str!("../crds/grpcroutes.json"),
    include_str!("../crds/referencegrants.json"),
];

/// The kinds that this gateway reads, to be created where they are missing.
pub fn crds() -> Vec<Value> {
    CRDS.iter().filter_map(|crd| serde_json::from_str(crd).ok()).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_definition_is_there() {
        let names: Vec<_> = super::crds().iter().map(|crd| crd["spec"]["names"]["kind"].clone()).collect();
        assert_eq!(names, ["GatewayClass", "Gateway", "HTTPRoute", "GRPCRoute", "ReferenceGrant"]);
    }
}
