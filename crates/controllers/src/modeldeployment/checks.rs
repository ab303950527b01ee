//! The checks of a rollout: what the answers of the new version say, by the counters of the gateway, and what something
//! outside says of it.

use api::modeldeployment::{
    self as spec, CanaryStep, Check, CheckStatus, CheckVerdict, ModelDeploymentSpec, Rollout, When,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use planner::{
    Time,
    handover::{
        Verdict,
        checks::{self, Answers, NoData, Standing},
    },
};

use super::outside_checks::{self, Asked};
use crate::{
    Answer, Call, count, int,
    runtime::{Times, timestamp},
};

/// Whether a check is made by the counters of the gateway: of errors, while the new version gets traffic.
pub(super) fn is_counted(check: &Check) -> bool {
    check.max_error_percent.is_some() && check.when == When::During && check.compared_to.is_none()
}

/// The checks by counters, in the planner's words.
fn made(spec: &ModelDeploymentSpec) -> impl Iterator<Item = (&Check, checks::Check)> {
    let all = spec.analysis.iter().flat_map(|analysis| &analysis.checks);
    all.filter(|check| is_counted(check)).map(|check| {
        let most = check.max_error_percent.as_ref().and_then(spec::Decimal::millis).unwrap_or_default();
        let no_data = match check.no_data {
            spec::NoData::Wait => NoData::Wait,
            spec::NoData::Pass => NoData::Pass,
            spec::NoData::Fail => NoData::Fail,
        };
        let window = Time::from_secs(u64::from(count(check.window_seconds)));
        let rules = checks::Check {
            most: u32::try_from(most).unwrap_or_default(),
            window,
            least: u64::from(count(check.min_requests)),
            failures: count(check.failures),
            no_data,
        };
        (check, rules)
    })
}

/// A check and how it stands.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    name: String,
    by: By,
    standing: Standing,
    /// Whether the step that the rollout is at asks for it.
    is_asked: bool,
}

/// What judges.
#[derive(Clone, Debug)]
enum By {
    Counters(checks::Check),
    Outside(Box<Asked>),
}

/// How the checks stood when the status was written, by name.
pub(super) fn written(rollout: &Rollout, times: &Times) -> Vec<(String, Standing)> {
    let adjusted = rollout.adjusted_at.as_ref().map(|time| time.0);
    let at = |time: &MicroTime| times.moment_of(time.0, adjusted);
    let number = |number: i64| u64::try_from(number).unwrap_or_default();
    let standing = |check: &CheckStatus| Standing {
        since: at(&check.since),
        counted: Answers { all: number(check.answers), errors: number(check.errors) },
        bad: count(check.failures),
        verdict: match check.verdict {
            CheckVerdict::Open => Verdict::Open,
            CheckVerdict::Passed => Verdict::Passed,
            CheckVerdict::Failed => Verdict::Failed,
        },
        judged: check.judged_at.as_ref().map(|time| (at(time), Answers::default())),
    };
    rollout.checks.iter().map(|check| (check.name.clone(), standing(check))).collect()
}

/// How each check stands of a version that gets traffic, now that so much is counted and these are asked outside.
pub(super) fn judge(
    spec: &ModelDeploymentSpec,
    step: u32,
    before: &[(String, Standing)],
    counted: Option<Answers>,
    outside: Vec<Asked>,
    now: Time,
) -> Vec<Judged> {
    let step = spec.strategy.canary.as_ref().and_then(|canary| canary.steps.get(step as usize));
    let asked = step.and_then(|step: &CanaryStep| step.analysis.as_ref()).map(|it| &it.checks);
    let is_asked = |name: &String| asked.is_none_or(|asked| asked.is_empty() || asked.contains(name));
    let counted = made(spec).map(|(check, rules)| {
        let known = before.iter().find(|(name, _)| *name == check.name).map(|(_, standing)| *standing);
        let standing = rules.judge(known, counted, now);
        let (name, by) = (check.name.clone(), By::Counters(rules));
        Judged { is_asked: is_asked(&name), name, by, standing }
    });
    let outside = outside.into_iter().map(|asked| {
        let (name, standing) = (asked.name().to_owned(), asked.standing);
        Judged { is_asked: is_asked(&name), name, standing, by: By::Outside(Box::new(asked)) }
    });
    counted.chain(outside).collect()
}

/// How the checks by calls stand alone, before the new version gets traffic.
pub(super) fn before_traffic(asked: Vec<Asked>) -> Vec<Judged> {
    let judged = |asked: Asked| Judged {
        name: asked.name().to_owned(),
        standing: asked.standing,
        is_asked: false,
        by: By::Outside(Box::new(asked)),
    };
    asked.into_iter().map(judged).collect()
}

/// The calls that are made now.
pub(super) fn calls(judged: &[Judged]) -> Vec<Call> {
    let call = |it: &Judged| match &it.by {
        By::Counters(_) => None,
        By::Outside(asked) => asked.call.clone(),
    };
    judged.iter().filter_map(call).collect()
}

/// What the checks say of the step that was entered at a time: bad where one of them failed, and good where each that the
/// step asks for was judged since and passed.
pub(super) fn verdict(judged: &[Judged], step_since: Time) -> Verdict {
    if judged.iter().any(|it| it.standing.verdict == Verdict::Failed) {
        return Verdict::Failed;
    }
    let mut asked = judged.iter().filter(|it| it.is_asked).peekable();
    let is_any = asked.peek().is_some();
    let passed = |it: &Judged| {
        it.standing.verdict == Verdict::Passed && it.standing.judged.is_some_and(|(at, _)| at > step_since)
    };
    if is_any && asked.all(passed) { Verdict::Passed } else { Verdict::Open }
}

/// When the next window ends, or the next call is made.
pub(super) fn next(judged: &[Judged], now: Time) -> Option<Time> {
    let next = |it: &Judged| match &it.by {
        By::Counters(rules) => Some(it.standing.since + rules.window),
        By::Outside(asked) => asked.next,
    };
    judged.iter().filter_map(next).filter(|at| *at > now).min()
}

/// The checks as the status has them, after what was heard. What was said stays until it is judged again, and so does what is
/// not judged now.
pub(super) fn status(judged: &[Judged], before: &[CheckStatus], heard: &[Answer]) -> Vec<CheckStatus> {
    let known = |name: &str| before.iter().find(|known| known.name == name);
    let status = |it: &Judged| match &it.by {
        By::Counters(rules) => counted(it, rules, known(&it.name)),
        By::Outside(asked) => outside_checks::status(asked, known(&it.name), heard),
    };
    let is_judged = |known: &&CheckStatus| judged.iter().any(|it| it.name == known.name);
    let others = before.iter().filter(|known| !is_judged(known)).cloned();
    judged.iter().map(status).chain(others).take(MOST).collect()
}

/// The checks that a spec can have, and the probe.
const MOST: usize = 17;

fn counted(it: &Judged, rules: &checks::Check, known: Option<&CheckStatus>) -> CheckStatus {
    let micro = |time: Time| MicroTime(timestamp(time));
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let Standing { since, counted, bad, verdict, judged } = it.standing;
    // What was read from the status has its answers there, in words.
    let anew = judged.filter(|(at, _)| known.is_none_or(|known| known.judged_at != Some(micro(*at))));
    CheckStatus {
        name: it.name.clone(),
        verdict: match verdict {
            Verdict::Passed => CheckVerdict::Passed,
            Verdict::Failed => CheckVerdict::Failed,
            Verdict::Open | Verdict::CrashLoop | Verdict::NoRoom => CheckVerdict::Open,
        },
        failures: int(bad),
        message: match anew {
            Some((_, answers)) => Some(said(&it.name, rules, answers)),
            None => known.and_then(|known| known.message.clone()),
        },
        judged_at: judged.map(|(at, _)| micro(at)),
        since: micro(since),
        answers: number(counted.all),
        errors: number(counted.errors),
    }
}

fn said(name: &str, rules: &checks::Check, Answers { all, errors }: Answers) -> String {
    let most = match (rules.most / 1_000, rules.most % 1_000) {
        (whole, 0) => format!("{whole}%"),
        (whole, part) => format!("{}%", format!("{whole}.{part:03}").trim_end_matches('0')),
    };
    let seconds = rules.window.as_secs();
    if all < rules.least {
        return format!("check {name}: {all} answers in {seconds} s, and {} are needed", rules.least);
    }
    format!("check {name}: {errors} of {all} answers were errors in {seconds} s or more, and {most} may be")
}

/// What the first check said last that has no verdict yet: what a rollout waited for until its deadline.
pub(super) fn open(checks: &[CheckStatus]) -> Option<String> {
    let is_open = |check: &&CheckStatus| check.verdict == CheckVerdict::Open && check.message.is_some();
    checks.iter().find(is_open)?.message.clone()
}

/// What the check said that failed.
pub(super) fn failed(checks: &[CheckStatus]) -> Option<String> {
    checks.iter().find(|check| check.verdict == CheckVerdict::Failed)?.message.clone()
}
