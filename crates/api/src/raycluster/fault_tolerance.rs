use k8s_openapi::{api::core::v1::EnvVarSource, apimachinery::pkg::api::resource::Quantity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    crd::{rule, rule_at},
    embedded::Embedded,
};

/// Where the head keeps its state, so that the cluster outlives it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = backend_rules()))]
pub struct GcsFaultToleranceOptions {
    /// The backend; Redis by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 16))]
    pub backend: Option<GcsBackend>,
    /// The address of Redis, as `host:port` or with a scheme.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub redis_address: Option<String>,
    /// Who we are to Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_username: Option<RedisCredential>,
    /// Our password there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_password: Option<RedisCredential>,
    /// The namespace in Redis; the UID of the cluster by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub external_storage_namespace: Option<String>,
    /// The volume of a RocksDB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<GcsStorage>,
}

/// A name or a password for Redis, written out or found elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule("!has(self.valueFrom) || !has(self.value) || self.value == ''",
        "'value and valueFrom are both set: keep one of them'"),
]))]
pub struct RedisCredential {
    /// Written out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub value: Option<String>,
    /// Found elsewhere, in a Secret for example.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<Embedded<EnvVarSource>>,
}

/// The volume of a RocksDB: a claim of one's own, or one that is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".claimName", "!has(self.claimName) || self.claimName == '' || \
            (!has(self.size) && !has(self.storageClassName) && !has(self.accessModes))",
        "'claimName is \"%s\": a claim that exists has its size, storageClassName and accessModes already; remove \
            those, or claimName'.format([self.claimName])"),
]))]
pub struct GcsStorage {
    /// A claim that exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub claim_name: Option<String>,
    /// The size of the generated claim; 1Gi by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 64, "minimum" = 1,
        "pattern" = "^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$"))]
    pub size: Option<Embedded<Quantity>>,
    /// The class of the generated claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub storage_class_name: Option<String>,
    /// How the generated claim may be mounted; by one node by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub access_modes: Vec<AccessMode>,
    /// A folder of the volume, in place of all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub sub_path: Option<String>,
    /// What happens to the generated claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<StorageDeletionPolicy>,
}

/// What keeps the head's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GcsBackend {
    /// A Redis server outside the cluster.
    #[default]
    Redis,
    /// A file on a volume of the head pod.
    RocksDb,
}

/// What becomes of a claim when its cluster is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum StorageDeletionPolicy {
    DeleteWithCluster,
    Retain,
}

/// How a volume may be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum AccessMode {
    ReadWriteOnce,
    ReadOnlyMany,
    ReadWriteMany,
    ReadWriteOncePod,
}

/// Each backend has fields of its own, and a cluster keeps the one that it began with: the state of the other would be
/// lost.
fn backend_rules() -> Vec<Value> {
    vec![
        text_of_redis("redisAddress"),
        text_of_redis("externalStorageNamespace"),
        credential_of_redis("redisUsername"),
        credential_of_redis("redisPassword"),
        rule_at(
            ".storage",
            &format!("!has(self.storage) || ({ROCKSDB})"),
            "'storage is set while backend is redis: it belongs to backend rocksdb'",
        ),
        rule_at(
            ".backend",
            "(has(self.backend) ? self.backend : 'redis') == (has(oldSelf.backend) ? oldSelf.backend : 'redis')",
            "'backend is immutable: it is \"%s\", not \"%s\"'\
             .format([has(oldSelf.backend) ? oldSelf.backend : 'redis', has(self.backend) ? self.backend : 'redis'])",
        ),
    ]
}

const ROCKSDB: &str = "has(self.backend) && self.backend == 'rocksdb'";

fn text_of_redis(field: &str) -> Value {
    rule_at(
        &format!(".{field}"),
        &format!("!({ROCKSDB}) || !has(self.{field}) || self.{field} == ''"),
        &format!(
            "'{field} is \"%s\" while backend is rocksdb: it belongs to backend redis'.format([self.{field}])"
        ),
    )
}

/// As for other fields of Redis, without the value.
fn credential_of_redis(field: &str) -> Value {
    rule_at(
        &format!(".{field}"),
        &format!("!({ROCKSDB}) || !has(self.{field})"),
        &format!("'{field} is set while backend is rocksdb: it belongs to backend redis'"),
    )
}
