//! Checks that something outside judges before or while a version gets traffic: the probe of the service, an HTTP check, a
//! query of Prometheus.
//!
//! A call is made under an id that has the beginning of its window, and its answer ends the window in the status: each is
//! judged once, whatever process makes the call.

use std::{net::IpAddr, sync::Arc};

use api::modeldeployment::{
    Check, CheckStatus, CheckVerdict, Decimal, HttpMethod, HttpProbe, ModelDeploymentSpec, NoData, Protocol,
    When,
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::ResourceExt;
use planner::{
    Time,
    handover::{
        Verdict,
        checks::{Answers, Standing},
    },
};
use serde_json::Value;

use super::observe::{Observed, Version};
use crate::{Answer, Call, Expects, count, labels, outside, runtime::timestamp, units, wait::cut};

/// The name of the probe among the checks: no check can be called so.
pub(super) const PROBE: &str = "health.probe";

/// How long after an answer the probe is made again.
const PROBE_AGAIN: Time = Time::from_secs(5);

/// The longest message that is kept of an answer.
const LONGEST: usize = 400;

/// Whether a check is made by a call.
pub(super) fn is_made(check: &Check) -> bool {
    let http = check.http.as_ref().map(|http| &http.url);
    let address = http.or_else(|| check.prometheus.as_ref().map(|it| &it.address));
    // Calls speak no TLS.
    address.is_some_and(|address| !address.starts_with("https:"))
        && check.when != When::After
        && check.compared_to.is_none()
}

/// Whether a version has passed everything that is asked of it before it gets traffic.
pub(super) fn are_passed(spec: &ModelDeploymentSpec, written: &[(String, Standing)]) -> bool {
    let passed =
        |name: &str| written.iter().any(|(known, it)| known == name && it.verdict == Verdict::Passed);
    wanted(spec, When::BeforeTraffic).iter().all(|what| passed(what.name()))
}

/// What is judged by a call.
#[derive(Clone, Debug)]
enum What {
    Probe(HttpProbe),
    Check(Check),
}

impl What {
    fn name(&self) -> &str {
        match self {
            Self::Probe(_) => PROBE,
            Self::Check(check) => &check.name,
        }
    }

    fn window(&self) -> Time {
        match self {
            Self::Probe(_) => PROBE_AGAIN,
            Self::Check(check) => Time::from_secs(u64::from(count(check.window_seconds))),
        }
    }
}

fn wanted(spec: &ModelDeploymentSpec, when: When) -> Vec<What> {
    let probe = spec.health.probe.iter().filter(|_| when == When::BeforeTraffic);
    let checks = spec.analysis.iter().flat_map(|analysis| &analysis.checks);
    let checks = checks.filter(|check| is_made(check) && check.when == when);
    probe.map(|probe| What::Probe(probe.http.clone())).chain(checks.cloned().map(What::Check)).collect()
}

/// A check that something outside judges.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    what: What,
    pub(super) standing: Standing,
    /// The call that is made now.
    pub(super) call: Option<Call>,
    /// When it is made, if that is later.
    pub(super) next: Option<Time>,
    /// When it is judged, and its next window begins: the time of these controllers, not that of the answer, whose clock may
    /// be ahead. A window that begins later than now would be over at once, again and again.
    at: Time,
    /// There is a version to go back to.
    is_final: bool,
}

impl Asked {
    pub(super) fn name(&self) -> &str {
        self.what.name()
    }
}

/// The checks that are to be judged now that the new version gets traffic, or before it does.
pub(super) fn ask(observed: &Observed, gets_traffic: bool, now: Time) -> Vec<Asked> {
    let when = if gets_traffic { When::During } else { When::BeforeTraffic };
    let Some(target) = observed.target() else { return Vec::new() };
    let Some(address) = address(observed, target) else { return Vec::new() };
    let ask = |what: What| {
        let known =
            observed.checks.iter().find(|(name, _)| name == what.name()).map(|(_, standing)| *standing);
        let open = Standing {
            since: now,
            counted: Answers::default(),
            bad: 0,
            verdict: Verdict::Open,
            judged: None,
        };
        let standing = known.unwrap_or(open);
        let is_first = standing.judged.is_none() && when == When::BeforeTraffic;
        let due = if is_first { standing.since } else { standing.since + what.window() };
        // What a version has proven before it gets traffic is proven.
        let is_over = standing.verdict == Verdict::Failed
            || (when == When::BeforeTraffic && standing.verdict == Verdict::Passed);
        let call = (!is_over && due <= now).then(|| call(&what, observed, target, &address, standing.since));
        let next = (!is_over && due > now).then_some(due);
        Asked { what, standing, call, next, at: now, is_final: observed.current().is_some() }
    };
    wanted(&observed.deployment.spec, when).into_iter().map(ask).collect()
}

/// The address of a ready replica of a version, and its port.
fn address(observed: &Observed, version: &Version) -> Option<String> {
    let is_leader = |pod: &&Arc<Pod>| {
        pod.labels().get(labels::WORKER_INDEX).is_some_and(|index| index == "0")
            && units::condition(pod, "Ready").is_some_and(|it| it.status == "True")
            && !units::is_going(pod)
    };
    let pod = version.pods.iter().filter(is_leader).min_by_key(|pod| pod.name_any())?;
    let address: IpAddr = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
    let ports = &observed.deployment.spec.traffic.ports;
    let port = ports.iter().find(|port| port.protocol == Protocol::Http).or_else(|| ports.first())?;
    Some(match address {
        IpAddr::V4(address) => format!("http://{address}:{}", port.port),
        IpAddr::V6(address) => format!("http://[{address}]:{}", port.port),
    })
}

fn call(what: &What, observed: &Observed, target: &Version, address: &str, since: Time) -> Call {
    let rollout = observed.deployment.status.as_ref().and_then(|status| status.rollout.as_ref());
    let rollout = rollout.map_or(target.hash.as_str(), |rollout| rollout.id.as_str());
    let id = format!("{rollout}/{}/{}", what.name(), since.as_micros());
    let filled = |text: &str| text.replace("{{preview}}", address).replace("{{version}}", &target.hash);
    let (method, url, body, expects) = match what {
        What::Probe(probe) => {
            let method = match probe.method {
                HttpMethod::Get => "GET",
                HttpMethod::Post => "POST",
            };
            let body = probe.body.clone().map(Value::String);
            let expects = u16::try_from(probe.expect_status).unwrap_or(200);
            (method, format!("{address}{}", probe.path), body, Expects::Status(expects))
        }
        What::Check(check) => {
            let http = check.http.as_ref().map(|http| filled(&http.url));
            let query = check.prometheus.as_ref().map(|it| {
                let address = it.address.trim_end_matches('/');
                format!("{address}/api/v1/query?query={}", encoded(&filled(&it.query)))
            });
            ("GET", http.or(query).unwrap_or_default(), None, Expects::Json)
        }
    };
    Call { target: what.name().to_owned(), id, url, method, body, expects }
}

/// A text as a value of a query.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// What an answer says of a version.
#[derive(Debug, PartialEq)]
enum CheckOutcome {
    Good(String),
    Bad(String),
    Nothing(String),
}

fn says(what: &What, result: &Result<Value, String>) -> CheckOutcome {
    match (what, result) {
        (What::Probe(_), Ok(_)) => CheckOutcome::Good("it answered as it should".to_owned()),
        (What::Probe(_), Err(why)) => CheckOutcome::Bad(why.clone()),
        (What::Check(check), Ok(answer)) if check.http.is_some() => says_http(answer),
        (What::Check(check), Err(why)) if check.http.is_some() && outside::is_answer(why) => {
            CheckOutcome::Bad(why.clone())
        }
        (What::Check(_), Err(why)) => CheckOutcome::Nothing(why.clone()),
        (What::Check(check), Ok(answer)) => says_query(check, answer),
    }
}

fn says_http(answer: &Value) -> CheckOutcome {
    let told = answer["message"].as_str().map(|text| format!(": {text}")).unwrap_or_default();
    match answer["ok"].as_bool() {
        Some(true) => CheckOutcome::Good(format!("it answered ok{told}")),
        Some(false) => CheckOutcome::Bad(format!("it answered not ok{told}")),
        None => CheckOutcome::Bad("its answer has no field ok".to_owned()),
    }
}

/// Every value of the answer must be within the bounds.
fn says_query(check: &Check, answer: &Value) -> CheckOutcome {
    let result = &answer["data"]["result"];
    let text = |sample: &Value| sample[1].as_str().map(ToOwned::to_owned);
    let samples: Option<Vec<String>> = match answer["data"]["resultType"].as_str() {
        Some("scalar") => text(result).map(|value| vec![value]),
        _ => result.as_array().map(|all| all.iter().filter_map(|series| text(&series["value"])).collect()),
    };
    let samples = samples.unwrap_or_default();
    let values: Vec<f64> =
        samples.iter().filter_map(|text| text.parse().ok()).filter(|value: &f64| !value.is_nan()).collect();
    if values.is_empty() || values.len() < samples.len() {
        return CheckOutcome::Nothing("the query has no value".to_owned());
    }
    let bound = |bound: &Option<Decimal>| bound.as_ref().and_then(Decimal::millis).map(number);
    let beyond = values.iter().find_map(|value| match (bound(&check.max), bound(&check.min)) {
        (Some(max), _) if *value > max => Some(format!("{value} is more than {max}")),
        (_, Some(min)) if *value < min => Some(format!("{value} is less than {min}")),
        _ => None,
    });
    match beyond {
        Some(beyond) => CheckOutcome::Bad(beyond),
        None => CheckOutcome::Good(samples.join(", ")),
    }
}

/// Thousandths as a number with a fraction.
fn number(millis: i64) -> f64 {
    format!("{}.{:03}", millis / 1_000, millis % 1_000).parse().unwrap_or(f64::NAN)
}

/// How a check stands after what was heard of it.
pub(super) fn status(asked: &Asked, known: Option<&CheckStatus>, heard: &[Answer]) -> CheckStatus {
    let micro = |time: Time| MicroTime(timestamp(time));
    let standing = asked.standing;
    let status = |standing: Standing, message: Option<String>| CheckStatus {
        name: asked.name().to_owned(),
        verdict: match standing.verdict {
            Verdict::Passed => CheckVerdict::Passed,
            Verdict::Failed => CheckVerdict::Failed,
            Verdict::Open | Verdict::CrashLoop | Verdict::NoRoom => CheckVerdict::Open,
        },
        failures: i32::try_from(standing.bad).unwrap_or(i32::MAX),
        message,
        judged_at: standing.judged.map(|(at, _)| micro(at)),
        since: micro(standing.since),
        answers: 0,
        errors: 0,
    };
    let call = asked.call.as_ref();
    let answer = call.and_then(|call| heard.iter().find(|it| it.target == call.target && it.id == call.id));
    match answer {
        None => status(standing, known.and_then(|known| known.message.clone())),
        Some(answer) => {
            let (standing, message) = judged(asked, answer);
            status(standing, Some(cut(&format!("check {}: {message}", asked.name()), LONGEST)))
        }
    }
}

fn judged(asked: &Asked, answer: &Answer) -> (Standing, String) {
    let (failures, no_data) = match &asked.what {
        // Until it passes nothing is served: only the deadline of the rollout ends that.
        What::Probe(_) => (u32::MAX, NoData::Wait),
        What::Check(check) => (count(check.failures), check.no_data),
    };
    let before = Standing { since: asked.at, judged: Some((asked.at, Answers::default())), ..asked.standing };
    let (is_good, message) = match says(&asked.what, &answer.result) {
        CheckOutcome::Good(message) => (true, message),
        CheckOutcome::Bad(message) => (false, message),
        CheckOutcome::Nothing(why) => match no_data {
            NoData::Wait => {
                let open = Standing { verdict: Verdict::Open, ..before };
                return (open, format!("nothing to judge: {why}; it is asked again"));
            }
            NoData::Pass => (true, format!("nothing to judge, which passes: {why}")),
            NoData::Fail => (false, format!("nothing to judge, which fails: {why}")),
        },
    };
    let bad = if is_good { 0 } else { asked.standing.bad.saturating_add(1) };
    let verdict = match bad {
        0 => Verdict::Passed,
        bad if bad >= failures && asked.is_final => Verdict::Failed,
        _ => Verdict::Open,
    };
    (Standing { bad, verdict, ..before }, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(patch: &Value) -> What {
        let mut check = json!({"name": "a", "windowSeconds": 10});
        check.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
        What::Check(serde_json::from_value(check).unwrap())
    }

    fn query(patch: &Value) -> What {
        let mut query = json!({"prometheus": {"address": "http://p", "query": "q"}});
        query.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
        check(&query)
    }

    fn vector(values: &[&str]) -> Value {
        let result: Vec<Value> =
            values.iter().map(|value| json!({"metric": {}, "value": [1.5, value]})).collect();
        json!({"status": "success", "data": {"resultType": "vector", "result": result}})
    }

    #[test]
    fn every_value_of_a_query_is_within_its_bounds() {
        let most = query(&json!({"max": "500m"}));
        assert_eq!(says(&most, &Ok(vector(&["0.2", "0.5"]))), CheckOutcome::Good("0.2, 0.5".to_owned()));
        assert_eq!(
            says(&most, &Ok(vector(&["0.2", "0.51"]))),
            CheckOutcome::Bad("0.51 is more than 0.5".to_owned())
        );
        let least = query(&json!({"min": 2}));
        assert_eq!(says(&least, &Ok(vector(&["1e0"]))), CheckOutcome::Bad("1 is less than 2".to_owned()));
        let scalar = Ok(json!({"data": {"resultType": "scalar", "result": [1.5, "3"]}}));
        assert_eq!(says(&least, &scalar), CheckOutcome::Good("3".to_owned()));
        for nothing in [Ok(vector(&[])), Ok(vector(&["NaN"])), Err("refused".to_owned()), Ok(json!({}))] {
            assert!(matches!(says(&least, &nothing), CheckOutcome::Nothing(_)), "{nothing:?}");
        }
    }

    #[test]
    fn a_check_by_http_says_ok_in_its_answer() {
        let http = check(&json!({"http": {"url": "http://x"}}));
        assert_eq!(says(&http, &Ok(json!({"ok": true}))), CheckOutcome::Good("it answered ok".to_owned()));
        let bad = json!({"ok": false, "message": "two of ten"});
        assert_eq!(says(&http, &Ok(bad)), CheckOutcome::Bad("it answered not ok: two of ten".to_owned()));
        assert!(matches!(says(&http, &Ok(json!("yes"))), CheckOutcome::Bad(_)));
        let refused = "it answered 500 Internal Server Error: no".to_owned();
        assert_eq!(says(&http, &Err(refused.clone())), CheckOutcome::Bad(refused));
        assert!(matches!(says(&http, &Err("connection refused".to_owned())), CheckOutcome::Nothing(_)));
    }

    #[test]
    fn bad_answers_in_a_row_fail_a_check_and_no_answer_is_what_the_policy_says() {
        let asked = |patch: Value, is_final: bool| Asked {
            what: {
                let mut http = json!({"http": {"url": "http://x"}});
                http.as_object_mut().unwrap().extend(patch.as_object().unwrap().clone());
                check(&http)
            },
            standing: Standing {
                since: Time::ZERO,
                counted: Answers::default(),
                bad: 1,
                verdict: Verdict::Open,
                judged: None,
            },
            call: None,
            next: None,
            at: Time::from_secs(9),
            is_final,
        };
        let judge = |patch, is_final, result| {
            let answer = Answer { target: "a".into(), id: "i".into(), at: Time::from_secs(1 << 40), result };
            judged(&asked(patch, is_final), &answer).0
        };
        let bad = || Ok(json!({"ok": false}));
        let silent = || Err("no route".to_owned());
        assert_eq!(judge(json!({"failures": 2}), true, bad()).verdict, Verdict::Failed);
        assert_eq!(judge(json!({"failures": 3}), true, bad()).verdict, Verdict::Open);
        assert_eq!(judge(json!({"failures": 2}), false, bad()).verdict, Verdict::Open, "a first version");
        assert_eq!(judge(json!({"failures": 2}), true, Ok(json!({"ok": true}))).bad, 0);
        let waits = judge(json!({}), true, silent());
        assert_eq!((waits.bad, waits.verdict, waits.since), (1, Verdict::Open, Time::from_secs(9)));
        assert_eq!(judge(json!({"noData": "Pass"}), true, silent()).verdict, Verdict::Passed);
        assert_eq!(judge(json!({"noData": "Fail"}), true, silent()).verdict, Verdict::Failed);
    }

    #[test]
    fn a_query_is_encoded() {
        assert_eq!(encoded("a{v=\"1\"} + é"), "a%7Bv%3D%221%22%7D%20%2B%20%C3%A9");
    }
}
