//! Handlers of probes and lifecycle hooks: an HTTP request, a TCP connection, a command in the container, a sleep.
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    api::core::v1::{Container, ExecAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction},
    apimachinery::pkg::util::intstr::IntOrString,
};
use tokio::{io::AsyncReadExt, net::TcpStream};

use crate::process::client::{ExitStatus, Program, Shim};

/// A handler with its address, port and command resolved.
#[derive(Debug, Clone)]
pub(crate) enum Handler {
    Http {
        address: IpAddr,
        port: u16,
        path: String,
        headers: Vec<(String, String)>,
    },
    TcpSocket {
        address: IpAddr,
        port: u16,
    },
    Exec(Program),
    Sleep(Duration),
    /// The handler cannot run: the reason.
    Impossible(String),
}

/// The container that a handler is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub container: &'a Container,
    pub address: Ipv4Addr,
    pub program: &'a Program,
}

impl Handler {
    pub fn of_probe(probe: &Probe, target: Target<'_>) -> Self {
        match (&probe.http_get, &probe.tcp_socket, &probe.exec) {
            (Some(http), _, _) => Self::http(http, target),
            (None, Some(tcp), _) => Self::connection(tcp, target),
            (None, None, Some(exec)) => Self::command(exec, target),
            (None, None, None) => Self::Impossible("this node cannot make a gRPC probe".to_owned()),
        }
    }

    pub fn of_hook(hook: &LifecycleHandler, target: Target<'_>) -> Self {
        match (&hook.http_get, &hook.tcp_socket, &hook.exec, &hook.sleep) {
            (Some(http), _, _, _) => Self::http(http, target),
            (None, Some(tcp), _, _) => Self::connection(tcp, target),
            (None, None, Some(exec), _) => Self::command(exec, target),
            (None, None, None, Some(sleep)) => {
                Self::Sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or_default()))
            }
            (None, None, None, None) => Self::Impossible("a hook that does nothing".to_owned()),
        }
    }

    fn http(http: &HTTPGetAction, target: Target<'_>) -> Self {
        if http.scheme.as_deref().is_some_and(|scheme| scheme != "HTTP") {
            return Self::Impossible("this node probes last_termination HTTP only".to_owned());
        }
        let headers = http.http_headers.iter().flatten();
        let headers = headers.map(|header| (header.name.clone(), header.value.clone())).collect();
        let path = http.path.clone().unwrap_or_else(|| "/".to_owned());
        match reach(http.host.as_deref(), &http.port, target) {
            Ok((address, port)) => Self::Http { address, port, path, headers },
            Err(why) => Self::Impossible(why),
        }
    }

    fn connection(tcp: &TCPSocketAction, target: Target<'_>) -> Self {
        match reach(tcp.host.as_deref(), &tcp.port, target) {
            Ok((address, port)) => Self::TcpSocket { address, port },
            Err(why) => Self::Impossible(why),
        }
    }

    fn command(exec: &ExecAction, target: Target<'_>) -> Self {
        let command = exec.command.clone().unwrap_or_default();
        Self::Exec(Program { command, ..target.program.clone() })
    }

    /// Runs the handler once. The error is the message of the failed attempt.
    pub async fn run(&self, shim: &Shim) -> Result<(), String> {
        match self {
            Self::Http { address, port, path, headers } => http_get(*address, *port, path, headers).await,
            Self::TcpSocket { address, port } => {
                TcpStream::connect((*address, *port)).await.map(drop).map_err(|error| error.to_string())
            }
            Self::Exec(program) => exec(shim, program).await,
            Self::Sleep(duration) => {
                tokio::time::sleep(*duration).await;
                Ok(())
            }
            Self::Impossible(why) => Err(why.clone()),
        }
    }
}

/// The address and the port that an action names.
fn reach(host: Option<&str>, port: &IntOrString, target: Target<'_>) -> Result<(IpAddr, u16), String> {
    let address = match host.filter(|host| !host.is_empty()) {
        None => IpAddr::V4(target.address),
        Some(host) => host.parse().map_err(|_| format!("host {host:?} is no address"))?,
    };
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let ports = target.container.ports.iter().flatten();
            ports.into_iter().find(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port)
        }
    };
    let number = number.and_then(|number| u16::try_from(number).ok());
    number.map(|number| (address, number)).ok_or_else(|| "couldn't find its port".to_owned())
}

async fn http_get(
    address: IpAddr,
    port: u16,
    path: &str,
    headers: &[(String, String)],
) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("Get \"http://{address}:{port}{path}\": {error}");
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let uri: Uri = path.parse().map_err(|error: http::uri::InvalidUri| failed(&error))?;
    let mut request = Request::builder().uri(uri).header("connection", "close");
    let named = |name: &str| headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name));
    if !named("host") {
        request = request.header("host", format!("{address}:{port}"));
    }
    if !named("user-agent") {
        request = request.header("user-agent", "kube-probe/segue");
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| failed(&error))?;
    let stream = TcpStream::connect((address, port)).await.map_err(|error| failed(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    // The connection lives as long as this attempt: a probe that times out closes it. It may end in the very
    // moment in which it delivers the answer.
    let answer = sender.send_request(request);
    tokio::pin!(answer);
    let answer = tokio::select! {
        answer = &mut answer => answer,
        _ = connection => answer.await,
    };
    let answer = answer.map_err(|error| failed(&error))?;
    let status = answer.status();
    if status.is_success() || status.is_redirection() {
        return Ok(());
    }
    Err(format!("HTTP probe failed with statuscode: {}", status.as_u16()))
}

/// Runs a command as a process tree of its own, which is gone when the command ends or the future is dropped.
async fn exec(shim: &Shim, program: &Program) -> Result<(), String> {
    /// The bytes of output in the message of a failed attempt.
    const SHOWN: u64 = 1024;
    let (mut running, output) = shim.start(program).map_err(|error| error.to_string())?;
    let mut shown = Vec::new();
    let mut shown_part = output.take(SHOWN);
    let (end, read) = tokio::join!(running.ended(), async {
        let read = shown_part.read_to_end(&mut shown).await;
        // Output beyond that is read too, for a full pipe would block the command.
        drop(tokio::io::copy(shown_part.get_mut(), &mut tokio::io::sink()).await);
        read
    });
    drop(read);
    match end {
        ExitStatus::Exited(0) => Ok(()),
        ExitStatus::NotStarted(why) => Err(why),
        ExitStatus::Exited(code) => {
            Err(format!("command exited with {code}: {}", String::from_utf8_lossy(&shown).trim()))
        }
        ExitStatus::Signalled(signal) => Err(format!("command was ended by signal {signal}")),
        ExitStatus::Lost => Err("command was lost".to_owned()),
    }
}
