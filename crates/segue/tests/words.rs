//! Documents, help and doc comments use the field's words, and their sentences name the subject.
// clippy.toml allows unwrap and panic in tests, but does not know a helper of tests for one.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

/// Words that are wrong wherever they stand, each with the better one.
fn replaced() -> Vec<(&'static str, &'static str)> {
    let lines = include_str!("../words.txt").lines().filter(|line| line.starts_with("everywhere | "));
    let words: Vec<_> = lines.filter_map(|line| line.split_once(" | ")?.1.split_once(" | ")).collect();
    assert!(words.len() > 10, "only {} words found", words.len());
    words
}

/// The replaced words in a text, each with what is around it.
fn found_in(name: &str, text: &str) -> Vec<String> {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let plain: Vec<&str> =
        words.iter().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric())).collect();
    let mut found = Vec::new();
    for (replaced, better) in replaced() {
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

#[test]
fn replaced_words_are_found_across_lines_and_before_punctuation() {
    let found = found_in("x", "The state of a\n  Look. Nobody, as it were, is an onlooker.");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found_in("x", "It looks at a lookup table; the voices of others.").is_empty());
}
