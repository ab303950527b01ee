//! Ports for servers of tests.

use std::{
    fs::File,
    net::{Ipv4Addr, TcpListener},
    path::Path,
    sync::Mutex,
};

/// Below the ports that the kernel gives to those who ask for any, so that no client of another test can have one.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// The ports that this process has, until it ends.
static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A port on loopback that no other test gets as long as this process lives.
///
/// A port that is bound and let go again can be taken before the server that it is meant for binds it. This one is held
/// by a lock on a file, which other processes of tests respect and which the kernel drops with the process.
///
/// # Panics
///
/// When no file can be locked, or every port is taken.
pub fn free_port() -> u16 {
    let folder = std::env::temp_dir().join("segue-test-ports");
    std::fs::create_dir_all(&folder).expect("the folder for temporary files should be writable");
    let mut held = HELD.lock().expect("no holder of ports panics");
    // Processes begin at different ports, so that each finds one soon.
    let (process, count) = (std::process::id().wrapping_mul(37), PORTS.end - PORTS.start);
    let first = u16::try_from(process % u32::from(count)).unwrap_or_default();
    let mut ports = (0..count).map(|next| PORTS.start + (first + next) % count);
    let free = ports.find_map(|port| Some((port, lock(&folder, port)?)));
    let (port, file) = free.expect("a port should be free, and its file writable");
    held.push(file);
    port
}

fn lock(folder: &Path, port: u16) -> Option<File> {
    let file = File::options().create(true).append(true).open(folder.join(port.to_string())).ok()?;
    file.try_lock().ok()?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok().then_some(file)
}
