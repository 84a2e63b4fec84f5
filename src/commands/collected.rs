//! The output of other tools among the reports of a fleet: a folder, an archive or a file for each machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Judging;
use super::diagnose::of_machine;
use fleet::Gathered;
use pasted::Unread;
use report::read::{bytes, is_report};

/// Most files of one machine that are read.
const MOST_FILES: usize = 1000;

/// A file that is no report and may hold output.
struct File {
    path: PathBuf,
    /// True for an archive or a compressed file.
    is_packed: bool,
    /// True if the command line names it.
    is_named: bool,
}

/// The files of one machine, and the folder or file that names it.
struct Machine {
    name: PathBuf,
    files: Vec<PathBuf>,
    /// True if it has more files than are read.
    is_long: bool,
}

/// Reads the output of other tools that is among these files, and adds a report for each machine. What is no output stays
/// where it was.
pub(super) fn add(gathered: &mut Gathered, named: &[PathBuf], judging: &Judging) {
    let files: Vec<File> =
        candidates(gathered).into_iter().filter_map(|path| candidate(path, named)).collect();
    let with_reports: BTreeSet<PathBuf> = (gathered.digests.iter())
        .filter_map(|digest| Some(Path::new(&digest.file).parent()?.to_owned()))
        .collect();
    for machine in machines(files, &with_reports) {
        let (mut inputs, mut broken) = (Vec::new(), Vec::new());
        for file in &machine.files {
            let read = match bytes(file) {
                Ok((name, bytes)) => pasted::inputs(&name, bytes),
                Err(why) => Err(Unread::Broken(why)),
            };
            match read {
                Ok(texts) => inputs.extend(texts),
                Err(Unread::Broken(why)) => broken.push((file.to_string_lossy().into_owned(), why)),
                Err(Unread::Nothing(_)) => {}
            }
        }
        if machine.is_long {
            let why =
                format!("has more than {MOST_FILES} files of output: keep those of one run in it");
            broken.push((machine.name.to_string_lossy().into_owned(), why));
        }
        // Files without any output are left out, as other files are.
        let name = machine.name.to_string_lossy();
        match pasted::read(&inputs) {
            Ok(read) => gathered.add(&name, of_machine(read, judging), &machine.files),
            Err(Unread::Broken(why)) => broken.push((name.into_owned(), why)),
            Err(Unread::Nothing(_)) => {}
        }
        for (file, why) in broken {
            gathered.cannot_read(file, why);
        }
    }
}

/// Returns the files that are no reports, and archives without any.
fn candidates(gathered: &Gathered) -> BTreeSet<PathBuf> {
    let broken = gathered.broken.iter().map(|broken| {
        let path = Path::new(&broken.file);
        // A file in an archive: `ARCHIVE:FILE`.
        match broken.file.split_once(':') {
            Some((archive, _)) if !path.exists() => PathBuf::from(archive),
            _ => path.to_owned(),
        }
    });
    let left_out = gathered.left_out.iter().map(PathBuf::from);
    left_out.chain(broken).filter(|path| path.is_file()).collect()
}

fn candidate(path: PathBuf, named: &[PathBuf]) -> Option<File> {
    let (name, bytes) = bytes(&path).ok()?;
    if is_report(&bytes) {
        return None;
    }
    let is_packed = pasted::is_packed(&bytes);
    let is_output = || {
        let read = pasted::inputs(&name, bytes).and_then(|inputs| pasted::read(&inputs));
        !matches!(read, Err(Unread::Nothing(_)))
    };
    (is_packed || is_output()).then(|| File { is_named: named.contains(&path), path, is_packed })
}

/// Groups files by machine. A folder that holds output itself is one machine, with all that is below it, unless reports are
/// beside the output. An archive elsewhere, and a file that is named, is a machine by itself.
fn machines(files: Vec<File>, with_reports: &BTreeSet<PathBuf>) -> Vec<Machine> {
    let plain = files.iter().filter(|file| !file.is_packed && !file.is_named);
    let folders: BTreeSet<PathBuf> = plain
        .filter_map(|file| Some(file.path.parent()?.to_owned()))
        .filter(|folder| !with_reports.contains(folder))
        .collect();
    let mut machines: Vec<Machine> = Vec::new();
    for file in files {
        let above = file.path.ancestors().skip(1);
        // The topmost folder counts: those below it hold parts of the same machine.
        let folder = above.filter(|folder| folders.contains(*folder)).last();
        let name = match folder.filter(|_| !file.is_named) {
            Some(folder) => folder.to_owned(),
            None if file.is_packed || file.is_named => file.path.clone(),
            None => continue,
        };
        match machines.iter_mut().find(|machine| machine.name == name) {
            Some(machine) if machine.files.len() < MOST_FILES => machine.files.push(file.path),
            Some(machine) => machine.is_long = true,
            None => machines.push(Machine { name, is_long: false, files: vec![file.path] }),
        }
    }
    machines
}
