//! Folders for journals, and the journals that earlier runs left behind.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::entry::{Header, SCHEMA};

/// Number of journals kept of runs that were cut off. A health check that is killed every few minutes must not fill the
/// disk; chosen.
const KEPT: usize = 10;
/// Longest header, bytes.
const LONGEST_HEADER: u64 = 1 << 20;

/// Returns the folders for journals, the preferred one first. That is where programs keep their state
/// (`$XDG_STATE_HOME`, `~/.local/state`); the others serve if there is no such folder.
pub fn folders() -> Vec<PathBuf> {
    folders_for(&|name| std::env::var_os(name), rustix::process::getuid().as_raw())
}

fn folders_for(variable: &dyn Fn(&str) -> Option<OsString>, user: u32) -> Vec<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".local/state"));
    let state = absolute("XDG_STATE_HOME").or_else(home).map(|state| state.join("peerscope"));
    // A system service has no home.
    let system = (user == 0).then(|| PathBuf::from("/var/lib/peerscope"));
    state
        .into_iter()
        .chain(system)
        .chain([PathBuf::from(format!("/var/tmp/peerscope-{user}"))])
        .collect()
}

/// Creates a folder, for this user alone, if it is missing.
///
/// # Errors
///
/// It cannot be created, or it belongs to another user, who could then read and change its contents.
pub fn ready(folder: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if is_ours(folder) { Ok(()) } else { Err(ErrorKind::PermissionDenied.into()) }
}

/// Returns true if the folder belongs to this user. In /var/tmp another user can create one of any name.
pub(super) fn is_ours(folder: &Path) -> bool {
    let user = rustix::process::getuid().as_raw();
    std::fs::symlink_metadata(folder)
        .is_ok_and(|found| found.uid() == user || !folder.starts_with("/var/tmp"))
}

/// Returns the file name of a run's journal. It contains the machine's name, since machines share home folders and a
/// journal belongs to the machine that wrote it.
pub fn file_name(header: &Header) -> String {
    format!("{}-{}{}", stamp(&header.started_at), header.pid, suffix("jsonl"))
}

/// Returns a time as a part of a file name, which sorts by time.
pub(super) fn stamp(time: &str) -> String {
    time.chars().filter(char::is_ascii_alphanumeric).collect()
}

/// Returns the ending of the names of this machine's files.
pub(super) fn suffix(extension: &str) -> String {
    format!("@{}.{extension}", plain(&rustix::system::uname().nodename().to_string_lossy()))
}

/// Returns a name without characters that mean something in paths and shells.
pub(super) fn plain(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '_' }
    };
    name.chars().map(plain).collect()
}

/// Returns true if the run that writes this journal is still going.
///
/// # Errors
///
/// The file cannot be opened.
pub fn is_going_on(path: &Path) -> std::io::Result<bool> {
    let file = std::fs::File::open(path)?;
    let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared);
    Ok(locked.is_err_and(|why| std::io::Error::from(why).kind() == ErrorKind::WouldBlock))
}

/// A journal whose run has ended without a report.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOver {
    pub path: PathBuf,
    pub header: Header,
}

/// Returns the journals of runs that were cut off on this machine, the newest first.
pub fn left_over(folders: &[PathBuf]) -> Vec<LeftOver> {
    let suffix = suffix("jsonl");
    let entries = folders
        .iter()
        .filter(|folder| is_ours(folder))
        .filter_map(|folder| std::fs::read_dir(folder).ok());
    let paths = entries.flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let ours = paths.filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(&suffix))
    });
    let mut found: Vec<_> = ours
        // Read the header before testing the lock: a run takes its lock before it writes its header.
        .filter_map(|path| header(&path).map(|header| LeftOver { path, header }))
        .filter(|left| is_going_on(&left.path).is_ok_and(|going_on| !going_on))
        .collect();
    found.sort_by(|one, other| {
        let key = |left: &LeftOver| (left.header.started_at.clone(), left.path.clone());
        key(other).cmp(&key(one))
    });
    found
}

/// Opens a file that a run of peerscope wrote. Other users' programs may have put something else there: a link leads
/// elsewhere, and a pipe waits for its writer.
pub fn regular(path: &Path) -> Option<std::fs::File> {
    let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file: std::fs::File = rustix::fs::open(path, how, Mode::empty()).ok()?.into();
    file.metadata().is_ok_and(|found| found.is_file()).then_some(file)
}

/// Returns the first line of a file, if it is a journal's header.
fn header(path: &Path) -> Option<Header> {
    let mut line = String::new();
    BufReader::new(regular(path)?).take(LONGEST_HEADER).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok().filter(|header: &Header| header.schema == SCHEMA)
}

/// Removes the oldest of the journals that were left over, and returns the rest.
pub fn prune(mut left_over: Vec<LeftOver>) -> Vec<LeftOver> {
    for old in left_over.drain(KEPT.min(left_over.len())..) {
        // A later run tries again.
        let _ = std::fs::remove_file(old.path);
    }
    left_over
}

/// Returns the newest of these journals if it was not announced yet, and marks all of them as announced. The mark is in
/// the file itself, which nothing writes to any more: it is made read-only.
pub fn tell(left_over: &[LeftOver]) -> Option<&LeftOver> {
    let is_untold = |left: &&LeftOver| {
        std::fs::metadata(&left.path).is_ok_and(|file| !file.permissions().readonly())
    };
    let untold: Vec<_> = left_over.iter().filter(is_untold).collect();
    for left in &untold {
        // A file whose mark fails is announced again.
        let _ = std::fs::set_permissions(&left.path, std::fs::Permissions::from_mode(0o400));
    }
    untold.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts a journal of a run that was cut off at this path.
    fn journal(at: &Path) {
        let header = Header {
            schema: SCHEMA.into(),
            tool: model::report::Tool::this(),
            started_at: "2026-11-20T17:42:44Z".into(),
            machine: "demo".into(),
            profile: "quick".into(),
            pid: 1,
            args: Vec::new(),
        };
        let line = serde_json::to_string(&header).unwrap();
        std::fs::write(at, line + "\n").unwrap();
    }

    #[test]
    fn what_is_no_file_among_the_journals_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(format!("{name}{}", suffix("jsonl")));
        journal(&at("1"));
        // A pipe would wait for its writer, and the end of a link is not ours.
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("2"),
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        let elsewhere = folder.path().join("elsewhere");
        journal(&elsewhere);
        std::os::unix::fs::symlink(&elsewhere, at("3")).unwrap();
        let found = left_over(&[folder.path().to_owned()]);
        let paths: Vec<_> = found.iter().map(|left| left.path.clone()).collect();
        assert_eq!(paths, [at("1")]);
        tell(&found);
        prune(found);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().readonly();
        assert!(mode(&at("1")) && !mode(&elsewhere));
    }

    #[test]
    fn journals_are_kept_where_programs_keep_their_state() {
        let with = |set: &[(&str, &str)], user| {
            let set: Vec<(String, String)> =
                set.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            let find = move |name: &str| {
                set.iter().find(|(key, _)| key == name).map(|(_, value)| value.into())
            };
            folders_for(&find, user)
                .iter()
                .map(|folder| folder.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            with(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")], 7),
            ["/s/peerscope", "/var/tmp/peerscope-7"]
        );
        assert_eq!(
            with(&[("HOME", "/h")], 7),
            ["/h/.local/state/peerscope", "/var/tmp/peerscope-7"]
        );
        // The specification requires that relative paths are ignored.
        assert_eq!(with(&[("XDG_STATE_HOME", "s")], 7), ["/var/tmp/peerscope-7"]);
        assert_eq!(with(&[], 0), ["/var/lib/peerscope", "/var/tmp/peerscope-0"]);
    }
}
