//! A pod on this machine, as the API tells of it.

use std::{fs, process::Command};

use serde_json::Value;

/// Whether it is Ready, and stays.
pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
        && pod["metadata"]["deletionTimestamp"].is_null()
}

pub fn address(pod: &Value) -> &str {
    pod["status"]["podIP"].as_str().unwrap()
}

/// Kills the server of a pod, but not the one who watches it.
pub fn kill(pod: &Value) {
    let mark = format!("POD_IP={}", address(pod));
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let holds = |file: &str, text: &str| {
        fs::read(file).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
    };
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let server = |pid: &String| {
        let (environment, line) = (format!("/proc/{pid}/environ"), format!("/proc/{pid}/cmdline"));
        holds(&environment, &mark) && holds(&environment, uid) && !holds(&line, "__pod-shim")
    };
    let servers: Vec<String> = processes.filter(server).collect();
    assert_eq!(servers.len(), 1, "{servers:?}");
    assert!(Command::new("kill").args(["-9", &servers[0]]).status().unwrap().success());
}
