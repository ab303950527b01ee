//! Numbers in sentences.

use std::fmt::Display;

/// Returns a number with its noun: `1 group`, `2 groups`.
pub fn counted(number: impl Display, noun: &str) -> String {
    format!("{number} {noun}{}", agreed(&number, "", "s"))
}

/// Returns the word that goes with a number: `is` with 1, `are` with every other one.
pub fn agreed<'a>(number: impl Display, with_one: &'a str, with_more: &'a str) -> &'a str {
    if number.to_string() == "1" { with_one } else { with_more }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_all_others_are_not() {
        assert_eq!([0, 1, 2, 11].map(|it| counted(it, "pod")), ["0 pods", "1 pod", "2 pods", "11 pods"]);
        assert_eq!([0, 1, 21].map(|it| agreed(it, "is", "are")), ["are", "is", "are"]);
        assert_eq!(counted(1_u64, "group"), "1 group");
    }
}
