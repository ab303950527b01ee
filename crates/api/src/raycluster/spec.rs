use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, ResourceRequirements, SecurityContext, VolumeMount};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{GcsFaultToleranceOptions, HeadGroupSpec, WorkerGroupSpec};
use crate::{
    crd::{rule, rule_at},
    embedded::{Embedded, Texts, texts_schema},
};

/// What is wanted of a RayCluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = cluster_rules()))]
pub struct RayClusterSpec {
    /// What happens to running pods when their template changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_strategy: Option<ClusterUpgradeStrategy>,
    /// Who may talk to the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_options: Option<AuthOptions>,
    /// Deletes all pods and keeps the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The operator of this cluster. The default is `ray.io/kuberay-operator`, which is Segue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 64, "x-kubernetes-validations" = [managed_by_rule()]))]
    pub managed_by: Option<ManagedBy>,
    /// The autoscaler's container and manners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaler_options: Option<AutoscalerOptions>,
    /// Annotations of the head's Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "texts_schema")]
    pub head_service_annotations: Option<Texts>,
    /// Whether Ray's autoscaler runs beside the head and sets the number of workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_in_tree_autoscaling: Option<bool>,
    /// Where the head keeps its state, so that the cluster outlives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs_fault_tolerance_options: Option<GcsFaultToleranceOptions>,
    /// The history server; kept as written, not acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_server_options: Option<Map<String, Value>>,
    /// Network isolation; kept as written, not acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<Map<String, Value>>,
    /// Encryption between the pods; kept as written, not acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_options: Option<TlsOptions>,
    /// The head.
    pub head_group_spec: HeadGroupSpec,
    /// The version of Ray in the images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub ray_version: Option<String>,
    /// The groups of workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend(
        "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["groupName"]))]
    pub worker_group_specs: Vec<WorkerGroupSpec>,
}

/// What two or more parts of a cluster have to say to each other.
fn cluster_rules() -> Vec<Value> {
    let restarted = "self.workerGroupSpecs.filter(g, has(g.template.spec.restartPolicy) && \
                     !(g.template.spec.restartPolicy in ['', 'Never']))[0]";
    vec![
        rule_at(
            ".workerGroupSpecs",
            "!has(self.enableInTreeAutoscaling) || !self.enableInTreeAutoscaling || \
             !has(self.workerGroupSpecs) || self.workerGroupSpecs.all(g, !has(g.suspend) || !g.suspend)",
            "'worker group \"%s\" has suspend true: the autoscaler, which enableInTreeAutoscaling turns on, would \
             start it again; turn one of them off'\
             .format([self.workerGroupSpecs.filter(g, has(g.suspend) && g.suspend)[0].groupName])",
        ),
        rule_at(
            ".headGroupSpec.template.spec.restartPolicy",
            &format!(
                "!({V2}) || !has(self.headGroupSpec.template.spec.restartPolicy) || \
                 self.headGroupSpec.template.spec.restartPolicy in ['', 'Never']"
            ),
            "'restartPolicy is \"%s\": must be Never or absent with autoscalerOptions.version v2, which replaces \
             pods itself'.format([self.headGroupSpec.template.spec.restartPolicy])",
        ),
        rule_at(
            ".workerGroupSpecs",
            &format!(
                "!({V2}) || !has(self.workerGroupSpecs) || self.workerGroupSpecs.all(g, \
                 !has(g.template.spec.restartPolicy) || g.template.spec.restartPolicy in ['', 'Never'])"
            ),
            &format!(
                "'worker group \"%s\" has restartPolicy \"%s\": must be Never or absent with autoscalerOptions.version \
                 v2, which replaces pods itself'\
                 .format([{restarted}.groupName, {restarted}.template.spec.restartPolicy])"
            ),
        ),
        only_second_autoscaler("idleTimeoutSeconds", "has(g.idleTimeoutSeconds)"),
        // KubeRay writes a priority of 0 into every group.
        only_second_autoscaler("priority", "has(g.priority) && g.priority != 0"),
        // A version that is no number (a nightly build, say) is its author's business.
        rule_at(
            ".rayVersion",
            "!has(self.authOptions) || !has(self.authOptions.mode) || self.authOptions.mode != 'token' || \
             !has(self.rayVersion) || \
             !self.rayVersion.matches('^v?([01]|2[.]([0-9]|[1-4][0-9]|5[01]))([.]|$)')",
            "'rayVersion is \"%s\": authOptions.mode token needs Ray 2.52.0 or later'.format([self.rayVersion])",
        ),
        rule_at(
            ".rayVersion",
            "!has(self.authOptions) || !has(self.authOptions.enableK8sTokenAuth) || \
             !self.authOptions.enableK8sTokenAuth || !has(self.rayVersion) || \
             !self.rayVersion.matches('^v?([01]|2[.]([0-9]|[1-4][0-9]|5[0-4]))([.]|$)')",
            "'rayVersion is \"%s\": authOptions.enableK8sTokenAuth needs Ray 2.55.0 or later'\
             .format([self.rayVersion])",
        ),
        // The values are left out of the sentences: one of them is a password.
        rule_at(
            ".headGroupSpec.rayStartParams",
            "!has(self.gcsFaultToleranceOptions) || !has(self.headGroupSpec.rayStartParams) || \
             !('redis-password' in self.headGroupSpec.rayStartParams) || \
             self.headGroupSpec.rayStartParams['redis-password'] == ''",
            "'redis-password is set beside gcsFaultToleranceOptions: use gcsFaultToleranceOptions.redisPassword'",
        ),
        rule_at(
            ".headGroupSpec.rayStartParams",
            "!has(self.headGroupSpec.rayStartParams) || !('redis-username' in self.headGroupSpec.rayStartParams) || \
             self.headGroupSpec.rayStartParams['redis-username'] == ''",
            "'redis-username is set: use gcsFaultToleranceOptions.redisUsername'",
        ),
    ]
}

const V1: &str = "has(self.autoscalerOptions) && has(self.autoscalerOptions.version) && \
                  self.autoscalerOptions.version == 'v1'";
const V2: &str = "has(self.autoscalerOptions) && has(self.autoscalerOptions.version) && \
                  self.autoscalerOptions.version == 'v2'";

/// A number of a group that the first autoscaler would pass over in silence. Where no version is named the head's
/// environment may name one, which no rule can afford to read: the review does.
fn only_second_autoscaler(field: &str, set: &str) -> Value {
    rule_at(
        ".workerGroupSpecs",
        &format!("!({V1}) || !has(self.workerGroupSpecs) || self.workerGroupSpecs.all(g, !({set}))"),
        &format!(
            "'worker group \"%s\" has {field}: allowed only with autoscalerOptions.version v2, and it is v1'\
             .format([self.workerGroupSpecs.filter(g, {set})[0].groupName])"
        ),
    )
}

/// The field is immutable: the operator that acts on an object would not stop after a change.
pub(crate) fn managed_by_rule() -> Value {
    rule("self == oldSelf", "'managedBy is immutable: it is \"%s\", not \"%s\"'.format([oldSelf, self])")
}

/// What happens to running pods when their template changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterUpgradeStrategy {
    /// Nothing happens unless this is `Recreate`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub ty: Option<ClusterUpgradeType>,
}

/// Who may talk to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(".enableK8sTokenAuth", "!has(self.enableK8sTokenAuth) || !self.enableK8sTokenAuth || \
            (has(self.mode) && self.mode == 'token')",
        "'enableK8sTokenAuth is true: it needs mode token'"),
    rule_at(".secretName", "!has(self.enableK8sTokenAuth) || !self.enableK8sTokenAuth || \
            !has(self.secretName) || self.secretName == ''",
        "'secretName is \"%s\" while enableK8sTokenAuth is true: the tokens are then those of Kubernetes; remove one \
            of them'.format([self.secretName])"),
]))]
pub struct AuthOptions {
    /// Whether a token is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 64))]
    pub mode: Option<AuthMode>,
    /// Lets Kubernetes check the tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_k8s_token_auth: Option<bool>,
    /// The Secret with the token, under `auth_token`; by default one is generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub secret_name: Option<String>,
}

/// The autoscaler's container and manners.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalerOptions {
    /// Its resources; half a core and 512Mi by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Embedded<ResourceRequirements>>,
    /// Its image; that of the head by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub image: Option<String>,
    /// When its image is pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Its privileges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<Embedded<SecurityContext>>,
    /// How long a worker may be idle before Ray removes it; 60 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = i32::MAX))]
    pub idle_timeout_seconds: Option<i32>,
    /// How fast the cluster may grow; Ray reads this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upscaling_mode: Option<UpscalingMode>,
    /// Which autoscaler. Absent leaves it to the version of Ray.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 8))]
    pub version: Option<AutoscalerVersion>,
    /// Its environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub env: Vec<Embedded<EnvVar>>,
    /// Where more of its environment comes from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub env_from: Vec<Embedded<EnvFromSource>>,
    /// What it mounts of the head pod's volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub volume_mounts: Vec<Embedded<VolumeMount>>,
    /// Its command, in place of the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 16384)))]
    pub command: Vec<String>,
    /// Its arguments, in place of the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 16384)))]
    pub args: Vec<String>,
}

/// Encryption between the pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct TlsOptions {
    /// Whether it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The rest, as written.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Map<String, Value>,
}

/// The operator of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ManagedBy {
    /// The operator of `ray.io` in this cluster: Segue.
    #[serde(rename = "ray.io/kuberay-operator")]
    Operator,
    /// Kueue, which runs it in another cluster. We leave it alone.
    #[serde(rename = "kueue.x-k8s.io/multikueue")]
    MultiKueue,
}

/// What happens to running pods when their template changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClusterUpgradeType {
    /// All of them are deleted and recreated.
    Recreate,
    /// Nothing.
    None,
}

/// Whether a token is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum AuthMode {
    Disabled,
    Token,
}

/// How fast the cluster may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpscalingMode {
    /// As fast as it can.
    Default,
    /// The same.
    Aggressive,
    /// By no more than its size at a time.
    Conservative,
}

/// Which autoscaler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum AutoscalerVersion {
    V1,
    V2,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs)]
pub enum ImagePullPolicy {
    Always,
    IfNotPresent,
    Never,
}
