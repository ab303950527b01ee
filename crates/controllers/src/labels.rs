//! The labels, annotations and conditions that are contract, ours and others'.

/// The set that a pod belongs to.
pub const SET_NAME: &str = "leaderworkerset.sigs.k8s.io/name";
/// The place of a pod in its group; the leader's is 0.
pub const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
/// The place of a group in its set.
pub const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
/// What all pods of a group have in common and no other pod has.
pub const GROUP_KEY: &str = "leaderworkerset.sigs.k8s.io/group-key";
/// The revision that a pod was made from.
pub const REVISION: &str = "leaderworkerset.sigs.k8s.io/template-revision-hash";
/// Annotation: pods in a group.
pub const SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
/// Annotation of workers: their leader.
pub const LEADER_NAME: &str = "leaderworkerset.sigs.k8s.io/leader-name";
/// Annotation of leaders where every group has a subdomain of its own.
pub const SUBDOMAIN_POLICY: &str = "leaderworkerset.sigs.k8s.io/subdomainPolicy";
/// The subgroup of a pod.
pub const SUBGROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/subgroup-index";
/// What all pods of a subgroup have in common.
pub const SUBGROUP_KEY: &str = "leaderworkerset.sigs.k8s.io/subgroup-key";
/// Annotation: pods in a subgroup.
pub const SUBGROUP_SIZE: &str = "leaderworkerset.sigs.k8s.io/subgroup-size";
/// Annotation: whether leaders belong to a subgroup.
pub const SUBGROUP_POLICY_TYPE: &str = "leaderworkerset.sigs.k8s.io/subgroup-policy-type";
/// Annotation of a set: the topology whose domains groups do not share.
pub const EXCLUSIVE_TOPOLOGY: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";
/// Annotation of a set: the topology whose domains subgroups do not share.
pub const SUBGROUP_EXCLUSIVE_TOPOLOGY: &str = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology";
/// Annotation of workers: their leader has TPUs too.
pub const LEADER_REQUESTS_TPUS: &str = "leaderworkerset.sigs.k8s.io/leader-requests-tpus";
/// Annotation of a set: groups are made again only for what fails once all of their pods have started.
pub const RECREATE_AFTER_START: &str = "leaderworkerset.sigs.k8s.io/experimental-recreate-group-after-start";

/// The ModelServing that a pod belongs to.
pub const SERVING_NAME: &str = "modelserving.volcano.sh/name";
/// The serving group of a pod: the ModelServing and the group's index.
pub const SERVING_GROUP: &str = "modelserving.volcano.sh/group-name";
/// The role of a pod.
pub const ROLE: &str = "modelserving.volcano.sh/role";
/// The replica of a role that a pod belongs to: the role and the replica's index.
pub const ROLE_ID: &str = "modelserving.volcano.sh/role-id";
/// The revision that a pod of a ModelServing was made from.
pub const SERVING_REVISION: &str = "modelserving.volcano.sh/revision";
/// The template of its role that a pod was made from.
pub const ROLE_HASH: &str = "modelserving.volcano.sh/role-template-hash";
/// `true` on entries, and on no other pod.
pub const ENTRY: &str = "modelserving.volcano.sh/entry";

/// The RayCluster that a pod belongs to.
pub const RAY_CLUSTER: &str = "ray.io/cluster";
/// `head` or `worker`.
pub const RAY_NODE_TYPE: &str = "ray.io/node-type";
/// The worker group of a pod; [`RAY_HEAD_GROUP`] for the head.
pub const RAY_GROUP: &str = "ray.io/group";
/// The group that the head is in.
pub const RAY_HEAD_GROUP: &str = "headgroup";
/// What the head pod, or every worker pod, of a cluster has in common and no other pod has.
pub const RAY_IDENTIFIER: &str = "ray.io/identifier";
/// The replica of its group that a worker pod is a part of.
pub const RAY_REPLICA_INDEX: &str = "ray.io/worker-group-replica-index";
/// Which part of its replica a worker pod is.
pub const RAY_HOST_INDEX: &str = "ray.io/replica-host-index";
/// Annotation of a pod: `Unhealthy`, once the check of its raylet or of GCS has failed past its threshold.
pub const RAY_HEALTH_STATE: &str = "ray.io/health-state";
/// The value of [`RAY_HEALTH_STATE`] that has a pod replaced.
pub const RAY_UNHEALTHY: &str = "Unhealthy";
/// Annotation of a pod: the hash of the templates of the cluster that it was made from.
pub const RAY_TEMPLATE: &str = "segue.dev/template";
/// The object that an object of `ray.io` was made by, and the kind of that object.
pub const RAY_FROM_CRD: &str = "ray.io/originated-from-crd";

/// Annotation of a ModelServing: the queue of Volcano that its groups wait in.
pub const QUEUE: &str = "scheduling.volcano.sh/queue-name";
/// Annotation of a pod: the PodGroup that it is placed with.
pub const POD_GROUP: &str = "scheduling.k8s.io/group-name";
/// Annotation of a pod: the part of its PodGroup that it belongs to.
pub const TASK: &str = "volcano.sh/task-spec";

/// The readiness gate of a pod that takes requests: true while its unit is in service.
pub const IN_SERVICE: &str = "segue.dev/in-service";
/// Why a pod is out of service: it goes.
pub const LEAVING: &str = "Leaving";
/// Why a pod is out of service: its whole serving group goes.
pub const GROUP_LEAVING: &str = "GroupLeaving";
/// Label: of the pods of a serving group, the one by which the group is counted.
pub const COUNTS_GROUP: &str = "segue.dev/counts-group";
/// Annotation: the incarnation of its group that a pod was made for.
pub const INCARNATION: &str = "segue.dev/incarnation";
/// Annotation: the labels that a pod was made with.
pub const MADE_WITH: &str = "segue.dev/labels";
/// Annotation: how often a pod's containers had restarted when its group had started.
pub const RESTARTS_AT_START: &str = "segue.dev/restarts-at-start";
/// Annotation of a set: how long a group that left service may finish its requests.
pub const DRAIN_SECONDS: &str = "segue.dev/drain-seconds";
/// Annotation of a set: how long gateways may take to notice that a group left service.
pub const SETTLE_SECONDS: &str = "segue.dev/settle-seconds";
/// Annotation of a ModelServing: how long a pod may take to become Ready before its step counts as stalled.
pub const PROGRESS_SECONDS: &str = "segue.dev/progress-seconds";

/// Annotation of a set: whether each group has a place of its own.
pub const GROUP_IDENTITY: &str = "segue.dev/group-identity";
/// The value of [`GROUP_IDENTITY`] where groups are interchangeable: the group that serves least goes first.
pub const ANY_GROUP: &str = "any";

/// Annotation of the set of a version: the resourceVersion up to which requests to scale it are withdrawn.
pub const WITHDRAWN: &str = "segue.dev/withdrawn-scale";

/// The deployment that an object belongs to.
pub const DEPLOYMENT: &str = "segue.dev/model-deployment";
/// The version that an object belongs to: the hash in its name.
pub const VERSION: &str = "segue.dev/version";
/// Annotation: what people call the version.
pub const VERSION_NAME: &str = "segue.dev/version-name";
/// Annotation: the number of the version.
pub const VERSION_NUMBER: &str = "segue.dev/revision";
/// Annotation of the stable Service where no route has weights: the weights.
pub const WEIGHTS: &str = "segue.dev/weights";
/// Annotation of a route: when its weights were written.
pub const WEIGHED_AT: &str = "segue.dev/weighed-at";
/// Annotation: a digest of what was applied last.
pub const APPLIED: &str = "segue.dev/applied";
/// Of what we make and look for by label.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The value of [`MANAGED_BY`].
pub const SEGUE: &str = "segue";
/// Both, as a selector.
pub const OURS: &str = "app.kubernetes.io/managed-by=segue";

/// `true` on pods of a RayCluster that take requests for Serve.
pub const RAY_SERVE: &str = "ray.io/serve";
/// The object that an object of Ray was made for.
pub const RAY_FROM_NAME: &str = "ray.io/originated-from-cr-name";
/// The RayService that an object or a pod belongs to.
pub const RAY_SERVICE: &str = "segue.dev/ray-service";
/// The revision of a RayService: of its cluster config and its applications.
pub const SERVICE_REVISION: &str = "segue.dev/ray-service-revision";
/// Label of a RayCluster: the digest of the config of a RayService that it was made from.
pub const RAY_GOAL: &str = "segue.dev/ray-goal";
