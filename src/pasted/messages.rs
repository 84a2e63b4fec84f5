//! What messages of programs mean: words, and what a reader needs to know of them, in a file of their own.

use std::sync::LazyLock;

use serde::Deserialize;

use model::finding::Severity;
use model::pasted::{Meaning, PastedFaultKind};

/// A message, and what it means.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Message {
    /// Alternatives, each of one or several parts that follow each other in a line.
    words: Vec<String>,
    /// The fault of the machine that it states.
    pub kind: Option<PastedFaultKind>,
    /// How bad it is, what it means and what to do, if no rule judges it.
    level: Option<Severity>,
    means: Option<String>,
    advice: Option<String>,
    /// True if it mostly follows from another error.
    #[serde(default)]
    follows: bool,
    /// True if it counts only where no reader takes the line.
    #[serde(default)]
    pub beside: bool,
}

#[derive(Debug, Default, Deserialize)]
struct Messages {
    message: Vec<Message>,
    /// Beginnings of lines that tools print beside what they found.
    beside: Vec<String>,
}

/// Stands for any text between two parts of a message.
const ANY: &str = " … ";

static MESSAGES: LazyLock<Messages> =
    LazyLock::new(|| toml::from_str(include_str!("messages.toml")).unwrap_or_default());

/// Returns the first part of each message.
pub(crate) fn first_words() -> impl Iterator<Item = &'static str> {
    let words = MESSAGES.message.iter().flat_map(|message| &message.words);
    words.filter_map(|words| words.split(ANY).next())
}

/// Returns true for what tools print beside what they found.
pub(crate) fn is_beside(text: &str) -> bool {
    MESSAGES.beside.iter().any(|start| text.starts_with(start))
}

/// Returns the first message that a line has, and where it begins.
pub(crate) fn of(text: &str) -> Option<(&'static Message, usize)> {
    MESSAGES.message.iter().find_map(|message| {
        let at = message.words.iter().find_map(|words| found(text, words))?;
        Some((message, at))
    })
}

/// Returns where all parts of a message stand in a text, in their order.
fn found(text: &str, words: &str) -> Option<usize> {
    let mut parts = words.split(ANY);
    let first = text.find(parts.next()?)?;
    let behind = text.get(first..)?;
    parts.try_fold(behind, |rest, part| Some(rest.split_once(part)?.1)).map(|_| first)
}

/// Returns what a line means, if it has a message that no rule judges.
pub(crate) fn meaning(text: &str) -> Option<Meaning> {
    let (Message { level, means, advice, follows, .. }, _) = of(text)?;
    let text = means.as_ref()?.replace("{gpu}", &gpu(text));
    Some(Meaning { severity: (*level)?, text, advice: advice.clone()?, follows: *follows })
}

/// Names the GPU that a line names by its number: `GPU5`, `GPU 5`.
fn gpu(text: &str) -> String {
    let numbers = text.split("GPU").skip(1).filter_map(|rest| {
        let rest = rest.trim_start_matches([' ', ':', '#']);
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let is_address = rest[digits..].starts_with(|c: char| c == ':' || c.is_ascii_alphabetic());
        (1..3).contains(&digits).then_some(&rest[..digits]).filter(|_| !is_address)
    });
    let number = numbers.into_iter().next();
    number.map_or("a GPU".to_owned(), |number| format!("GPU {number} (as the line counts)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_a_fault_a_meaning_or_an_open_error() {
        assert!(MESSAGES.message.len() > 30);
        for message in &MESSAGES.message {
            let parts =
                [message.level.is_some(), message.means.is_some(), message.advice.is_some()];
            let is_explained = parts == [true; 3];
            assert!(is_explained || parts == [false; 3], "{message:?}");
            assert!(message.kind.is_none() || !is_explained, "{message:?}");
            assert!(!message.words.is_empty());
            // The short sentence of a finding ends there.
            assert!(
                !message.means.as_ref().is_some_and(|means| means.contains("; ")),
                "{message:?}"
            );
            for words in &message.words {
                assert!(words.len() > 3 && found(words, words) == Some(0), "{words}");
            }
        }
    }

    #[test]
    fn a_message_is_the_first_whose_parts_all_follow_each_other() {
        assert_eq!(found("a BAR 1 of b: no space for c", "BAR 1 … no space for"), Some(2));
        assert_eq!(found("no space for BAR 1", "BAR 1 … no space for"), None);
        let gsp = meaning("NVRM: GPU5 _kgspLogRpcTimeout: *** GSP Timeout ***").unwrap();
        assert!(gsp.text.contains("of GPU 5 (as the line counts) stopped"), "{}", gsp.text);
        let other = meaning("NVRM: GPU 0000:04:00.0: GSP Timeout").unwrap();
        assert!(other.text.contains("of a GPU stopped"), "{}", other.text);
        assert_eq!(meaning("No devices were found"), None);
        assert_eq!(meaning("all is well"), None);
    }
}
