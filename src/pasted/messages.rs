//! Known messages: their words, what they prove, and what to do. They stand in `messages.toml`.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use serde::Deserialize;

use model::finding::Severity;
use model::pasted::{Explained, PastedFaultKind};
use model::snapshot::named_xid;

/// An entry of `messages.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Message {
    /// Alternatives. Each has one part, or several that follow each other in a line.
    words: Vec<String>,
    /// The fault that it states, for a rule.
    pub kind: Option<PastedFaultKind>,
    /// Severity, meaning and step, where no rule judges the message.
    level: Option<Severity>,
    means: Option<String>,
    advice: Option<String>,
    /// True if another error usually causes it.
    #[serde(default)]
    pub follows: bool,
    /// True if it counts only outside of the output of tools.
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

/// Returns true if what a line states is taken by its message, and needs no reader.
pub(crate) fn is_known(text: &str) -> bool {
    of(text).is_some_and(|one| !one.beside)
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
    let is_quoted = head.contains(" \"") && !head.contains("NVRM: ") && !head.starts_with('{');
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

/// Returns true if a line states an Xid by its number.
pub(crate) fn names_xid(text: &str) -> bool {
    named_xid(text).is_some_and(|(_, head, tail)| !is_mention(head, tail))
}

/// Explains a line, without the line itself; `None` if a rule judges its message, or nothing is known of it.
pub(crate) fn explained(text: &str) -> Option<Explained> {
    let Message { level, means, advice, follows, .. } = of(text)?;
    let name = |number| format!("GPU {number} (as the line counts)");
    let gpu = gpu_number(text).map_or("a GPU".to_owned(), name);
    let meaning = means.as_ref()?.replace("{gpu}", &gpu);
    let (severity, advice) = ((*level)?, advice.clone()?);
    Some(Explained { severity, meaning, advice, follows: *follows, lines: Vec::new() })
}

/// Returns the number by which a line names a GPU: `GPU5`, `GPU 5`, `GPU3: 0000:4D:00.0`. An address is none.
pub(crate) fn gpu_number(text: &str) -> Option<u32> {
    text.split("GPU").skip(1).find_map(|rest| {
        let rest = rest.trim_start();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let behind = rest[digits..].trim_start_matches(": ");
        let is_number = digits < 3 && !behind.starts_with(|c: char| c == ':' || c.is_alphabetic());
        rest[..digits].parse().ok().filter(|_| is_number)
    })
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
            for words in &message.words {
                let found = of(&words.replace(ANY, " x "));
                assert!(found.is_some_and(|found| std::ptr::eq(found, message)), "{words}");
            }
        }
    }

    #[test]
    fn a_message_is_the_first_whose_parts_all_follow_each_other() {
        assert_eq!(behind(" of b: no space for c", "BAR 1 … no space for"), Some(" c"));
        assert_eq!(behind(" of b", "BAR 1 … no space for"), None);
        assert_eq!(behind("0 of b", "Xid 79"), None);
        let gsp = explained("NVRM: GPU5 _kgspLogRpcTimeout: *** GSP Timeout ***").unwrap();
        assert!(gsp.meaning.contains("of GPU 5 (as the line counts) stopped"), "{}", gsp.meaning);
        let other = explained("NVRM: GPU 0000:04:00.0: GSP Timeout").unwrap();
        assert!(other.meaning.contains("of a GPU stopped"), "{}", other.meaning);
        assert_eq!(explained("No devices were found"), None);
        assert_eq!(explained("all is well"), None);
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
            assert!(of(text).is_none() && !names_xid(text), "{text}");
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
            assert!(of(text).is_some() || names_xid(text), "{text}");
        }
    }
}
