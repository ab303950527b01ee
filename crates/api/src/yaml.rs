//! Errors of YAML, for the people who wrote it.

use serde_saphyr::Error;

/// Says what is wrong with a text that was read as YAML, and where. The parser's own words name options of its library.
pub fn yaml_fault(error: &Error) -> String {
    let what = what(error.without_snippet());
    match error.location() {
        Some(place) if place.line() > 0 => {
            format!("line {}, column {}: {what}", place.line(), place.column())
        }
        _ => what,
    }
}

fn what(error: &Error) -> String {
    match error {
        // Errors of the grammar, which the parser words for people.
        Error::Message { msg, .. } | Error::ExternalMessage { msg, .. } => msg.clone(),
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key {key} occurs twice; remove one of them")
        }
        Error::DuplicateMappingKey { .. } => "a key occurs twice; remove one of them".to_owned(),
        Error::Eof { .. } => "the document ends too early".to_owned(),
        Error::MultipleDocuments { .. } => "only one document is allowed here".to_owned(),
        Error::UnknownAnchor { .. } | Error::AliasError { .. } => {
            "an alias (*name) needs an anchor (&name) before it".to_owned()
        }
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. }
        | Error::Budget { .. } => {
            "the document is too large or too deep, with its aliases (*name) replaced".to_owned()
        }
        Error::TaggedScalarCannotDeserializeIntoString { .. }
        | Error::InvalidScalar { .. }
        | Error::TaggedEnumMismatch { .. } => {
            "the value does not fit its tag (!!type); remove the tag".to_owned()
        }
        Error::MergeValueNotMapOrSeqOfMaps { .. } | Error::MergeKeyNotAllowed { .. } => {
            "the merge key << needs a mapping".to_owned()
        }
        Error::ContainerEndMismatch { .. }
        | Error::UnexpectedSequenceEnd { .. }
        | Error::UnexpectedMappingEnd { .. } => "a bracket is closed that is not open".to_owned(),
        Error::InvalidUtf8Input | Error::BinaryNotUtf8 { .. } => "the text is not UTF-8".to_owned(),
        _ => "this cannot be read as a mapping, a list or a value".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_fault_has_its_place_and_no_word_of_the_library() {
        for (text, says) in [
            ("a: 1\na: 2", "line 2, column 1: the key a occurs twice; remove one of them"),
            ("a: *b", "line 1, column 4: an alias (*name) needs an anchor (&name) before it"),
            ("a: !!int x", "line 1, column 10: the value does not fit its tag (!!type); remove the tag"),
            ("? [a]\n: b", "line 1, column 3: the document ends too early"),
            ("a: [1", "line 1, column 4: unclosed bracket '['"),
            ("a: b: c", "line 1, column 5: mapping values are not allowed in this context"),
        ] {
            let error = serde_saphyr::from_multiple::<Value>(text).unwrap_err();
            assert_eq!(yaml_fault(&error), says, "{text}");
        }
    }
}
