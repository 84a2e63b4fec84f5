//! The last reports of a machine, in a folder beside the journals.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::place::{folders, is_ours, plain, ready, stamp, suffix};

/// Number of reports kept of a command. Chosen: three weeks of daily runs; 20 of eight GPUs take about 1 MB.
const KEPT: usize = 20;

/// The kept reports of a command on a machine.
pub struct Kept {
    /// Where programs keep their state.
    state: PathBuf,
    folder: PathBuf,
    /// The end of their names, which has the name of this host: hosts share home folders.
    ending: String,
}

impl Kept {
    /// Finds the folder for the machine of this name.
    pub fn of(machine: &str, command: &str) -> Self {
        let state = folders().into_iter().next().unwrap_or_default();
        // A name of dots would lead elsewhere.
        let folder = state.join("history").join(plain(machine).replacen('.', "_", 1));
        Self { state, folder, ending: format!("-{command}{}", suffix("json.gz")) }
    }

    /// Returns the files, the oldest first. The name of one that a killed run did not finish begins with a dot.
    pub fn paths(&self) -> Vec<PathBuf> {
        let ours = is_ours(&self.state) && is_ours(&self.folder);
        let entries = std::fs::read_dir(&self.folder).ok().filter(|_| ours);
        let names = entries.into_iter().flatten().flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(&self.ending)).collect();
        names.sort_by(|one, other| one.trim_start_matches('.').cmp(other.trim_start_matches('.')));
        names.into_iter().map(|name| self.folder.join(name)).collect()
    }

    /// Returns the file for the report of this process.
    pub fn path(&self, started_at: &str) -> PathBuf {
        let pid = std::process::id();
        self.folder.join(format!("{}-{pid:07}{}", stamp(started_at), self.ending))
    }

    /// Writes a report to its file, as a whole or not at all, and removes the oldest files.
    ///
    /// # Errors
    ///
    /// It cannot be written; no part of it is left.
    pub fn write(&self, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        if self.folder.exists() && !self.folder.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        ready(&self.state).and_then(|()| ready(&self.folder))?;
        let own = path.file_name().unwrap_or_default().display();
        let unfinished = path.with_file_name(format!(".{own}"));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        let written = (&file).write_all(bytes).and_then(|()| std::fs::rename(&unfinished, path));
        written.inspect_err(|_| drop(std::fs::remove_file(&unfinished)))?;
        let mut others = self.paths();
        others.retain(|other| other != path);
        let over = (others.len() + 1).saturating_sub(KEPT);
        for old in others.into_iter().take(over) {
            // A later run tries again.
            let _ = std::fs::remove_file(old);
        }
        Ok(())
    }
}
