//! What messages of programs mean: words, and what a reader needs to know of them, in a file of their own.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
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
    /// Beginnings of names of GPUs.
    models: Vec<String>,
    /// Parts of what stands before words that a line only mentions: commands, sentences, other devices.
    mention: Vec<String>,
    /// Ends of what stands before words that are denied, values right behind them, and ends of their clause.
    denied_before: Vec<String>,
    denied_behind: Vec<String>,
    denied_end: Vec<String>,
}

/// Stands for any text between two parts of a message.
const ANY: &str = " … ";

static MESSAGES: LazyLock<Messages> =
    LazyLock::new(|| toml::from_str(include_str!("messages.toml")).unwrap_or_default());

/// The place of a message, and some words of it.
type Place = (usize, &'static str);

/// Finds the first parts of all words, and the place of the message and the words of each.
static FIRST: LazyLock<(Option<AhoCorasick>, Vec<Place>)> = LazyLock::new(|| {
    let all = MESSAGES.message.iter().enumerate();
    let words = |(place, one): (usize, &'static Message)| {
        one.words.iter().map(move |words| (place, words.as_str()))
    };
    let places: Vec<Place> = all.flat_map(words).collect();
    let first = places.iter().filter_map(|(_, words)| words.split(ANY).next());
    (AhoCorasick::new(first).ok(), places)
});

/// Returns true for what tools print beside what they found.
pub(crate) fn is_beside(text: &str) -> bool {
    MESSAGES.beside.iter().any(|start| text.starts_with(start))
}

/// Returns true for the name of a GPU.
pub(crate) fn is_model(name: &str) -> bool {
    MESSAGES.models.iter().any(|start| name.starts_with(start))
}

/// Returns the first message that a line states.
pub(crate) fn of(text: &str) -> Option<&'static Message> {
    let (finder, places) = &*FIRST;
    let found = finder.as_ref()?.find_overlapping_iter(text).filter_map(|found| {
        let (place, words) = places.get(found.pattern().as_usize())?;
        let behind = behind(text.get(found.end()..)?, words)?;
        (!is_mention(text.get(..found.start())?, behind)).then_some(*place)
    });
    MESSAGES.message.get(found.min()?)
}

/// Returns what stands behind all parts of words in a line, from what stands behind the first one.
fn behind<'a>(rest: &'a str, words: &str) -> Option<&'a str> {
    let rest =
        words.split(ANY).skip(1).try_fold(rest, |rest, part| Some(rest.split_once(part)?.1))?;
    let is_cut = words.ends_with(char::is_numeric) && rest.starts_with(char::is_numeric);
    (!is_cut).then_some(rest)
}

/// Returns true if a line only names or denies what stands between these parts.
fn is_mention(head: &str, tail: &str) -> bool {
    let is_quoted = head.contains(" \"") && !head.starts_with('{');
    // `^` stands for the start of the line.
    let head = format!("^{}", head.trim_end());
    let clause = head.rsplit([',', ';']).next().unwrap_or_default();
    let tail = tail.trim_start_matches(char::is_alphabetic).trim_start();
    let end = tail.split([',', ';']).next().unwrap_or_default();
    let is_value = |part: &String| {
        let rest = tail.strip_prefix(part.as_str()).map(str::trim_start);
        rest.is_some_and(|rest| {
            part.ends_with(' ') || rest.is_empty() || rest.starts_with([',', ';', '|', '(', ')'])
        })
    };
    is_quoted
        || tail.contains("pass\"")
        || MESSAGES.mention.iter().any(|part| clause.contains(part))
        || MESSAGES.denied_before.iter().any(|part| head.ends_with(part))
        || MESSAGES.denied_behind.iter().any(is_value)
        || MESSAGES.denied_end.iter().any(|part| end.ends_with(part))
}

/// Returns what a line means, if it has a message that no rule judges.
pub(crate) fn meaning(text: &str) -> Option<Meaning> {
    let Message { level, means, advice, follows, .. } = of(text)?;
    let text = means.as_ref()?.replace("{gpu}", &gpu(text));
    Some(Meaning { severity: (*level)?, text, advice: advice.clone()?, follows: *follows })
}

/// Names the GPU that a line names by its number: `GPU5`, `GPU 5`.
fn gpu(text: &str) -> String {
    let numbers = text.split("GPU").skip(1).filter_map(|rest| {
        let rest = rest.trim_start();
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
                let line = words.replace(ANY, " x ");
                assert!(words.len() > 3 && of(&line).is_some(), "{words}");
            }
        }
    }

    #[test]
    fn a_message_is_the_first_whose_parts_all_follow_each_other() {
        assert_eq!(behind(" of b: no space for c", "BAR 1 … no space for"), Some(" c"));
        assert_eq!(behind(" of b", "BAR 1 … no space for"), None);
        assert_eq!(behind("0 of b", "Xid 79"), None);
        let gsp = meaning("NVRM: GPU5 _kgspLogRpcTimeout: *** GSP Timeout ***").unwrap();
        assert!(gsp.text.contains("of GPU 5 (as the line counts) stopped"), "{}", gsp.text);
        let other = meaning("NVRM: GPU 0000:04:00.0: GSP Timeout").unwrap();
        assert!(other.text.contains("of a GPU stopped"), "{}", other.text);
        assert_eq!(meaning("No devices were found"), None);
        assert_eq!(meaning("all is well"), None);
    }

    #[test]
    fn what_is_denied_or_only_named_is_not_stated() {
        for text in [
            "there is no Xid 79",
            "GPU health OK: 0 uncorrectable ECC errors",
            "Uncorrectable ECC errors: 0",
            "(uncorrectable ECC errors = 0)",
            "it has not fallen off the bus",
            "Test Xid 79 check PASSED",
            "#define NV_ERR_RESET_REQUIRED 0x66",
            "In case of a Driver/library version mismatch, reboot",
            "Drain and Reset Recommended : No",
            "ACSCap: SrcValid+ ReqRedir+ CmpltRedir+",
            "NCCL watchdog thread terminated normally",
            "md0 is running in degraded mode",
            "XID 4800 aborted",
            "error 8021 in line",
            "amdgpu 0000:03:00.0: GPU is lost",
            "rm -f /dev/shm/nccl-*",
            "  Key and state: FAULTY",
            "| Uncorrectable ECC errors | 0 |",
            "uncorrectable ECC errors,0",
            "Uncorrectable ECC error count: 0 (OK)",
            "No GPU has fallen off the bus",
            "fork may deadlock",
            "     Active: inactive (dead) since Mon",
            "State                : In Progress",
            "GPU Direct RDMA Disabled for GPU 0 / HCA 3 (distance 7 > 5)",
            "type: XidCriticalError",
        ] {
            assert!(of(text).is_none(), "{text}");
        }
        for text in [
            "GPU 3 reported Xid 79 today",
            "GPU 0 uncorrectable ECC error encountered",
            "rank 0 Xid 94",
            "Xid 79: Node cordoned",
            "GPU has fallen off the bus: not responding",
            "GPU 2 has fallen off the bus, the others are OK",
            "GPU 1 Xid 79, GPU 2 passed",
            "Uncorrectable ECC errors: 3, Correctable: 0",
            "uncorrectable ECC errors: 0x2",
            "nvme is fine but GPU 3 has fallen off the bus",
            "all tests passed except GPU 2, which has fallen off the bus",
            "alarm - Xid 79 on gpu07",
            "A DBE (double-bit volatile ECC error) was found in GPU 3",
            "Uncorrectable ECC errors: 3",
            "Drain and Reset Recommended : Yes",
            "ACSCtl: SrcValid+ ReqRedir+",
            "NVRM: status 0x0000000f for fn 78!",
        ] {
            assert!(of(text).is_some(), "{text}");
        }
    }
}
