//! Networks of pods: a bridge of the machine, and for each pod a network namespace with an address on it. Processes of
//! two pods may then listen on the same port, and on every address, as in a cluster.
//!
//! The namespace is held by a process of the pod, so it ends with the agent in whatever way that ends, and its link with
//! it. Only the bridge can outlast an agent; the next one with the same directory takes it over.
use std::{fs, io, net::Ipv4Addr, path::Path, process::Stdio};

use serde_json::Value;
use tokio::{io::AsyncWriteExt, net::UdpSocket, process::Command};

use crate::{
    network::address::Range,
    process::{
        client::{ExitStatus, Network, Program, Running, Shim},
        orphans,
    },
};

/// The second parts of 10.0.0.0/8 that are tried. Each names a bridge.
const NUMBERS: std::ops::RangeInclusive<u8> = 64..=127;

/// A bridge. Its name is a lock: the kernel allows it once.
#[derive(Debug, Clone)]
pub(crate) struct Bridge {
    number: u8,
}

impl Bridge {
    /// Makes a bridge for the agent of a directory, or takes over the one that an earlier agent left.
    pub async fn open(directory: &Path) -> io::Result<Self> {
        let owner = directory.display().to_string();
        let mut taken = Vec::new();
        for (number, directory) in bridges().await? {
            if directory == owner {
                return Ok(Self { number });
            }
            if Path::new(&directory).exists() {
                taken.push(number);
            } else {
                Self { number }.close().await;
            }
        }
        let mut refused = None;
        for number in NUMBERS.filter(|number| !taken.contains(number)) {
            let bridge = Self { number };
            let (name, gateway) = (bridge.name(), bridge.gateway());
            match ip(&format!("link add {name} type bridge")).await {
                Ok(()) => {
                    let setup = format!(
                        "link set {name} alias {owner}\naddr add {gateway}/16 dev {name}\nlink set {name} up"
                    );
                    ip(&setup).await?;
                    return Ok(bridge);
                }
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| io::Error::other("every network is taken")))
    }

    /// Removes the bridge. The namespaces of pods are gone by then.
    pub async fn close(&self) {
        drop(ip(&format!("link del {}", self.name())).await);
    }

    fn name(&self) -> String {
        format!("segue{}", self.number)
    }

    fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.number, 0, 1)
    }

    /// The addresses of pods. That of the bridge itself is not among them.
    pub fn addresses(&self) -> Range {
        Range { first: Ipv4Addr::new(10, self.number, 16, 0), prefix: 20 }
    }

    /// Answers every question for a name with "there is none": the names that there are stand in the hosts file, and a
    /// resolver that asks for their IPv6 addresses as well would wait for its timeout. Returns if another resolver
    /// listens on this address already; it answers then.
    pub async fn answer_questions(self) {
        let Ok(socket) = UdpSocket::bind((self.gateway(), 53)).await else { return };
        let mut question = [0; 512];
        loop {
            let Ok((length, from)) = socket.recv_from(&mut question).await else { continue };
            if let Some(answer) = no_such_name(&question[..length]) {
                drop(socket.send_to(&answer, from).await);
            }
        }
    }

    /// Makes the network of a pod.
    pub async fn connect(
        &self,
        shim: &Shim,
        directory: &Path,
        address: Ipv4Addr,
        mark: String,
    ) -> io::Result<PodNetwork> {
        let holder = Program {
            command: ["sleep", "infinity"].map(str::to_owned).into(),
            environment: [
                (orphans::MARK.to_owned(), mark),
                ("PATH".to_owned(), std::env::var("PATH").unwrap_or_default()),
            ]
            .into(),
            directory: "/".into(),
            hosts: None,
            network: Network::Own,
        };
        let (mut holder, _output) = shim.start(&holder)?;
        let process = holder.started().await.map_err(|end| {
            io::Error::other(match end {
                ExitStatus::NotStarted(why) => why,
                other => format!("{other:?}"),
            })
        })?;
        let (link, bridge) = (format!("sg{process}"), self.name());
        ip(&format!(
            "link add {link} type veth peer name eth0 netns {process}\nlink set {link} master {bridge} up"
        ))
        .await?;
        let path = format!("/proc/{process}/ns/net");
        let inside = format!(
            "link set lo up\naddr add {address}/16 dev eth0\nlink set eth0 up\nroute add default via {}",
            self.gateway()
        );
        batch(Command::new("nsenter").arg(format!("--net={path}")).args(["ip", "-batch", "-"]), &inside)
            .await?;
        // The resolver of the machine cannot be reached from here.
        let resolver = directory.join("resolv.conf");
        fs::write(&resolver, format!("nameserver {}\n", self.gateway()))?;
        Ok(PodNetwork { network: Network::Pod { path, resolver }, _holder: holder })
    }
}

/// The network of a pod. It ends when this is dropped and no process of the pod is left.
#[derive(Debug)]
pub(crate) struct PodNetwork {
    pub network: Network,
    _holder: Running,
}

/// The answer of a name server that knows no name. None for what is no question.
fn no_such_name(question: &[u8]) -> Option<Vec<u8>> {
    const HEADER: usize = 12;
    let is_question = question.get(2)? & 0x80 == 0 && question.get(4..6)? == [0, 1];
    if !is_question {
        return None;
    }
    let labels = question.get(HEADER..)?.iter().position(|byte| *byte == 0)?;
    // The name with its last, empty label, the type and the class.
    let mut answer = question.get(..HEADER + labels + 5)?.to_vec();
    // A response with recursion, and the code 3: no such name. No records.
    answer[2] |= 0x80;
    answer[3] = 0x83;
    answer[6..HEADER].fill(0);
    Some(answer)
}

/// The bridges of all agents, with their directories.
async fn bridges() -> io::Result<Vec<(u8, String)>> {
    let output = Command::new("ip").args(["-json", "-details", "link", "show", "type", "bridge"]).output();
    let output = output.await.map_err(|error| io::Error::other(format!("cannot run ip: {error}")))?;
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let bridge = |link: &Value| {
        let number = link["ifname"].as_str()?.strip_prefix("segue")?.parse().ok()?;
        Some((number, link["ifalias"].as_str().unwrap_or_default().to_owned()))
    };
    Ok(list.as_array().into_iter().flatten().filter_map(bridge).collect())
}

async fn ip(lines: &str) -> io::Result<()> {
    batch(Command::new("ip").args(["-batch", "-"]), lines).await
}

/// Runs a command with these lines as its input. The error is what it printed.
async fn batch(command: &mut Command, lines: &str) -> io::Result<()> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(format!("{lines}\n").as_bytes()).await?;
    }
    let output = child.wait_with_output().await?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: &[u8] = b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\x01\x04head\x02ns\0\0\x1c\0\x01";

    #[test]
    fn every_question_has_the_same_answer() {
        // As a resolver asks that has options, which follow the question.
        let asked = [QUESTION, b"\0\0\x29\x04\xd0\0\0\0\0\0\0"].concat();
        let answer = no_such_name(&asked).unwrap();
        assert_eq!(answer[..2], QUESTION[..2], "the number of the question");
        assert_eq!((answer[2] & 0x80, answer[3] & 0x0f), (0x80, 3), "a response: no such name");
        assert_eq!(answer[4..12], [0, 1, 0, 0, 0, 0, 0, 0], "no record but the question");
        assert_eq!(answer[12..], QUESTION[12..]);
    }

    #[test]
    fn what_is_no_question_has_no_answer() {
        let mut response = QUESTION.to_vec();
        response[2] |= 0x80;
        for message in [&QUESTION[..11], &QUESTION[..QUESTION.len() - 1], &[], &response] {
            assert_eq!(no_such_name(message), None);
        }
    }
}
