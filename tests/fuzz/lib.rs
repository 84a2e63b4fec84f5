//! Hostile input for the tests of every room that reads foreign input: valid input, broken in its structure or
//! its text. Such a test is named `fuzz_...` and ignored by `cargo test`; `scripts/fuzz` runs it.

#![cfg(feature = "harness")]
#![allow(clippy::unwrap_used, reason = "only tests use it")]

use std::cell::Cell;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};
use serde_json::{Map, Value};

/// Environment variable with the number of cases in a run of weight 1, and its default.
const CASES: &str = "PEERSCOPE_FUZZ_CASES";
const CASES_BY_DEFAULT: u32 = 1000;

/// Environment variable with the seed: the same seed gives the same inputs. Without it, the seed is random.
const SEED: &str = "PEERSCOPE_FUZZ_SEED";

/// Time after which a case hangs. Chosen so that a test ends before a CI job does.
const HANG: Duration = Duration::from_secs(60);

/// Runs `case` on inputs of this strategy. The number of cases is `weight` times that of the environment variable. A
/// weight of 1 suits a target whose cases take about a millisecond. Fails on a panic, an error, or a case that hangs. The
/// failure shows the smallest input that causes it and the seed that repeats it. Prints the number of cases.
pub fn run<S: Strategy>(
    target: &str,
    weight: f64,
    strategy: &S,
    case: impl Fn(S::Value) -> Result<(), String>,
) where
    S::Value: Clone + Debug,
{
    let cases = number(CASES).unwrap_or(CASES_BY_DEFAULT);
    // Every hash map has random keys: a random seed without a dependency.
    let seed = number(SEED).unwrap_or_else(|| RandomState::new().build_hasher().finish());
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count within u32"
    )]
    let weighted = ((f64::from(cases) * weight) as u32).max(1);
    let again = format!("{SEED}={seed} {CASES}={cases} repeats it");
    run_from(target, (seed, weighted), &again, strategy, case);
}

/// Parses a variable of the environment as a number.
fn number<T: FromStr>(variable: &str) -> Option<T> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse().ok();
    assert!(number.is_some(), "{variable} is no number: {text:?}");
    number
}

/// Runs this many cases from this seed; `again` says in a failure how to repeat the run.
fn run_from<S: Strategy>(
    target: &str,
    (seed, cases): (u64, u32),
    again: &str,
    strategy: &S,
    case: impl Fn(S::Value) -> Result<(), String>,
) where
    S::Value: Clone + Debug,
{
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 2000,
        max_shrink_time: 120_000,
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    };
    let watchdog = Watchdog::start(&format!("{target} ({again})"));
    let (began, done) = (Instant::now(), Cell::new(0_u64));
    let result = TestRunner::new(config).run(strategy, |input| {
        watchdog.begin(&input);
        let result = case(input);
        done.set(done.get() + 1);
        watchdog.end();
        result.map_err(TestCaseError::fail)
    });
    let took = began.elapsed().as_secs_f64();
    // cargo test captures the print macros, but not this.
    let _ = writeln!(std::io::stderr(), "fuzz: {target}: {} cases in {took:.1} s", done.get());
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, input)) => {
            panic!("{target}: {why}\nsmallest input: {input:#?}\n{again}")
        }
        Err(TestError::Abort(why)) => panic!("{target}: {why}\n{again}"),
    }
}

/// Ends the process when a case hangs, since a test cannot interrupt itself.
struct Watchdog {
    /// Milliseconds from the start to the beginning of the running case; 0 if none runs.
    began: Arc<AtomicU64>,
    input: Arc<Mutex<String>>,
    start: Instant,
}

impl Watchdog {
    fn start(target: &str) -> Self {
        let (began, input, start) =
            (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(String::new())), Instant::now());
        let (watched, shown, target) =
            (Arc::downgrade(&began), Arc::clone(&input), target.to_owned());
        std::thread::spawn(move || {
            while let Some(began) = watched.upgrade() {
                let began = Duration::from_millis(began.load(Ordering::Relaxed));
                if !began.is_zero() && start.elapsed().saturating_sub(began) > HANG {
                    let input = shown.lock().map(|input| input.clone()).unwrap_or_default();
                    let _ = writeln!(std::io::stderr(), "fuzz: {target}: a case hangs: {input}");
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        Self { began, input, start }
    }

    fn begin(&self, input: &impl Debug) {
        if let Ok(mut shown) = self.input.lock() {
            shown.clear();
            let _ = std::fmt::Write::write_fmt(&mut *shown, format_args!("{input:?}"));
        }
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.began.store(now.max(1), Ordering::Relaxed);
    }

    fn end(&self) {
        self.began.store(0, Ordering::Relaxed);
    }
}

/// Pieces of names that try to control what displays them.
const FRAGMENTS: [&str; 34] = [
    "\u{1b}[31m",
    "\u{1b}]0;title\u{7}",
    "\u{9b}2J",
    "\0",
    "\n",
    "\r\n",
    "\t",
    "\u{8}",
    "\u{7f}",
    "\u{85}",
    "\u{202e}",
    "\u{2066}",
    "\u{200b}",
    "\u{feff}",
    "\u{ffff}",
    "\u{e0041}",
    "\u{301}",
    "<script>alert(1)</script>",
    "</td></tr></table></style></title>",
    "<!--",
    "-->",
    "]]>",
    "&lt;",
    "&#27;",
    "&#x202e;",
    "\"",
    "'",
    "\\",
    "\\N",
    "\"]; evil [label=\"",
    "{{ 7 * 7 }}",
    "日本語",
    "%s%n",
    "\u{a0}",
];

/// Generates a hostile name of control characters, markup and random text, some of it very long.
pub fn evil() -> impl Strategy<Value = String> + Clone {
    let piece = prop_oneof![
        8 => prop::sample::select(&FRAGMENTS[..]).prop_map(str::to_owned),
        2 => any::<String>(),
        1 => Just("W".repeat(10_000)),
    ];
    prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

/// A change of a value.
#[derive(Debug, Clone)]
pub enum Mutation {
    /// Replaces it with this text: a number, a word, another type.
    Literal(&'static str),
    /// Replaces it with this string.
    Text(String),
    /// Deletes it.
    Delete,
    /// Repeats an element this many times.
    Repeat(u16),
    /// Puts this many arrays around it.
    Nest(u16),
    /// Replaces it with the value at this path.
    CopyOf(Vec<u16>),
    /// Changes its key.
    Rename(String),
    /// Replaces all numbers in it with this one: their sum is beyond any limit.
    Numbers(&'static str),
}

/// Numbers at the edges of integers, separated by blanks.
const EDGES: &str = "0 255 256 65535 65536 4294967294 4294967295 4294967296 9223372036854775807 9223372036854775808 \
    18446744073709551614 18446744073709551615";

/// Values at limits or of a wrong type. All are JSON, separated by blanks.
const LITERALS: &str = "null true false 0 -0.0 -1 1 2 7 63 255 256 65535 4000000000 4294967295 4294967296 9007199254740993 \
    9223372036854775807 18446744073709551615 1e-308 1e308 -1e308 0.1 1e40 [] {} \"\" \"0000:01:00.0\"";

fn words(list: &'static str) -> Vec<&'static str> {
    list.split(' ').collect()
}

/// Generates a mutation.
pub fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        6 => prop::sample::select(words(LITERALS)).prop_map(Mutation::Literal),
        3 => evil().prop_map(Mutation::Text),
        3 => Just(Mutation::Delete),
        2 => (2..200_u16).prop_map(Mutation::Repeat),
        1 => (1..400_u16).prop_map(Mutation::Nest),
        3 => path().prop_map(Mutation::CopyOf),
        1 => evil().prop_map(Mutation::Rename),
        3 => prop::sample::select(words(EDGES)).prop_map(Mutation::Numbers),
    ]
}

/// Generates a path into a value: at each level one of its children, modulo their number.
pub fn path() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 1..8)
}

/// Generates some mutations, each with its path.
pub fn mutations() -> impl Strategy<Value = Vec<(Vec<u16>, Mutation)>> {
    prop::collection::vec((path(), mutation()), 1..6)
}

/// Most bytes that repetitions and copies add to a value's text. Without a limit they multiply each other: three
/// mutations made 12 MB of a reply, four used up the memory of a machine. Such a case spends its time on making its own
/// input. Chosen: the largest recorded reports have 0.7 MB.
const MOST_ADDED: usize = 1_000_000;

/// Applies these mutations to the value, one after the other.
pub fn mutated(base: &Value, mutations: &[(Vec<u16>, Mutation)]) -> Value {
    let mut value = base.clone();
    let most = length(base) + MOST_ADDED;
    for (path, mutation) in mutations {
        let room = most.saturating_sub(length(&value));
        apply(&mut value, path, mutation, room);
    }
    value
}

/// Estimates the length of a value's text, bytes.
fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(elements) => 2 + elements.iter().map(length).sum::<usize>(),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| key.len() + 4 + length(value);
            2 + fields.iter().map(field).sum::<usize>()
        }
        _ => 4,
    }
}

/// Applies a mutation. Does nothing if a copy of existing content would take more than `room` bytes of text.
fn apply(root: &mut Value, path: &[u16], mutation: &Mutation, room: usize) {
    let copy = match mutation {
        Mutation::CopyOf(from) => {
            let copied = at_mut(root, from);
            if length(copied) > room {
                return;
            }
            Some(copied.clone())
        }
        _ => None,
    };
    let Some((last, way)) = path.split_last() else {
        return;
    };
    let parent = at_mut(root, way);
    let repeated = match (mutation, &*parent) {
        (Mutation::Repeat(times), Value::Array(elements)) if !elements.is_empty() => {
            length(&elements[usize::from(*last) % elements.len()]) * usize::from(*times)
        }
        (Mutation::Repeat(times), _) => length(parent) * usize::from(*times),
        _ => 0,
    };
    if repeated > room {
        return;
    }
    match parent {
        Value::Array(elements) if !elements.is_empty() => {
            let place = usize::from(*last) % elements.len();
            match mutation {
                Mutation::Delete => {
                    elements.remove(place);
                }
                Mutation::Repeat(times) => {
                    let again = vec![elements[place].clone(); usize::from(*times)];
                    elements.splice(place..place, again);
                }
                _ => replace(&mut elements[place], mutation, copy),
            }
        }
        Value::Object(fields) if !fields.is_empty() => {
            let Some(key) = fields.keys().nth(usize::from(*last) % fields.len()).cloned() else {
                return;
            };
            match mutation {
                Mutation::Delete => {
                    fields.remove(&key);
                }
                Mutation::Rename(name) => {
                    if let Some(value) = fields.remove(&key) {
                        fields.insert(name.clone(), value);
                    }
                }
                _ => replace(&mut fields[&key], mutation, copy),
            }
        }
        other => replace(other, mutation, copy),
    }
}

fn replace(value: &mut Value, mutation: &Mutation, copy: Option<Value>) {
    match mutation {
        Mutation::Literal(text) => *value = serde_json::from_str(text).unwrap_or_default(),
        Mutation::Text(text) => *value = Value::String(text.clone()),
        Mutation::Delete => *value = Value::Null,
        Mutation::Repeat(times) => *value = Value::Array(vec![value.take(); usize::from(*times)]),
        Mutation::Nest(depth) => {
            *value = (0..*depth).fold(value.take(), |inner, _| Value::Array(vec![inner]))
        }
        Mutation::CopyOf(_) => *value = copy.unwrap_or_default(),
        Mutation::Numbers(edge) => numbers(value, &serde_json::from_str(edge).unwrap_or_default()),
        Mutation::Rename(name) => {
            *value = Value::Object(Map::from_iter([(name.clone(), value.take())]))
        }
    }
}

/// Replaces all numbers in a value.
fn numbers(value: &mut Value, edge: &Value) {
    match value {
        Value::Number(_) => *value = edge.clone(),
        Value::Array(elements) => elements.iter_mut().for_each(|element| numbers(element, edge)),
        Value::Object(fields) => fields.values_mut().for_each(|field| numbers(field, edge)),
        _ => {}
    }
}

/// Returns the value at the end of a path, or at the last possible step.
fn at_mut<'a>(value: &'a mut Value, path: &[u16]) -> &'a mut Value {
    let children = match value {
        Value::Array(elements) => elements.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    };
    let (Some((step, rest)), 1..) = (path.split_first(), children) else {
        return value;
    };
    let place = usize::from(*step) % children;
    match value {
        Value::Array(elements) => at_mut(&mut elements[place], rest),
        Value::Object(fields) => at_mut(fields.values_mut().nth(place).unwrap(), rest),
        leaf => leaf,
    }
}

/// A change of a text, regardless of its meaning.
#[derive(Debug, Clone)]
pub enum Edit {
    /// Inserts these bytes.
    Insert(Vec<u8>),
    /// Removes this many bytes.
    Remove(u16),
    /// Flips a bit.
    Flip(u8),
    /// Cuts off the rest.
    Cut,
    /// Copies this many bytes from the place of the edit to the end of the text.
    Again(u16),
    /// Replaces the next number with this one.
    Number(&'static str),
}

/// Bytes that mean something to a parser, separated by blanks.
const TOKENS: &str = "\" ' [ ] [[ { } = , : . # \n \\u0000 \\ud800 \\ nan -inf 1e999 -1 0x 99999999999999999999 true null \
    \u{feff} \0 \u{1b}[2J \"\"\" ''' GiB e _ - 10de: 18446744073709551615 1979-05-27T07:32:00Z";

/// Generates edits with their places.
pub fn edits(most: usize) -> impl Strategy<Value = Vec<(u32, Edit)>> {
    let edit = prop_oneof![
        4 => prop::sample::select(words(TOKENS)).prop_map(|token| Edit::Insert(token.into())),
        1 => (prop::sample::select(words(TOKENS)), 2..5000_usize).prop_map(|(token, n)| Edit::Insert(token.repeat(n).into())),
        1 => evil().prop_map(|text| Edit::Insert(text.into())),
        1 => prop::collection::vec(any::<u8>(), 1..64).prop_map(Edit::Insert),
        3 => (1..40_u16).prop_map(Edit::Remove),
        3 => any::<u8>().prop_map(Edit::Flip),
        1 => Just(Edit::Cut),
        1 => (1..2000_u16).prop_map(Edit::Again),
        3 => prop::sample::select(words(EDGES)).prop_map(Edit::Number),
    ];
    prop::collection::vec((any::<u32>(), edit), 0..=most)
}

/// Applies these edits to the text, one after the other.
pub fn edited(text: &[u8], edits: &[(u32, Edit)]) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for (place, edit) in edits {
        let place = *place as usize % (bytes.len() + 1);
        match edit {
            Edit::Insert(more) => {
                bytes.splice(place..place, more.iter().copied());
            }
            Edit::Remove(count) => {
                bytes.drain(place..bytes.len().min(place + usize::from(*count)));
            }
            Edit::Flip(bit) => {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Edit::Number(edge) => {
                let rest = &bytes[place..];
                let start = rest.iter().position(u8::is_ascii_digit).unwrap_or(rest.len());
                let digits = rest[start..].iter().take_while(|byte| byte.is_ascii_digit());
                let end = start + digits.count();
                bytes.splice(place + start..place + end, edge.bytes());
            }
            Edit::Cut => bytes.truncate(place),
            Edit::Again(count) => {
                let again = bytes[place..bytes.len().min(place + usize::from(*count))].to_vec();
                bytes.extend(again);
            }
        }
    }
    bytes
}

/// Checks that an error message has words.
pub fn assert_is_sentence(error: &str) -> Result<(), String> {
    if error.trim().is_empty() { Err("an error without a word".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Returns the failure of a run from this seed, and the inputs that it tried.
    fn failure(seed: u64) -> (String, Vec<String>) {
        let tried = Mutex::new(Vec::new());
        let run = || {
            run_from("names", (seed, 50), "AGAIN", &evil(), |name| {
                tried.lock().unwrap().push(name.clone());
                if name.len() > 20 { Err("too long".to_owned()) } else { Ok(()) }
            });
        };
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap().clone();
        (message, tried.into_inner().unwrap())
    }

    #[test]
    fn a_failure_shows_how_to_repeat_it_and_the_same_seed_repeats_it() {
        let (message, tried) = failure(7);
        assert!(message.starts_with("names: too long"), "{message}");
        assert!(message.ends_with("\nAGAIN"), "{message}");
        assert_eq!(failure(7), (message, tried.clone()));
        assert_ne!(failure(8).1, tried);
    }

    #[test]
    fn mutations_that_multiply_each_other_stay_within_the_limit() {
        let deep = |depth| vec![0; depth];
        let mutations = [
            (deep(1), Mutation::Nest(207)),
            (deep(7), Mutation::Repeat(194)),
            (deep(3), Mutation::Repeat(160)),
            (deep(2), Mutation::Repeat(199)),
        ];
        let text = mutated(&serde_json::json!([0]), &mutations).to_string();
        assert!(text.len() < 2 * MOST_ADDED, "{} bytes", text.len());
        // Mutations within the limit are applied as a whole.
        let text = mutated(&serde_json::json!([0]), &mutations[..2]).to_string();
        assert!(text.len() > 194 * 200, "{} bytes", text.len());
    }
}
