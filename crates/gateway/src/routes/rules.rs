//! The rules of a route: read once, refused as a whole when one part is not supported.
use std::time::Duration;

use http::{HeaderName, Method};

use super::{
    Backend, Match, Mirror, PathChange, PathMatch, Pattern, Redirect, Rewrite, Rule, ServicePort, ValueMatch,
    conditions::Condition,
};
use crate::{
    cache::{Cache, Kind, Name, spec},
    kinds::{
        BackendRef, GrantSpec, MatchSpec, MirrorSpec, RouteSpec, RuleSpec, ServiceSpec, TypedValue, UrlChange,
    },
};

/// A route that was read: its rules with their matches, and whether every reference leads somewhere.
#[derive(Debug, Clone)]
pub struct Read {
    pub rules: Vec<(Rule, Vec<Match>)>,
    pub resolved: Condition,
}

/// Reads the rules. What is not supported is said, never ignored: a filter that is skipped is a request that is wrong.
pub fn read(kind: Kind, name: &Name, route: &RouteSpec, cache: &Cache) -> Result<Read, String> {
    let mut unresolved = None;
    let mut target = |backend: &BackendRef| {
        resolve(kind, name, backend, cache).map_err(|why| unresolved.get_or_insert(why).kind).ok()
    };
    let mut rules = Vec::new();
    for (place, rule) in route.rules.iter().enumerate() {
        let placed = |why: String| format!("rules[{place}]: {why}");
        let whole = vec![MatchSpec::default()];
        let matches = if rule.matches.is_empty() { &whole } else { &rule.matches };
        let matches: Result<Vec<Match>, String> = matches.iter().map(read_match).collect();
        let backends = rule.backend_refs.iter().map(|backend| read_backend(backend, target(backend)));
        let backends: Result<Vec<Backend>, String> = backends.collect();
        let mirrors = rule.filters.iter().filter_map(|filter| filter.request_mirror.as_ref());
        let mirrors =
            mirrors.map(|it| Mirror { target: target(&it.backend_ref), share: share(it) }).collect();
        let read = read_rule(name, place, rule, backends.map_err(placed)?).map_err(placed)?;
        rules.push((Rule { kind, mirrors, ..read }, matches?));
    }
    let resolved = unresolved.unwrap_or_else(|| {
        Condition::yes("ResolvedRefs", "ResolvedRefs", "every reference leads to a Service")
    });
    Ok(Read { rules, resolved })
}

fn read_rule(route: &Name, place: usize, rule: &RuleSpec, backends: Vec<Backend>) -> Result<Rule, String> {
    let mut read = Rule {
        kind: Kind::HttpRoute,
        route: route.clone(),
        place,
        backends,
        request_headers: Vec::new(),
        response_headers: Vec::new(),
        rewrite: None,
        redirect: None,
        mirrors: Vec::new(),
        timeout: limit(rule.timeouts.request.as_deref())?,
        backend_timeout: limit(rule.timeouts.backend_request.as_deref())?,
    };
    for filter in &rule.filters {
        match filter.r#type.as_str() {
            "RequestHeaderModifier" => read.request_headers.extend(filter.request_header_modifier.clone()),
            "ResponseHeaderModifier" => read.response_headers.extend(filter.response_header_modifier.clone()),
            "URLRewrite" => {
                let change = filter.url_rewrite.clone().unwrap_or_default();
                read.rewrite = Some(Rewrite { path: path_change(&change, rule)?, host: change.hostname });
            }
            "RequestRedirect" => {
                let change = filter.request_redirect.clone().unwrap_or_default();
                let path = path_change(&change, rule)?;
                let UrlChange { scheme, hostname: host, port, status_code, .. } = change;
                read.redirect =
                    Some(Redirect { scheme, host, port, path, status: status_code.unwrap_or(302) });
            }
            // Those are read with the references.
            "RequestMirror" => {}
            other => return Err(format!("the filter {other} is not supported")),
        }
    }
    Ok(read)
}

/// A reference with the filters that are its own.
fn read_backend(backend: &BackendRef, target: Option<ServicePort>) -> Result<Backend, String> {
    let weight = backend.weight.unwrap_or(1);
    let mut read = Backend { weight, target, request_headers: Vec::new(), response_headers: Vec::new() };
    for filter in &backend.filters {
        match filter.r#type.as_str() {
            "RequestHeaderModifier" => read.request_headers.extend(filter.request_header_modifier.clone()),
            "ResponseHeaderModifier" => read.response_headers.extend(filter.response_header_modifier.clone()),
            other => {
                return Err(format!(
                    "the filter {other} of one backend is not supported; those of its headers are"
                ));
            }
        }
    }
    Ok(read)
}

/// The share of the requests that a mirror gets: all of them if it says nothing.
fn share(mirror: &MirrorSpec) -> (u32, u32) {
    match (&mirror.fraction, mirror.percent) {
        (Some(fraction), _) => (fraction.numerator, fraction.denominator.unwrap_or(100)),
        (None, Some(percent)) => (percent, 100),
        (None, None) => (1, 1),
    }
}

/// A limit of time; none if it is zero.
fn limit(text: Option<&str>) -> Result<Option<Duration>, String> {
    let Some(text) = text else { return Ok(None) };
    let limit = duration(text).ok_or_else(|| format!("{text} is not a duration like 10s or 1m30s"))?;
    Ok(Some(limit).filter(|limit| !limit.is_zero()))
}

/// What a filter makes of the path. A prefix can be replaced where the rule matches by one.
fn path_change(change: &UrlChange, rule: &RuleSpec) -> Result<Option<PathChange>, String> {
    let Some(path) = &change.path else { return Ok(None) };
    if let Some(full) = &path.replace_full_path {
        return Ok(Some(PathChange::Full(full.clone())));
    }
    let Some(by) = path.replace_prefix_match.clone() else { return Ok(None) };
    let matched = match &rule.matches[..] {
        [] | [MatchSpec { path: None, .. }] => "/",
        [MatchSpec { path: Some(path), .. }]
            if path.r#type.as_deref().unwrap_or("PathPrefix") == "PathPrefix" =>
        {
            &path.value
        }
        _ => return Err("replacePrefixMatch needs a rule with one match, by PathPrefix".to_owned()),
    };
    Ok(Some(PathChange::Prefix { matched: matched.to_owned(), by }))
}

fn read_match(spec: &MatchSpec) -> Result<Match, String> {
    let value = |what: &str, spec: &TypedValue| match spec.r#type.as_deref().unwrap_or("Exact") {
        "Exact" => Ok(ValueMatch::Exact(spec.value.clone())),
        "RegularExpression" => Pattern::new(&spec.value)
            .map(ValueMatch::Regex)
            .map_err(|why| format!("{what} {}: {why}", spec.name)),
        other => Err(format!("{what} matches of type {other} are not supported")),
    };
    let (kind, text) = match &spec.path {
        Some(path) => (path.r#type.as_deref().unwrap_or("PathPrefix"), path.value.as_str()),
        None => ("PathPrefix", "/"),
    };
    let path = match kind {
        "Exact" => PathMatch::Exact(text.to_owned()),
        "PathPrefix" => PathMatch::Prefix(text.trim_end_matches('/').to_owned()),
        "RegularExpression" => PathMatch::Regex(Pattern::new(text).map_err(|why| format!("path: {why}"))?),
        other => return Err(format!("path matches of type {other} are not supported")),
    };
    let mut headers: Vec<(HeaderName, ValueMatch)> = Vec::new();
    for header in &spec.headers {
        let wanted = value("header", header)?;
        let name = HeaderName::from_bytes(header.name.as_bytes())
            .map_err(|_| format!("{} is not the name of a header", header.name))?;
        // Names are equal whatever their case; the first entry counts.
        if headers.iter().all(|(known, _)| *known != name) {
            headers.push((name, wanted));
        }
    }
    let mut query = Vec::new();
    for param in &spec.query_params {
        query.push((param.name.clone(), value("query parameter", param)?));
    }
    let method = spec.method.as_deref().map(str::parse::<Method>);
    let method = method.transpose().map_err(|_| "this method is not one".to_owned())?;
    Ok(Match { path, method, headers, query })
}

fn resolve(kind: Kind, route: &Name, backend: &BackendRef, cache: &Cache) -> Result<ServicePort, Condition> {
    let no = |reason, message: String| Err(Condition::no("ResolvedRefs", reason, message));
    let group = backend.group.as_deref().unwrap_or_default();
    let target = backend.kind.as_deref().unwrap_or("Service");
    if !group.is_empty() || target != "Service" {
        return no("InvalidKind", format!("{}: backends are Services, not {target}", backend.name));
    }
    let service = Name::new(backend.namespace.as_deref().unwrap_or(&route.namespace), &backend.name);
    if service.namespace != route.namespace && !granted(kind, route, Kind::Service, &service, cache) {
        return no("RefNotPermitted", format!("no ReferenceGrant in {} allows {service}", service.namespace));
    }
    let Some(object) = cache.get(Kind::Service, &service) else {
        return no("BackendNotFound", format!("there is no Service {service}"));
    };
    let spec: ServiceSpec = spec(object);
    if spec.r#type.as_deref() == Some("ExternalName") {
        return no("UnsupportedValue", format!("{service} is an ExternalName, which has no endpoints"));
    }
    match backend.port {
        Some(port) if spec.ports.iter().any(|known| known.port == port) => Ok(ServicePort { service, port }),
        Some(port) => no("BackendNotFound", format!("the Service {service} has no port {port}")),
        None => no("BackendNotFound", format!("the reference to {service} names no port")),
    }
}

/// Whether an object may refer to one of another namespace.
pub fn granted(kind: Kind, from: &Name, target: Kind, to: &Name, cache: &Cache) -> bool {
    let grants = cache.all(Kind::ReferenceGrant).iter().filter(|(name, _)| name.namespace == to.namespace);
    grants.map(|(_, grant)| spec::<GrantSpec>(grant)).any(|grant| {
        let gvk = kind.gvk();
        let is_from = grant
            .from
            .iter()
            .any(|it| it.group == gvk.group && it.kind == gvk.kind && it.namespace == from.namespace);
        let is_to = grant.to.iter().any(|it| {
            it.group.is_empty()
                && it.kind == target.gvk().kind
                && it.name.as_ref().is_none_or(|name| *name == to.name)
        });
        is_from && is_to
    })
}

/// A duration as the Gateway API writes it (GEP-2257): `1h30m`, `10s`, `500ms`.
fn duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|digits| (1..=5).contains(digits))?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = &rest[digits..];
        let unit = &unit[..unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len())];
        total += match unit {
            "h" => Duration::from_secs(number * 3600),
            "m" => Duration::from_secs(number * 60),
            "s" => Duration::from_secs(number),
            "ms" => Duration::from_millis(number),
            _ => return None,
        };
        rest = &rest[digits + unit.len()..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_the_gateway_api() {
        assert_eq!(duration("1h30m"), Some(Duration::from_mins(90)));
        assert_eq!(duration("10s500ms"), Some(Duration::from_millis(10_500)));
        assert_eq!(duration("0s"), Some(Duration::ZERO));
        for wrong in ["", "10", "s", "1.5s", "-1s", "1d"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }
}
