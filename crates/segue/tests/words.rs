//! Documents, help and doc comments use the field's words, and their sentences name the subject.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

/// The widest line of a message.
const WIDTH: usize = 120;

/// Words that are wrong wherever they stand, each with the better one.
const EVERYWHERE: &[&str] = &["everywhere"];

/// Those, and the words that are wrong in what people read.
const FOR_PEOPLE: &[&str] = &["everywhere", "people"];

fn replaced(scopes: &[&str]) -> Vec<(&'static str, &'static str)> {
    let lines = include_str!("../words.txt").lines();
    let words: Vec<_> = lines
        .filter_map(|line| {
            line.split_once(" | ").filter(|(scope, _)| scopes.contains(scope))?.1.split_once(" | ")
        })
        .collect();
    assert!(words.len() > 10, "only {} words found", words.len());
    words
}

/// The replaced words in a text, each with what is around it.
fn found_in(name: &str, text: &str) -> Vec<String> {
    found(name, text, EVERYWHERE)
}

fn found(name: &str, text: &str, scopes: &[&str]) -> Vec<String> {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let plain: Vec<&str> =
        words.iter().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric())).collect();
    let mut found = Vec::new();
    for (replaced, better) in replaced(scopes) {
        let replaced: Vec<&str> = replaced.split(' ').collect();
        for at in 0..plain.len() {
            if plain[at..].starts_with(&replaced) {
                let around = words[at.saturating_sub(4)..(at + 6).min(words.len())].join(" ");
                found.push(format!(
                    "{name}: \"{}\" in \"... {around} ...\"; say {better}",
                    replaced.join(" ")
                ));
            }
        }
    }
    found
}

/// The documents for people. The ledger has the words of the seeds.
fn documents() -> Vec<String> {
    let mut files = support::files("docs", ".md");
    files.retain(|file| file != "docs/seeds.md");
    files.extend(["README.md", "CONTRIBUTING.md"].map(str::to_owned));
    files
}

/// The doc comments of a source file.
fn doc_comments(source: &str) -> String {
    let comment =
        |line: &str| line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::to_owned);
    source.lines().filter_map(|line| comment(line.trim_start())).collect::<Vec<_>>().join("\n")
}

#[test]
fn documents_use_the_fields_words() {
    let found: Vec<String> =
        documents().iter().flat_map(|file| found_in(file, &support::read(file))).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn doc_comments_use_the_fields_words() {
    let sources: Vec<String> =
        ["crates", "bench"].iter().flat_map(|folder| support::files(folder, ".rs")).collect();
    let sources: Vec<&String> = sources.iter().filter(|file| file.contains("/src/")).collect();
    assert!(sources.len() > 100, "only {} sources found", sources.len());
    let found: Vec<String> =
        sources.iter().flat_map(|file| found_in(file, &doc_comments(&support::read(file)))).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// What messages count. `planner::counted` says one of them and several of them.
const COUNTED: [&str; 16] = [
    "cluster",
    "connection",
    "container",
    "group",
    "leader",
    "node",
    "object",
    "pod",
    "recreation",
    "replica",
    "request",
    "restart",
    "role",
    "step",
    "version",
    "worker",
];

/// The lines of a source that format a number before a plural of their own: "{count} pods".
fn uncounted(source: &str) -> Vec<&str> {
    let code = source.split("#[cfg(test)]").next().unwrap();
    let counts = |line: &str| {
        let lower = |name: &str| !name.chars().any(|c| c.is_ascii_uppercase());
        line.match_indices('}').any(|(at, _)| {
            let name = line[..at].rsplit('{').next().unwrap();
            let word = line[at + 1..].strip_prefix(' ').unwrap_or_default();
            let word = word.split(|c: char| !c.is_alphanumeric()).next().unwrap();
            // The number of a constant is known.
            lower(name) && word.strip_suffix('s').is_some_and(|noun| COUNTED.contains(&noun))
        })
    };
    code.lines().filter(|line| !line.trim_start().starts_with("//") && counts(line)).collect()
}

#[test]
fn messages_count_by_one_helper() {
    assert_eq!(uncounted("format!(\"{n} of {} pods\")\n// {n} pods\n\"{name} serves\"").len(), 1);
    assert_eq!(uncounted("\"{ready} groups\"\n\"{MOST} groups\"\n#[cfg(test)]\n\"{n} pods\"").len(), 1);
    let folders = ["crates/planner/src", "crates/controllers/src", "crates/segue/src"];
    let sources = folders.iter().flat_map(|folder| support::files(folder, ".rs"));
    let mut found: Vec<String> = sources
        .flat_map(|file| {
            let source = support::read(&file);
            uncounted(&source).into_iter().map(|line| format!("{file}: {}", line.trim())).collect::<Vec<_>>()
        })
        .collect();
    // The event of the public operator.
    found.retain(|line| !line.contains("groups ready of total"));
    assert!(found.is_empty(), "use planner::counted and planner::agreed:\n{}", found.join("\n"));
}

#[test]
fn help_uses_the_fields_words() {
    let help = support::stdout(&support::segue(&["--help"]));
    let commands =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // A line with more spaces goes on with the description of the command above.
    let named = commands.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let commands: Vec<&str> = named.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"plan") && commands.contains(&"up"), "{commands:?}");
    let mut found = found_in("segue --help", &help);
    for command in commands.into_iter().filter(|command| *command != "help") {
        let output = support::segue(&[command, "--help"]);
        assert!(output.status.success(), "segue {command} --help: {}", support::stderr(&output));
        found.extend(found_in(&format!("segue {command} --help"), &support::stdout(&output)));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The string literals of a source file that are sentences: more than two words, before its tests. Each argument is `{}`.
fn sentences(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]").next().unwrap();
    let lines: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let literals = lines.join("\n");
    let literals = literals.split('"').skip(1).step_by(2);
    // A literal goes on in the next line without the spaces at its begin.
    let whole = literals.map(|literal| literal.split("\\\n").map(str::trim_start).collect::<String>());
    whole.filter(|text| text.split(' ').count() > 2).map(|text| without_arguments(&text)).collect()
}

fn without_arguments(text: &str) -> String {
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |sum, part| match part.split_once('}') {
        Some((_, rest)) => sum + "{}" + rest,
        None => sum + part,
    })
}

/// What is wrong with a message: its words, two spaces in a row, a time since 1970, or a line that is too long.
fn faults_of_message(name: &str, text: &str) -> Vec<String> {
    let mut faults = found(name, text, FOR_PEOPLE);
    let is_time = |word: &str| {
        let digits = word.trim_end_matches('s');
        digits.len() >= 9 && digits.chars().all(|digit| digit.is_ascii_digit())
    };
    // Help and tables are laid out by hand.
    let is_one_line = !text.contains('\n') && !text.contains("\\n");
    for (is_wrong, what) in [
        (is_one_line && text.trim().contains("  "), "two spaces in a row"),
        (
            text.split(|letter: char| !letter.is_alphanumeric()).any(is_time),
            "a number like a time since 1970",
        ),
        (is_one_line && text.chars().count() > WIDTH, "more than 120 characters"),
    ] {
        faults.extend(is_wrong.then(|| format!("{name}: {what} in \"{text}\"")));
    }
    faults
}

/// Conditions, events, refusals and warnings, also those of situations that are hard to reach.
#[test]
fn messages_use_the_fields_words_and_fit_a_line() {
    let (mut faults, mut count) = (Vec::new(), 0);
    for folder in ["planner", "controllers", "api", "node", "segue"] {
        let sources = support::files(&format!("crates/{folder}/src"), ".rs");
        // The live screen of the demonstration is columns; `sentences.rs` is a test of help, and reads that of `pause`.
        let is_prose = |file: &&String| {
            !["/tests", "demo/view.rs", "src/sentences.rs", "rollout/pause.rs"]
                .iter()
                .any(|it| file.contains(it))
        };
        for file in sources.iter().filter(is_prose) {
            for text in sentences(&support::read(file)) {
                // Rules of CEL name fields of objects, and messages that CEL formats; the tables of the API have them.
                let is_rule =
                    file.ends_with("spec.rs") || text.contains("self.") || text.contains(".format(");
                count += 1;
                faults.extend((!is_rule).then(|| faults_of_message(file, &text)).into_iter().flatten());
            }
        }
    }
    assert!(count > 500, "only {count} sentences were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn faults_of_messages_are_found() {
    assert!(faults_of_message("x", "scaling the new version to 4 replicas").is_empty());
    let long = "x ".repeat(WIDTH);
    for wrong in ["its traffic needs 5 units", "until  then", "nothing moved since 1794843101s", long.trim()]
    {
        assert_eq!(faults_of_message("x", wrong).len(), 1, "{wrong}");
    }
    let source = "fn a() { b(\"two words\"); c(\"{d} goes \\\n        on {e:?} again\") } #[cfg(test)] \"not this one here\"";
    assert_eq!(sentences(source), ["{} goes on {} again"]);
}

#[test]
fn replaced_words_are_found_across_lines_and_before_punctuation() {
    let found = found_in("x", "The state of a\n  Look. Nobody, as it were, is an onlooker.");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found_in("x", "It looks at a lookup table; the voices of others.").is_empty());
}
