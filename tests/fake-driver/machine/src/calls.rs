//! Counts of calls, and the planned faults of calls.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::plan::{self, Action, Entry};
use crate::{FAULTS, STATE};

/// The functions of a library, and the number of calls of each.
#[derive(Debug)]
pub struct Calls {
    functions: &'static [&'static str],
    counts: Vec<AtomicU64>,
    /// Faults of this library, with their indices in the plan, which is one for all libraries.
    faults: Vec<(usize, Entry)>,
    state: Option<PathBuf>,
    record: Option<File>,
    before_copies: Option<PathBuf>,
}

/// The call that ends the start. The counts before it are kept separately.
const FIRST_COPY: &str = "cuMemcpyPeerAsync";

impl Calls {
    /// Reads the plan and the folder from the environment.
    ///
    /// # Panics
    ///
    /// Panics if the plan cannot be read: a test that asks for a fault must not pass without it.
    pub fn new(library: &str, functions: &'static [&'static str]) -> Self {
        let faults = std::env::var(FAULTS).unwrap_or_default();
        let faults = plan::parse(&faults).unwrap_or_else(|why| panic!("{FAULTS}: {why}"));
        let own = |(_, fault): &(usize, Entry)| functions.contains(&fault.function.as_str());
        let faults = faults.into_iter().enumerate().filter(own).collect();
        let state = std::env::var_os(STATE).map(PathBuf::from);
        let place = |kind| {
            let name = format!("{library}-{}.{kind}", std::process::id());
            state.as_ref().map(|state| state.join(name))
        };
        let (record, before_copies) = (place("calls"), place("start"));
        let record = record.and_then(|path| {
            OpenOptions::new().write(true).create(true).truncate(true).open(path).ok()
        });
        let counts = functions.iter().map(|_| AtomicU64::new(0)).collect();
        Self { functions, counts, faults, state, record, before_copies }
    }

    /// Counts a call. Returns the code that it must return at once if a fault is planned for it.
    pub fn enter(&self, function: usize) -> Option<u32> {
        let count = self.counts[function].fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(record) = &self.record {
            // If a record cannot be written, the test that reads it notices.
            let _ = record.write_all_at(&count.to_le_bytes(), 8 * function as u64);
        }
        let name = self.functions[function];
        if let (FIRST_COPY, 1, Some(path)) = (name, count, &self.before_copies) {
            let bytes: Vec<u8> = self
                .counts
                .iter()
                .flat_map(|count| count.load(Ordering::Relaxed).to_le_bytes())
                .collect();
            let _ = std::fs::write(path, bytes);
        }
        let fits = |(_, fault): &&(usize, Entry)| {
            fault.function == name && (count == fault.call || (fault.lasting && count > fault.call))
        };
        let (number, fault) = self.faults.iter().find(fits)?;
        if !self.shown(*number) && !fault.lasting {
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

    /// Records a call of an unused function, as a file `NAME.unexpected`.
    pub fn unexpected(&self, name: &str) {
        if let Some(state) = &self.state {
            let _ = File::create(state.join(format!("{name}.unexpected")));
        }
    }

    /// Marks a fault as shown. Returns true if this process is the first to do so.
    fn shown(&self, number: usize) -> bool {
        let Some(state) = &self.state else {
            return true;
        };
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(state.join(format!("fault-{number}.shown")))
            .is_ok()
    }
}

/// Returns the number of calls of each function of a library, process by process, from the records in a folder: in all
/// (`calls`), or before the first copy (`start`).
///
/// # Errors
///
/// The folder cannot be read.
pub fn read(
    state: &Path,
    library: &str,
    kind: &str,
    functions: &[&str],
) -> std::io::Result<Vec<Vec<u64>>> {
    let mut records = Vec::new();
    for entry in std::fs::read_dir(state)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(library) && name.ends_with(kind) {
            let bytes = std::fs::read(entry.path())?;
            let words =
                bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
            records.push(words.chain(std::iter::repeat(0)).take(functions.len()).collect());
        }
    }
    Ok(records)
}

/// Defines functions with C signatures that run their body through `call`, and a list of their names.
#[macro_export]
macro_rules! exports {
    ($( fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block )*) => {
        /// The functions that are exported and do something.
        pub const FUNCTIONS: &[&str] = &[$(stringify!($name)),*];

        #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "the library's names")]
        enum Function { $($name),* }

        $(
            /// # Safety
            ///
            /// As required by the library's header.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
                call(Function::$name as usize, || $body)
            }
        )*
    };
}
