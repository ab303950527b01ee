//! An answer as text.

use jiff::Timestamp;
use planner::counted;

use super::answer::{State, Wait, Why};

pub(super) fn text(why: &Why) -> String {
    let mut text = format!("{} {}\n", why.object, headline(why.state));
    let failure = why.message.as_ref().filter(|_| matches!(why.state, State::Failed | State::Aborted));
    text += &failure.map(|message| format!("\n  {message}\n")).unwrap_or_default();
    for wait in &why.waits {
        text += &paragraph(wait, why.now);
    }
    let conditions: Vec<_> = why.conditions.iter().filter(|it| Some(&it.message) != failure).collect();
    if !conditions.is_empty() {
        text += "\nConditions\n";
    }
    for it in conditions {
        let of = it.of.as_ref().map_or_else(String::new, |of| format!(" of {of}"));
        text += &format!("  {}{of}, {}: {}\n", it.ty, since(it.since, why.now), it.message);
    }
    if !why.pods.is_empty() {
        text += "\nPods that are not ready\n";
    }
    for pod in &why.pods {
        let again =
            if pod.restarts > 0 { format!(", {}", counted(pod.restarts, "restart")) } else { String::new() };
        text += &format!("  {}, {}{again}: {}\n", pod.name, since(pod.since, why.now), pod.why);
    }
    if !why.events.is_empty() && why.state != State::Idle {
        text += "\nEvents, the latest first\n";
        let width = why.events.iter().map(|event| event.reason.len()).max().unwrap_or_default();
        for event in &why.events {
            let at = event.at.map_or_else(String::new, |at| format!("{} ago", length(at, why.now)));
            text += &format!(
                "  {at:<10} {:<8} {:<width$} {}: {}\n",
                event.ty, event.reason, event.about, event.note
            );
        }
    }
    if !why.next.is_empty() {
        text += &format!("\nNext\n  {}\n", why.next.join("\n  "));
    }
    text
}

fn headline(state: State) -> &'static str {
    match state {
        State::Idle => "is up to date",
        State::Working => "is changing",
        State::Stalled => "is stalled",
        State::Failed => "has a failed rollout",
        State::Aborted => "has an aborted rollout",
        State::Paused => "is paused",
        State::NotAdopted => "belongs to another operator and is not adopted",
        State::NotSeen => "has a spec that no controller has observed",
        State::Deleting => "is being deleted",
    }
}

fn paragraph(wait: &Wait, now: Timestamp) -> String {
    let mut text = format!("\n  {}\n", wait.what);
    let mut add = |name: &str, value: &str| text += &format!("    {name:<9} {value}\n");
    if let Some(what) = &wait.what_for {
        add("waits for", what);
    }
    if let Some(since) = wait.since {
        add("since", &format!("{since}, {} ago", length(since, now)));
    }
    match wait.until {
        Some(until) if until > now => add("until", &format!("{until}, in {}", length(now, until))),
        Some(until) => add("until", &format!("{until}, {} ago", length(until, now))),
        None => {}
    }
    if let Some(then) = &wait.then {
        add("then", then);
    }
    text
}

fn since(time: Option<Timestamp>, now: Timestamp) -> String {
    time.map_or_else(|| "since an unknown time".to_owned(), |time| format!("for {}", length(time, now)))
}

/// The time between two moments, in its two largest units.
fn length(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.as_second().saturating_sub(from.as_second()).max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_two_units() {
        let told = |seconds| length(Timestamp::UNIX_EPOCH, Timestamp::from_second(seconds).unwrap());
        assert_eq!([0, 59, 60, 3_725, 90_000].map(told), ["0s", "59s", "1m0s", "1h2m", "1d1h"]);
    }
}
