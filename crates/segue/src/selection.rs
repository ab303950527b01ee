//! Which kinds are looked after, and where.

use api::Kind;
use clap::Args as ClapArgs;
use controllers::SERVED;

use crate::output::Error;

#[derive(ClapArgs, Clone, Debug)]
pub(crate) struct Selection {
    /// The kinds to look after, with commas between: leaderworkerset, modeldeployment
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = kind)]
    kinds: Vec<&'static Kind>,
    /// Look after them in these namespaces only, with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = namespace)]
    pub(crate) namespaces: Vec<String>,
    /// Go on though another operator of these kinds is alive: it was told to leave these namespaces alone
    #[arg(long, requires = "namespaces")]
    pub(crate) split_with_others: bool,
}

impl Selection {
    /// The kinds that were named. On a cluster nothing is looked after that nobody asked for.
    pub(crate) fn kinds(&self) -> Result<Vec<&'static Kind>, Error> {
        let has = |kind: &Kind| self.kinds.iter().any(|it| it.name == kind.name);
        if self.kinds.is_empty() {
            return Err(Error::CouldNotAsk(format!(
                "no kind is switched on; name those to look after, for instance --kinds {}",
                words(&SERVED)
            )));
        }
        let sets = &api::leaderworkerset::KIND;
        if has(&api::modeldeployment::KIND) && !has(sets) {
            return Err(Error::CouldNotAsk(format!(
                "--kinds {} needs {} beside it: a version of a ModelDeployment is a LeaderWorkerSet; give --kinds {}",
                words(&self.kinds),
                sets.singular,
                words(&[sets, &api::modeldeployment::KIND])
            )));
        }
        Ok(SERVED.into_iter().filter(|kind| has(kind)).collect())
    }

    /// The same, where none named means all of them.
    pub(crate) fn kinds_or_all(&self) -> Result<Vec<&'static Kind>, Error> {
        if self.kinds.is_empty() { Ok(SERVED.into()) } else { self.kinds() }
    }

    /// The flags that say the same to `segue operator`.
    pub(crate) fn flags(&self, kinds: &[&Kind]) -> Vec<String> {
        let mut flags = vec![format!("--kinds={}", words(kinds))];
        if !self.namespaces.is_empty() {
            flags.push(format!("--namespaces={}", self.namespaces.join(",")));
        }
        if self.split_with_others {
            flags.push("--split-with-others".to_owned());
        }
        flags
    }
}

fn words(kinds: &[&Kind]) -> String {
    kinds.iter().map(|kind| kind.singular).collect::<Vec<_>>().join(",")
}

fn kind(given: &str) -> Result<&'static Kind, String> {
    let wanted = given.to_lowercase();
    let answers_to = |kind: &Kind| {
        [kind.singular, kind.plural].contains(&wanted.as_str()) || kind.short_names.contains(&wanted.as_str())
    };
    SERVED.into_iter().find(|kind| answers_to(kind)).ok_or_else(|| {
        let known: Vec<&str> = SERVED.iter().map(|kind| kind.singular).collect();
        format!("no controller for it; there are: {}", known.join(", "))
    })
}

/// A namespace is a DNS label.
pub(crate) fn namespace(given: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label = (1..=63).contains(&given.len())
        && given.chars().all(plain)
        && !given.starts_with('-')
        && !given.ends_with('-');
    if is_label {
        return Ok(given.to_owned());
    }
    Err("a namespace has at most 63 lower case letters, digits and '-', and begins and ends with a letter or digit"
        .to_owned())
}
