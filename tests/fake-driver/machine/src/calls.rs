//! Counting calls, and putting the plan's faults in their place.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::plan::{self, Action, Entry};
use crate::{FAULTS, STATE};

/// The functions of a library, and how often each was called.
#[derive(Debug)]
pub struct Calls {
    functions: &'static [&'static str],
    counts: Vec<AtomicU64>,
    faults: Vec<Entry>,
    state: Option<PathBuf>,
    record: Option<File>,
}

impl Calls {
    /// Reads plan and folder from the environment.
    ///
    /// # Panics
    ///
    /// The plan cannot be read: a test that asks for a fault must not pass without it.
    pub fn new(library: &str, functions: &'static [&'static str]) -> Self {
        let faults = std::env::var(FAULTS).unwrap_or_default();
        let mut faults = plan::parse(&faults).unwrap_or_else(|why| panic!("{FAULTS}: {why}"));
        faults.retain(|fault| functions.contains(&fault.function.as_str()));
        let state = std::env::var_os(STATE).map(PathBuf::from);
        let record = state.as_ref().and_then(|state| {
            let name = format!("{library}-{}.calls", std::process::id());
            OpenOptions::new().write(true).create(true).truncate(true).open(state.join(name)).ok()
        });
        Self { functions, counts: functions.iter().map(|_| AtomicU64::new(0)).collect(), faults, state, record }
    }

    /// Counts a call. The code that it is to give at once, if something is to go wrong with it.
    pub fn enter(&self, function: usize) -> Option<u32> {
        let count = self.counts[function].fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(record) = &self.record {
            // A record that cannot be kept is noticed by the test that reads it.
            let _ = record.write_all_at(&count.to_le_bytes(), 8 * function as u64);
        }
        let name = self.functions[function];
        let fits = |(_, fault): &(usize, &Entry)| {
            fault.function == name && (count == fault.call || (fault.lasting && count > fault.call))
        };
        let (number, fault) = self.faults.iter().enumerate().find(fits)?;
        if !self.shown(number) && !fault.lasting {
            return None;
        }
        match fault.action {
            Action::Code(code) => Some(code),
            Action::Skip => Some(0),
            Action::Abort => std::process::abort(),
            Action::Hang => loop {
                std::thread::sleep(Duration::from_secs(3600));
            },
        }
    }

    /// Notes a call of a function that is there for nobody, as a file `NAME.unexpected`.
    pub fn unexpected(&self, name: &str) {
        if let Some(state) = &self.state {
            let _ = File::create(state.join(format!("{name}.unexpected")));
        }
    }

    /// Marks a fault as shown; whether this process is the first to do so.
    fn shown(&self, number: usize) -> bool {
        let Some(state) = &self.state else { return true };
        OpenOptions::new().write(true).create_new(true).open(state.join(format!("fault-{number}.shown"))).is_ok()
    }
}

/// How often each function of a library was called, process by process, from the records in a
/// folder. A function that was never called has 0, or is beyond the record's end.
///
/// # Errors
///
/// The folder cannot be read.
pub fn read(state: &Path, library: &str, functions: &[&str]) -> std::io::Result<Vec<Vec<u64>>> {
    let mut records = Vec::new();
    for entry in std::fs::read_dir(state)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(library) && name.ends_with(".calls") {
            let bytes = std::fs::read(entry.path())?;
            let words = bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
            records.push(words.chain(std::iter::repeat(0)).take(functions.len()).collect());
        }
    }
    Ok(records)
}
