//! The ledger of runs within a budget: which part of the machine was covered when. It is replaced as a whole, so that a
//! run that is killed or a full disk leave the last complete one; a lock beside it lets two writers take turns.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// Schema of the file.
const SCHEMA: &str = "peerscope.ledger/1";

/// Longest wait for another writer, which needs some milliseconds. Chosen.
const PATIENCE: Duration = Duration::from_secs(5);

/// Weight of the latest run in the time that a round takes. Chosen: a change of the machine shows within some runs, and a
/// run beside other work does not decide.
const LATEST: f64 = 0.3;

/// What the runs so far have covered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ledger {
    schema: String,
    /// `live`, or the name of the simulated machine.
    pub machine: String,
    /// Number of runs.
    pub runs: u64,
    /// Time that a round takes, seconds; 0 if no run has ended.
    pub seconds_per_round: f64,
    /// The parts of the machine by their keys.
    pub parts: BTreeMap<String, Covered>,
}

/// The last time that a part of the machine was covered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Covered {
    /// Seconds since 1970, UTC.
    pub at: i64,
    /// Codes of findings on it. It is covered by every run while it has some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

/// What one run adds to the ledger.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Addition {
    /// Time that a round of this run took, seconds; `None` if it ran none.
    pub seconds_per_round: Option<f64>,
    pub parts: BTreeMap<String, Covered>,
}

/// A ledger as it was read.
#[derive(Debug)]
pub(super) struct Opened {
    pub ledger: Ledger,
    /// What was wrong with the file, a sentence.
    pub problem: Option<String>,
}

impl Ledger {
    fn new(machine: &str) -> Self {
        Self {
            schema: SCHEMA.into(),
            machine: machine.to_owned(),
            runs: 0,
            seconds_per_round: 0.0,
            parts: BTreeMap::new(),
        }
    }

    /// Reads a ledger; a file that does not exist is an empty one.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is no ledger, or is that of another machine.
    pub(super) fn open(path: &Path, machine: &str) -> Result<Opened, String> {
        let name = path.display();
        let bytes = match recording::file(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(format!("cannot read the ledger {name}: {error}")),
        };
        let fresh = |problem| Opened { ledger: Self::new(machine), problem };
        if bytes.is_empty() {
            return Ok(fresh(None));
        }
        match serde_json::from_slice::<Self>(&bytes) {
            Ok(ledger) if ledger.schema != SCHEMA => Err(format!(
                "the ledger {name} has the schema '{}', this version reads {SCHEMA}",
                ledger.schema
            )),
            Ok(ledger) if ledger.machine != machine => Err(format!(
                "the ledger {name} is of the machine {}: give each machine its own",
                ledger.machine
            )),
            Ok(ledger) => Ok(Opened { ledger, problem: None }),
            Err(_) if claims(&bytes) => Ok(fresh(Some(format!(
                "the ledger {name} was damaged and begins again: every part counts as never covered"
            )))),
            Err(_) => Err(format!("{name} is no ledger of 'peerscope check --ledger'")),
        }
    }

    /// Adds a run to the file, with what other writers have added since it was read, and returns the ledger as it is then.
    ///
    /// # Errors
    ///
    /// It could not be written. The file is as it was.
    pub(super) fn add(path: &Path, machine: &str, addition: &Addition) -> Result<Self, String> {
        let failed = |error: std::io::Error| {
            let name = path.display();
            format!(
                "cannot write the ledger {name} ({}): this run does not count as coverage",
                error.kind()
            )
        };
        let _lock = locked(path).map_err(failed)?;
        let mut ledger = Self::open(path, machine)?.ledger;
        ledger.take(addition);
        ledger.write(path).map_err(failed)?;
        Ok(ledger)
    }

    fn take(&mut self, addition: &Addition) {
        self.runs = self.runs.saturating_add(1);
        if let Some(seconds) = addition.seconds_per_round {
            self.seconds_per_round = match self.seconds_per_round {
                known if known > 0.0 => known + LATEST * (seconds - known),
                _ => seconds,
            };
        }
        for (key, covered) in &addition.parts {
            let is_newer = |known: &Covered| known.at > covered.at;
            if !self.parts.get(key).is_some_and(is_newer) {
                self.parts.insert(key.clone(), covered.clone());
            }
        }
    }

    /// Replaces the file as a whole, and waits until the disk has it.
    fn write(&self, path: &Path) -> std::io::Result<()> {
        let folder = folder_of(path);
        let mut file = tempfile::Builder::new().prefix(".peerscope-ledger-").tempfile_in(folder)?;
        serde_json::to_writer(&mut file, self)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        // The name is on the disk once the folder is.
        File::open(folder)?.sync_all()
    }
}

/// Returns true if these bytes were meant to be a ledger.
fn claims(bytes: &[u8]) -> bool {
    let start = format!("{{\"schema\":\"{SCHEMA}\"");
    bytes.starts_with(start.as_bytes()) || start.as_bytes().starts_with(bytes)
}

/// Takes the lock beside the ledger. The kernel gives it back when its holder ends, however that is.
fn locked(path: &Path) -> std::io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file =
        File::options().create(true).truncate(false).write(true).open(PathBuf::from(name))?;
    let until = Instant::now() + PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    /// Names the ledger of [`writer`].
    const PLACE: &str = "PEERSCOPE_TEST_LEDGER";
    /// Number of runs that it adds; none is without end.
    const NUMBER: &str = "PEERSCOPE_TEST_LEDGER_RUNS";

    fn addition(at: i64) -> Addition {
        let parts = (0..40).map(|part| {
            let findings = vec!["a-finding".to_owned(); 3];
            (format!("part {part}"), Covered { at, findings })
        });
        Addition { seconds_per_round: Some(0.01), parts: parts.collect() }
    }

    /// Not a test: the process that is killed. It prints the number of runs after each one that is on the disk.
    #[test]
    #[ignore = "a_writer_that_is_killed_a_hundred_times_loses_nothing starts it"]
    fn writer() {
        let Ok(place) = std::env::var(PLACE) else {
            return;
        };
        let number = std::env::var(NUMBER).ok().and_then(|number| number.parse().ok());
        for run in 0..number.unwrap_or(i64::MAX) {
            let ledger = Ledger::add(Path::new(&place), "live", &addition(run)).unwrap();
            writeln!(std::io::stdout(), "runs {}", ledger.runs).unwrap();
        }
    }

    fn start(place: &Path, number: Option<i64>) -> std::process::Child {
        let module = module_path!().split_once("::").unwrap().1;
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", &format!("{module}::writer"), "--ignored", "--nocapture"])
            .env(PLACE, place)
            .stdout(Stdio::piped());
        number.map(|number| command.env(NUMBER, number.to_string()));
        command.spawn().unwrap()
    }

    #[test]
    fn a_writer_that_is_killed_a_hundred_times_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("ledger.json");
        let mut random = fastrand::Rng::with_seed(7);
        let mut known = 0;
        for _ in 0..100 {
            let mut child = start(&place, None);
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let runs = |line: &str| line.trim().strip_prefix("runs ")?.parse::<u64>().ok();
            let first = lines.by_ref().find_map(|line| runs(&line.unwrap()));
            std::thread::sleep(Duration::from_micros(random.u64(0..8_000)));
            child.kill().unwrap();
            child.wait().unwrap();
            let said = lines.map_while(Result::ok).filter_map(|line| runs(&line)).max();
            let said = said.or(first).unwrap();
            let opened = Ledger::open(&place, "live").unwrap();
            assert_eq!(opened.problem, None);
            assert!(opened.ledger.runs >= said, "{} on the disk, {said} said", opened.ledger.runs);
            assert!(opened.ledger.runs > known && opened.ledger.parts.len() == 40);
            known = opened.ledger.runs;
        }
        // A killed writer may leave its temporary file, and never a lock.
        Ledger::add(&place, "live", &addition(1)).unwrap();
    }

    #[test]
    fn two_writers_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("ledger.json");
        let writers = [start(&place, Some(60)), start(&place, Some(60))];
        for writer in writers {
            assert!(writer.wait_with_output().unwrap().status.success());
        }
        assert_eq!(Ledger::open(&place, "live").unwrap().ledger.runs, 120);
    }

    #[test]
    fn what_is_no_ledger_is_refused_and_a_damaged_one_begins_again() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("ledger.json");
        assert_eq!(Ledger::open(&place, "live").unwrap().ledger.runs, 0);
        Ledger::add(&place, "live", &addition(9)).unwrap();
        let other = Ledger::open(&place, "demo").unwrap_err();
        assert!(other.contains("is of the machine live: give each machine its own"), "{other}");
        let whole = std::fs::read(&place).unwrap();
        for cut in [1, 10, whole.len() / 2, whole.len() - 3] {
            std::fs::write(&place, &whole[..cut]).unwrap();
            let opened = Ledger::open(&place, "live").unwrap();
            assert_eq!(opened.ledger.runs, 0);
            assert!(opened.problem.unwrap().contains("was damaged and begins again"));
        }
        std::fs::write(&place, "{\"schema\":\"peerscope.report/1\"}").unwrap();
        assert!(Ledger::open(&place, "live").unwrap_err().contains("is no ledger"));
        // A later run has covered a part; an earlier one that ends after it does not bring its age back.
        std::fs::write(&place, whole).unwrap();
        let ledger = Ledger::add(&place, "live", &addition(3)).unwrap();
        assert_eq!((ledger.runs, ledger.parts["part 7"].at), (2, 9));
    }

    #[test]
    fn a_folder_that_takes_no_file_leaves_the_ledger_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("no/such/folder/ledger.json");
        let why = Ledger::add(&place, "live", &addition(1)).unwrap_err();
        assert!(why.contains("this run does not count as coverage"), "{why}");
    }
}
