//! Groups to plan for, and a small world that carries the writes out.

// Several test binaries include this file, and not each uses all of it.
#![allow(dead_code)]

use std::time::Duration;

use planner::{
    Amount, Uid,
    roles::{
        Group, GroupSpec, Op, Plan, Recorded, Replica, RoleHash, RoleSpec, SetSpec, State, Step, Turn,
        plan_group,
    },
};

pub const NOW: Duration = Duration::from_secs(1000);

pub fn hash(name: &str) -> RoleHash {
    RoleHash(name.to_owned())
}

pub fn role(name: &str, replicas: u32, target: &str) -> RoleSpec {
    RoleSpec { name: name.to_owned(), replicas, target: hash(target), max_unavailable: 1, min_replicas: None }
}

pub fn count(role: &str, count: u32) -> Step {
    Step { role: role.to_owned(), update_to: Amount::Count(count) }
}

pub fn percent(role: &str, percent: u32) -> Step {
    Step { role: role.to_owned(), update_to: Amount::Percent(percent) }
}

/// The proposal's steps: a decode canary, a prefill canary, all prefill, all decode.
pub fn pd_steps() -> Vec<Step> {
    vec![count("decode", 1), count("prefill", 1), percent("prefill", 100), percent("decode", 100)]
}

/// Decode and prefill with so many replicas, to be upgraded from `a` to `b` by the proposal's steps.
pub fn pd(decode: u32, prefill: u32) -> GroupSpec {
    let roles = vec![role("decode", decode, "b"), role("prefill", prefill, "b")];
    GroupSpec { roles, steps: pd_steps(), ..GroupSpec::default() }
}

pub fn recorded(role: &str, replicas: u32, name: &str) -> Recorded {
    Recorded { role: role.to_owned(), hash: hash(name), replicas }
}

pub fn replica(role: &str, ordinal: u32, name: &str, state: State) -> Replica {
    Replica {
        role: role.to_owned(),
        ordinal,
        uid: Uid(format!("{role}-{ordinal}-{name}")),
        hash: hash(name),
        state,
        since: NOW,
        failed: false,
        deletion_cost: 0,
        blocking: None,
    }
}

/// Replicas of a role, one for each letter from ordinal 0: the hash, in capitals while it is not Ready; `-` is missing,
/// `~` an `a` that drains and `.` an `a` that terminates.
pub fn replicas(role: &str, letters: &str) -> Vec<Replica> {
    let one = |(ordinal, letter): (usize, char)| {
        let ordinal = u32::try_from(ordinal).expect("should be few");
        let name = letter.to_lowercase().to_string();
        Some(match letter {
            '-' => return None,
            '~' => replica(role, ordinal, "a", State::Leaving { done: false }),
            '.' => replica(role, ordinal, "a", State::Terminating),
            letter if letter.is_uppercase() => replica(role, ordinal, &name, State::Starting),
            _ => replica(role, ordinal, &name, State::Ready),
        })
    };
    letters.chars().enumerate().filter_map(one).collect()
}

/// A group that had revision `a` in these roles.
pub fn group(roles: &[(&str, &str)]) -> Group {
    let size = |letters: &str| u32::try_from(letters.len()).expect("should be few");
    Group {
        ordinal: 0,
        recorded: roles.iter().map(|(role, letters)| recorded(role, size(letters), "a")).collect(),
        replicas: roles.iter().flat_map(|(role, letters)| replicas(role, letters)).collect(),
    }
}

pub fn admitted(spec: &GroupSpec, group: &Group) -> Plan {
    plan_group(spec, group, Turn::Admitted, NOW)
}

/// Writes in short: `+decode-3@b`, `out decode-3`, `-decode-3`.
pub fn short(ops: &[Op]) -> Vec<String> {
    ops.iter()
        .map(|op| match op {
            Op::Create { role, ordinal, hash } => format!("+{role}-{ordinal}@{hash}"),
            Op::TakeOut { role, ordinal, .. } => format!("out {role}-{ordinal}"),
            Op::Delete { role, ordinal, .. } => format!("-{role}-{ordinal}"),
        })
        .collect()
}

pub fn acts(spec: &GroupSpec, group: &Group) -> Vec<String> {
    short(&admitted(spec, group).ops)
}

/// Carries a write out as a server would: by uid, and only on what still is as it was decided on.
pub fn apply(group: &mut Group, op: &Op, uid: Uid) {
    let at = |role: &String, ordinal: &u32| {
        group.replicas.iter().position(|replica| replica.role == *role && replica.ordinal == *ordinal)
    };
    match op {
        Op::Create { role, ordinal, hash } => {
            if at(role, ordinal).is_none() {
                group.replicas.push(Replica { uid, ..replica(role, *ordinal, &hash.0, State::Starting) });
            }
        }
        Op::TakeOut { role, ordinal, uid } => {
            let found = at(role, ordinal).map(|at| &mut group.replicas[at]);
            if let Some(found) = found.filter(|found| found.uid == *uid && found.state == State::Ready) {
                found.state = State::Leaving { done: false };
            }
        }
        Op::Delete { role, ordinal, uid, seen } => {
            let found = at(role, ordinal).map(|at| &mut group.replicas[at]);
            if let Some(found) = found.filter(|found| found.uid == *uid && found.state == *seen) {
                found.state = State::Terminating;
            }
        }
    }
}

/// How many replicas of a role are Ready.
pub fn ready(group: &Group, role: &str) -> usize {
    group.replicas.iter().filter(|replica| replica.role == role && replica.state == State::Ready).count()
}

/// A set of groups of one replica of each role, to be upgraded from `a` to `b`.
pub fn set(replicas: u32, partition: u32, max_unavailable: u32) -> SetSpec {
    let current = vec![recorded("decode", 1, "a"), recorded("prefill", 1, "a")];
    SetSpec { group: pd(1, 1), replicas, partition, max_unavailable, current }
}
