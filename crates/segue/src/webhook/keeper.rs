//! Keeps the webhook's certificate good: made once, shared by a Secret, renewed in time, trusted by the API before it is
//! shown.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Secret},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use rustls::ServerConfig;
use serde_json::json;

use super::{
    SECRET, SERVICE,
    certificate::{Certificate, Shown},
    tls,
};
use crate::{manifests, output::Error};

/// Annotation of the Secret: when the certificate ends, in seconds since 1970.
const EXPIRES: &str = "segue.dev/expires";

/// How long to wait for what changes within moments.
const SOON: Duration = Duration::from_secs(1);

/// How long certificates are good, and how often somebody looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) life: Duration,
    pub(crate) look: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self { life: Duration::from_hours(90 * 24), look: Duration::from_mins(1) }
    }
}

/// Who keeps the certificate.
pub(crate) struct Keeper {
    secrets: Api<Secret>,
    configurations: Api<ValidatingWebhookConfiguration>,
    configuration: String,
    names: Vec<String>,
    terms: Terms,
    clock: fn() -> Duration,
    shown: Arc<Shown>,
}

impl Keeper {
    /// Of the operator of this namespace. On loopback it may be asked by that name too.
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        on_loopback: bool,
        terms: Terms,
        clock: fn() -> Duration,
    ) -> Self {
        let mut names = vec![format!("{SERVICE}.{namespace}.svc")];
        if on_loopback {
            names.extend(["127.0.0.1", "localhost"].map(String::from));
        }
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
            configurations: Api::all(client),
            configuration: manifests::cluster_wide(namespace),
            names,
            terms,
            clock,
            shown: Arc::default(),
        }
    }

    pub(crate) fn shown(&self) -> Arc<Shown> {
        Arc::clone(&self.shown)
    }

    pub(crate) fn tls(&self) -> Result<Arc<ServerConfig>, Error> {
        tls(self.shown())
    }

    /// For ever. What fails is said and tried again.
    pub(crate) async fn keep(self) {
        let mut said = String::new();
        loop {
            let wait = match self.look().await {
                Ok(true) => self.terms.look,
                Ok(false) => SOON,
                // Another replica was faster: what it made is there.
                Err(kube::Error::Api(status)) if status.code == 409 => SOON,
                Err(error) => {
                    let line =
                        format!("note: failed to keep the webhook's certificate: {error}; it is tried again");
                    if line != said {
                        eprintln!("{line}");
                        said = line;
                    }
                    SOON.max(self.terms.look / 10)
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Does the next thing; whether nothing is left to do.
    async fn look(&self) -> Result<bool, kube::Error> {
        let certificate = self.kept().await?;
        let trusted = self.trust(&certificate).await?;
        // Whoever has none to show shows one that is not trusted yet; else only what the API trusted a moment ago.
        if (trusted || !self.shown.any()) && !self.shown.is(&certificate) {
            self.shown.show(&certificate);
        }
        Ok(trusted)
    }

    /// The certificate of the Secret, made or renewed if need be.
    async fn kept(&self) -> Result<Certificate, kube::Error> {
        let now = (self.clock)();
        let secret = self.secrets.get_opt(SECRET).await?;
        let known = secret.as_ref().and_then(read);
        let life = self.terms.life;
        if let Some(certificate) = known.as_ref().filter(|certificate| !certificate.is_old(now, life)) {
            return Ok(certificate.clone());
        }
        let before = known.as_ref().map(|known| known.authorities.as_str());
        let made = Certificate::make(&self.names, now, life, before)
            .map_err(|error| kube::Error::Service(Box::new(error)))?;
        let wanted = written(&made, secret.as_ref());
        match secret {
            None => self.secrets.create(&PostParams::default(), &wanted).await?,
            // With its resourceVersion: of two who renew, one does.
            Some(_) => self.secrets.replace(SECRET, &PostParams::default(), &wanted).await?,
        };
        Ok(made)
    }

    /// Has the API trust a certificate; whether it did already.
    async fn trust(&self, certificate: &Certificate) -> Result<bool, kube::Error> {
        let live = match self.configurations.get(&self.configuration).await {
            Ok(live) => live,
            // Nobody asks.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(true),
            Err(error) => return Err(error),
        };
        let bundle = ByteString(certificate.authorities.clone().into_bytes());
        let hooks = live.webhooks.unwrap_or_default();
        if hooks.iter().all(|hook| hook.client_config.ca_bundle.as_ref() == Some(&bundle)) {
            return Ok(true);
        }
        let hooks: Vec<_> = hooks
            .iter()
            .map(|hook| json!({"name": hook.name, "clientConfig": {"caBundle": bundle}}))
            .collect();
        let patch = Patch::Strategic(json!({"webhooks": hooks}));
        let ours = PatchParams {
            field_manager: Some(controllers::FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        self.configurations.patch(&self.configuration, &ours, &patch).await?;
        Ok(false)
    }
}

fn read(secret: &Secret) -> Option<Certificate> {
    let text = |name: &str| {
        let bytes = secret.data.as_ref()?.get(name)?;
        String::from_utf8(bytes.0.clone()).ok()
    };
    let expires = secret.metadata.annotations.as_ref()?.get(EXPIRES)?.parse().ok()?;
    Some(Certificate {
        authorities: text("ca.crt")?,
        chain: text("tls.crt")?,
        key: text("tls.key")?,
        expires: Duration::from_secs(expires),
    })
}

fn written(certificate: &Certificate, before: Option<&Secret>) -> Secret {
    let mut metadata = before.map(|secret| secret.metadata.clone()).unwrap_or_default();
    metadata.name = Some(SECRET.to_owned());
    let expires = certificate.expires.as_secs().to_string();
    metadata.annotations.get_or_insert_default().insert(EXPIRES.to_owned(), expires);
    let data = [
        ("ca.crt", &certificate.authorities),
        ("tls.crt", &certificate.chain),
        ("tls.key", &certificate.key),
    ];
    let data = data.map(|(name, text)| (name.to_owned(), ByteString(text.clone().into_bytes())));
    Secret {
        metadata,
        data: Some(data.into()),
        type_: Some("kubernetes.io/tls".to_owned()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests;
