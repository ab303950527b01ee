//! The kinds and namespaces of an operator.

use clap::Args as ClapArgs;
use controllers::kind::{self, Served};

use crate::output::Error;

#[derive(ClapArgs, Clone, Debug)]
pub(crate) struct Selection {
    /// The kinds to reconcile, separated by commas, as in leaderworkerset,modeldeployment
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = kind)]
    kinds: Vec<&'static Served>,
    /// Reconcile only in these namespaces, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = namespace)]
    pub(crate) namespaces: Vec<String>,
    /// Run beside another operator of these kinds that leaves these namespaces alone
    #[arg(long, requires = "namespaces")]
    pub(crate) split_with_others: bool,
}

impl Selection {
    /// The kinds that were named. On a cluster only these are reconciled.
    pub(crate) fn kinds(&self) -> Result<Vec<&'static Served>, Error> {
        let has = |name: &str| self.kinds.iter().any(|it| it.kind.name == name);
        if self.kinds.is_empty() {
            return Err(Error::Failed(format!(
                "--kinds is missing: name the kinds to reconcile, as in --kinds {}",
                words(&kind::KINDS)
            )));
        }
        for served in &self.kinds {
            if let Some(needed) = served.needs.iter().find(|needed| !has(needed.name)) {
                let mut all: Vec<&Served> = kind::named(needed.name).into_iter().collect();
                all.extend(self.kinds.iter().copied());
                return Err(Error::Failed(format!(
                    "--kinds {} also needs {}: a {} is made of {}s; use --kinds {}",
                    words(&self.kinds),
                    needed.singular,
                    served.kind.name,
                    needed.name,
                    words(&all)
                )));
            }
        }
        Ok(kind::KINDS.into_iter().filter(|served| has(served.kind.name)).collect())
    }

    /// The same, where none named means all of them.
    pub(crate) fn kinds_or_all(&self) -> Result<Vec<&'static Served>, Error> {
        if self.kinds.is_empty() { Ok(kind::KINDS.to_vec()) } else { self.kinds() }
    }

    /// The flags that say the same to `segue operator`.
    pub(crate) fn flags(&self, kinds: &[&Served]) -> Vec<String> {
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

fn words(kinds: &[&Served]) -> String {
    kinds.iter().map(|served| served.kind.singular).collect::<Vec<_>>().join(",")
}

fn kind(given: &str) -> Result<&'static Served, String> {
    let wanted = given.to_lowercase();
    let answers_to = |served: &Served| {
        let names = [served.kind.singular, served.kind.plural];
        names.contains(&wanted.as_str()) || served.kind.short_names.contains(&wanted.as_str())
    };
    kind::KINDS.into_iter().find(|served| answers_to(served)).ok_or_else(|| {
        let known: Vec<&str> = kind::KINDS.iter().map(|served| served.kind.singular).collect();
        format!("no controller of that name; allowed are: {}", known.join(", "))
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
    Err("allowed are 1 to 63 lower-case letters, digits and '-', with a letter or digit first and last"
        .to_owned())
}
