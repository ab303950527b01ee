//! What the help of every command must keep to, in so far as a machine can check it.

use clap::{Command, CommandFactory};

use crate::Cli;

/// The widest line of a message.
const WIDTH: usize = 120;

/// Words that stand for a subject that is missing, metaphors, and words of the planner.
fn banned() -> impl Iterator<Item = &'static str> {
    let lines = include_str!("../words.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(" | ").nth(1))
}

/// The verbs with which the descriptions of commands begin.
const VERBS: [&str; 23] = [
    "Adopt", "Apply", "Delete", "Explain", "List", "Pause", "Print", "Recreate", "Restart", "Resume", "Roll",
    "Run", "Serve", "Show", "Upgrade", "Validate", "Watch", "Retry", "Check", "Plan", "End", "Take", "Try",
];

/// Every command with its name as people type it.
fn commands() -> Vec<(String, Command)> {
    fn walk(name: &str, command: &Command, all: &mut Vec<(String, Command)>) {
        all.push((name.to_owned(), command.clone()));
        for it in command.get_subcommands().filter(|it| it.get_name() != "help") {
            walk(&format!("{name} {}", it.get_name()), it, all);
        }
    }
    let mut all = Vec::new();
    let mut command = Cli::command();
    command.build();
    walk("segue", &command, &mut all);
    all
}

/// Every text of a command: its description, those of its arguments and their values, and what stands below.
fn texts(command: &Command) -> Vec<String> {
    let of_arguments = command.get_arguments().flat_map(|argument| {
        let values = argument.get_possible_values();
        let values: Vec<_> = values.iter().filter_map(|value| Some(value.get_help()?.to_string())).collect();
        argument.get_help().map(ToString::to_string).into_iter().chain(values)
    });
    let of_command = [command.get_about(), command.get_after_help()];
    of_command.into_iter().flatten().map(ToString::to_string).chain(of_arguments).collect()
}

/// What is wrong with a text for people.
fn faults(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower.split(|letter: char| !letter.is_alphanumeric()).collect();
    let has = |banned: &str| {
        let banned: Vec<&str> = banned.split(' ').collect();
        words.windows(banned.len()).any(|window| window == banned)
    };
    let mut faults: Vec<String> =
        banned().filter(|banned| has(banned)).map(|banned| format!("the word {banned:?}")).collect();
    if text.lines().any(|line| line.trim().contains("  ")) {
        faults.push("two spaces in a row".to_owned());
    }
    let is_long_number = |word: &&str| {
        let digits = word.trim_end_matches('s');
        digits.len() >= 9 && digits.chars().all(|digit| digit.is_ascii_digit())
    };
    if words.iter().any(is_long_number) {
        faults.push("a number like a time since 1970".to_owned());
    }
    faults
}

#[test]
fn faults_are_found() {
    assert!(faults("Show objects of any kind").is_empty());
    for wrong in
        ["what Nobody wants", "until  it happens", "nothing moved since 1794843101s", "it needs 5 units"]
    {
        assert_eq!(faults(wrong).len(), 1, "{wrong}");
    }
}

#[test]
fn every_help_is_free_of_faults_and_has_an_example() {
    let mut wrong = Vec::new();
    for (name, command) in commands() {
        for text in texts(&command) {
            wrong.extend(faults(&text).into_iter().map(|fault| format!("{name}: {fault} in {text:?}")));
        }
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let verb = about.split(' ').next().unwrap_or_default();
        if name != "segue" && !VERBS.contains(&verb) {
            wrong.push(format!("{name}: {about:?} begins with no verb"));
        }
        if about.ends_with('.') != (name == "segue") {
            wrong.push(format!("{name}: {about:?} is a phrase, without a full stop"));
        }
        let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        if !below.starts_with("Examples:\n  segue ") || !below.contains(&format!("\n  {}", name.trim())) {
            wrong.push(format!("{name}: its help has no example of itself"));
        }
        for argument in command.get_arguments().filter(|argument| argument.get_help().is_none()) {
            wrong.push(format!("{name}: {} has no description", argument.get_id()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Text that was wrapped by hand is wrapped a second time by a narrow terminal, and leaves lines of one word.
#[test]
fn help_is_wrapped_once_at_any_width() {
    for (name, command) in commands() {
        let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let paragraphs = below.split("\n\n").filter(|text| !text.starts_with("Examples:"));
        for paragraph in paragraphs {
            assert!(!paragraph.contains('\n'), "{name}: {paragraph:?} is wrapped by hand");
        }
        for width in [80, 100, WIDTH] {
            let help = command.clone().term_width(width).render_long_help().to_string();
            for line in help.lines().filter(|line| line.contains(' ')) {
                assert!(line.trim_end().chars().count() <= width, "{name} at {width}: {line}");
            }
        }
    }
}
