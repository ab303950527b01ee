//! What each program of the control plane is started with.
use std::path::{Path, PathBuf};

use crate::certificates::Certificates;

/// Where things are for one cluster.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The directory for keys and data.
    pub(crate) state: PathBuf,
    /// etcd's port on loopback.
    pub(crate) etcd_port: u16,
    /// kube-apiserver's port on loopback.
    pub(crate) apiserver_port: u16,
    /// Keys and certificates.
    pub(crate) certificates: Certificates,
    /// The file of bearer tokens.
    pub(crate) tokens: PathBuf,
    /// The administrator's kubeconfig.
    pub(crate) kubeconfig: PathBuf,
}

impl Layout {
    /// Without fsync where the data never outlives the process. Peers: none, so any port.
    pub(crate) fn etcd(&self, fsync: bool) -> Vec<String> {
        let client = format!("http://127.0.0.1:{}", self.etcd_port);
        vec![
            flag("data-dir", self.state.join("etcd").display()),
            flag("listen-client-urls", &client),
            flag("advertise-client-urls", &client),
            flag("listen-peer-urls", "http://127.0.0.1:0"),
            flag("socket-reuse-port", true),
            flag("unsafe-no-fsync", !fsync),
            flag("log-level", "warn"),
        ]
    }

    /// A server as in production, with role-based access, on loopback.
    pub(crate) fn apiserver(&self, audit: bool) -> Vec<String> {
        let keys = &self.certificates;
        let mut flags = vec![
            flag("etcd-servers", format!("http://127.0.0.1:{}", self.etcd_port)),
            flag("bind-address", "127.0.0.1"),
            flag("advertise-address", "127.0.0.1"),
            flag("secure-port", self.apiserver_port),
            flag("permit-port-sharing", true),
            // It would publish the loopback address as an endpoint, which its own validation refuses.
            flag("endpoint-reconciler-type", "none"),
            path("tls-cert-file", &keys.serving),
            path("tls-private-key-file", &keys.serving_key),
            path("client-ca-file", &keys.ca),
            path("token-auth-file", &self.tokens),
            flag("authorization-mode", "RBAC"),
            flag("service-account-issuer", "https://kubernetes.default.svc"),
            path("service-account-key-file", &keys.service_account_public_key),
            path("service-account-signing-key-file", &keys.service_account_key),
            flag("service-cluster-ip-range", "10.0.0.0/16"),
            flag("allow-privileged", true),
        ];
        if audit {
            flags.push(path("audit-policy-file", &self.state.join("audit.json")));
            flags.push(path("audit-log-path", &self.audit_log()));
        }
        flags
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.state.join("audit.log")
    }

    /// Every controller; no port of its own, so none that can clash.
    pub(crate) fn controller_manager(&self) -> Vec<String> {
        vec![
            path("kubeconfig", &self.kubeconfig),
            path("root-ca-file", &self.certificates.ca),
            path("service-account-private-key-file", &self.certificates.service_account_key),
            flag("controllers", "*"),
            flag("leader-elect", false),
            flag("secure-port", 0),
        ]
    }
}

fn flag(name: &str, value: impl std::fmt::Display) -> String {
    format!("--{name}={value}")
}

fn path(name: &str, value: &Path) -> String {
    flag(name, value.display())
}
