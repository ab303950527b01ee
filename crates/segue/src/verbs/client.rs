//! The connection to an API: kubeconfig, requests, responses.

use std::{env, fmt, path::PathBuf};

use bytes::Bytes;
use clap::Args as ClapArgs;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;

use super::{failure::Failure, stream::Lines};
use crate::{output::Error, up};

/// The options that choose an API and a namespace.
#[derive(ClapArgs)]
pub(crate) struct Connection {
    /// The kubeconfig [default: $KUBECONFIG, that of `segue up`, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The namespace [default: that of the context, or `default`]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Print the kubeconfig, the server and the namespace
    #[arg(short, long)]
    verbose: bool,
}

/// Where a kubeconfig came from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Flag(PathBuf),
    Environment,
    Up(PathBuf),
    Home,
}

impl Origin {
    /// The first that is there.
    fn choose(flag: Option<&PathBuf>) -> Self {
        if let Some(path) = flag {
            return Self::Flag(path.clone());
        }
        if env::var_os("KUBECONFIG").is_some_and(|paths| !paths.is_empty()) {
            return Self::Environment;
        }
        let up = up::default_directory().map(|directory| directory.join("kubeconfig"));
        up.filter(|path| path.exists()).map_or(Self::Home, Self::Up)
    }

    async fn config(&self, context: Option<&String>) -> Result<Config, Error> {
        let failed = |why: String| Error::Kubeconfig { origin: self.to_string(), why };
        let options = KubeConfigOptions { context: context.cloned(), ..KubeConfigOptions::default() };
        let kubeconfig = match self {
            Self::Flag(path) | Self::Up(path) => Kubeconfig::read_from(path).map(Some),
            Self::Environment => Kubeconfig::from_env(),
            Self::Home => Ok(None),
        };
        let config = match kubeconfig.map_err(|error| failed(error.to_string()))? {
            Some(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options).await,
            None => Config::from_kubeconfig(&options).await,
        };
        // A pod without a kubeconfig has what its service account gives it.
        let in_pod = || Config::incluster().ok().filter(|_| *self == Self::Home && context.is_none());
        config.or_else(|error| in_pod().ok_or_else(|| failed(error.to_string())))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(path) => write!(f, "{} (--kubeconfig)", path.display()),
            Self::Environment => {
                write!(f, "{} ($KUBECONFIG)", env::var("KUBECONFIG").unwrap_or_default())
            }
            Self::Up(path) => write!(f, "{} (of `segue up`)", path.display()),
            Self::Home => f.write_str("~/.kube/config"),
        }
    }
}

/// A connected API.
pub(super) struct Cluster {
    client: Client,
    /// The namespace of objects that name none.
    pub namespace: String,
    server: String,
    origin: Origin,
}

/// A client, its server and its namespace.
pub(crate) struct Connected {
    pub client: Client,
    pub server: String,
    pub namespace: String,
}

/// A response, successful or not.
pub(super) struct ApiResponse {
    pub code: StatusCode,
    pub body: Value,
}

impl ApiResponse {
    /// Returns the body, or the refusal in the API's own words.
    pub fn into_body(self) -> Result<Value, Failure> {
        if self.code.is_success() { Ok(self.body) } else { Err(Failure::Refused(self.message())) }
    }

    pub fn message(&self) -> String {
        match self.body["message"].as_str() {
            Some(message) => message.to_owned(),
            None => format!("the server answered {}", self.code),
        }
    }
}

/// A request. Whatever is not set has a default.
#[derive(Default)]
pub(super) struct ApiRequest {
    pub method: Method,
    /// With its query.
    pub path: String,
    pub accept: Option<&'static str>,
    pub content: Option<&'static str>,
    pub body: Vec<u8>,
}

impl ApiRequest {
    pub fn get(path: impl Into<String>) -> Self {
        Self { path: path.into(), ..Self::default() }
    }
}

impl Cluster {
    pub async fn connect(connection: &Connection) -> Result<Self, Failure> {
        let Connection { kubeconfig, context, namespace, verbose } = connection;
        let origin = Origin::choose(kubeconfig.as_ref());
        let mut config = origin.config(context.as_ref()).await?;
        if is_loopback(config.cluster_url.host().unwrap_or_default()) {
            // The library takes one from the environment, for loopback too.
            config.proxy_url = None;
        }
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let namespace = namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        if *verbose {
            eprintln!("kubeconfig: {origin}; server: {server}; namespace: {namespace}");
        }
        let failed = |why: String| Error::Kubeconfig { origin: origin.to_string(), why };
        let client = Client::try_from(config).map_err(|error| failed(error.to_string()))?;
        Ok(Self { client, namespace, server, origin })
    }

    /// Returns a client of the same API.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns what long-running commands need.
    pub fn connected(self) -> Connected {
        Connected { client: self.client, server: self.server, namespace: self.namespace }
    }

    /// Sends a request and reads the whole response. Fails when there is none, or when it says nothing about the request.
    pub async fn ask(&self, ask: ApiRequest) -> Result<ApiResponse, Failure> {
        let response = self.send(ask).await?;
        let (head, body) = response.into_parts();
        warn(&head.headers);
        let bytes = body.collect_bytes().await.map_err(|error| self.no_response(&error))?;
        self.checked(ApiResponse { code: head.status, body: read(&bytes) })
    }

    /// Sends a request whose response is a stream. A refusal is read to its end.
    pub async fn follow(&self, ask: ApiRequest) -> Result<Lines, Failure> {
        self.open(ask).await?.map_err(|refusal| Failure::Refused(refusal.message()))
    }

    /// The same, and returns a refusal as a response.
    pub async fn open(&self, ask: ApiRequest) -> Result<Result<Lines, ApiResponse>, Failure> {
        let response = self.send(ask).await?;
        let code = response.status();
        if code.is_success() && code != StatusCode::NO_CONTENT {
            return Ok(Ok(Lines::new(response.into_body())));
        }
        let bytes = response.into_body().collect_bytes().await.map_err(|error| self.no_response(&error))?;
        self.checked(ApiResponse { code, body: read(&bytes) }).map(Err)
    }

    /// Fails for a response that says nothing about the request: the client is not authenticated, or the server is
    /// overloaded. 500 is about the request: a kube-apiserver refuses an apply of an unknown field with it.
    fn checked(&self, answered: ApiResponse) -> Result<ApiResponse, Failure> {
        match answered.code {
            StatusCode::UNAUTHORIZED => Err(Failure::usage(format!(
                "{} does not accept the credentials of the kubeconfig {}; name another with --kubeconfig",
                self.server, self.origin
            ))),
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(Failure::usage(format!(
                "{} cannot answer now: {}; try again",
                self.server,
                answered.message()
            ))),
            _ => Ok(answered),
        }
    }

    async fn send(&self, ask: ApiRequest) -> Result<Response<Body>, Failure> {
        let ApiRequest { method, path, accept, content, body } = ask;
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(header::ACCEPT, accept.unwrap_or("application/json"));
        if let Some(content) = content {
            request = request.header(header::CONTENT_TYPE, content);
        }
        let request = request
            .body(Body::from(body))
            .map_err(|error| Failure::usage(format!("bad request: {error}")))?;
        self.client.send(request).await.map_err(|error| self.no_response(&error))
    }

    fn no_response(&self, error: &dyn std::error::Error) -> Failure {
        // The last cause is the useful one: refused, timed out, a certificate.
        let mut cause = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        Failure::Failed(Error::NoServer {
            server: self.server.clone(),
            origin: self.origin.to_string(),
            why: cause.to_string(),
        })
    }
}

/// Returns the JSON of a body, or its text as a message.
fn read(bytes: &Bytes) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(bytes).trim().to_owned();
        if text.is_empty() { Value::Null } else { serde_json::json!({"message": text}) }
    })
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Prints the warnings of a response: `299 - "text"`.
fn warn(headers: &HeaderMap) {
    for value in headers.get_all(header::WARNING).iter().filter_map(|value| value.to_str().ok()) {
        let text = value.split_once('"').map_or(value, |(_, text)| text.trim_end_matches('"'));
        eprintln!("warning: {}", text.replace("\\\"", "\"").replace("\\\\", "\\"));
    }
}

/// Returns a text encoded as one segment of a path.
pub(super) fn segment(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    let encode = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

/// Returns a path with those parameters that have a value.
pub(super) fn with_query(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(parameters.iter().filter(|(_, value)| !value.is_empty()));
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_stays_one_segment_of_the_path() {
        assert_eq!(segment("web-0.a"), "web-0.a");
        assert_eq!(segment("../x?y#z é"), "..%2Fx%3Fy%23z%20%C3%A9");
        assert_eq!(with_query("/p", &[("a", "x=y,z"), ("b", "")]), "/p?a=x%3Dy%2Cz");
        assert_eq!(with_query("/p", &[("a", "")]), "/p");
    }

    #[test]
    fn loopback_needs_no_proxy() {
        for host in ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        assert!(!is_loopback("10.0.0.1") && !is_loopback("example.com"));
    }
}
