//! Where journals are kept, and which of them a run has left behind.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::entry::{Header, SCHEMA};
use model::order::Order;

/// How many journals of runs that were cut off are kept. A health check that is killed every few
/// minutes must not fill the disk; chosen.
const KEPT: usize = 10;
/// No header is longer, bytes.
const LONGEST_HEADER: u64 = 1 << 20;

/// The folders for journals, the preferred one first: where programs keep their state
/// (`$XDG_STATE_HOME`, `~/.local/state`), and what is left where there is no such place.
pub fn folders() -> Vec<PathBuf> {
    folders_for(
        &|name| std::env::var_os(name),
        rustix::process::getuid().as_raw(),
    )
}

fn folders_for(variable: &dyn Fn(&str) -> Option<OsString>, user: u32) -> Vec<PathBuf> {
    let absolute = |name| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let home = || absolute("HOME").map(|home| home.join(".local/state"));
    let state = absolute("XDG_STATE_HOME")
        .or_else(home)
        .map(|state| state.join("peerscope"));
    // A service of the system has no home.
    let system = (user == 0).then(|| PathBuf::from("/var/lib/peerscope"));
    state
        .into_iter()
        .chain(system)
        .chain([PathBuf::from(format!("/var/tmp/peerscope-{user}"))])
        .collect()
}

/// Makes a folder, for this user alone, where it is missing.
///
/// # Errors
///
/// It cannot be made; or it is another user's, who could then read and change what is in it.
pub fn ready(folder: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    if is_ours(folder) {
        Ok(())
    } else {
        Err(ErrorKind::PermissionDenied.into())
    }
}

/// Whether it is a folder of this user's. Another user can make one of any name in /var/tmp.
fn is_ours(folder: &Path) -> bool {
    let user = rustix::process::getuid().as_raw();
    std::fs::symlink_metadata(folder)
        .is_ok_and(|found| found.uid() == user || !folder.starts_with("/var/tmp"))
}

/// The name of a run's journal. Homes are shared between machines, and a journal is for the machine
/// that it was written on.
pub fn file_name(header: &Header) -> String {
    let stamp: String = header
        .started_at
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    format!("{stamp}-{}{}", header.pid, suffix())
}

/// How the names of this machine's journals end.
fn suffix() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || ".-_".contains(c) {
            c
        } else {
            '_'
        }
    };
    format!("@{}.jsonl", name.chars().map(plain).collect::<String>())
}

/// Whether the run that writes this journal is still going.
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
    /// Where it is.
    pub path: PathBuf,
    /// Which run it was.
    pub header: Header,
}

/// The journals in these folders of runs that were cut off on this machine, the newest first.
pub fn left_over(folders: &[PathBuf]) -> Vec<LeftOver> {
    let suffix = suffix();
    let entries = folders
        .iter()
        .filter(|folder| is_ours(folder))
        .filter_map(|folder| std::fs::read_dir(folder).ok());
    let paths = entries
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()));
    let ours = paths.filter(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().ends_with(&suffix))
    });
    let mut found: Vec<_> = ours
        // In this order: a run takes its lock before it writes its header.
        .filter_map(|path| header(&path).map(|header| LeftOver { path, header }))
        .filter(|left| is_going_on(&left.path).is_ok_and(|going_on| !going_on))
        .collect();
    found.order_by(|one, other| {
        let key = |left: &LeftOver| (left.header.started_at.clone(), left.path.clone());
        key(other).cmp(&key(one))
    });
    found
}

/// The first line of a journal, if that is what it is.
fn header(path: &Path) -> Option<Header> {
    let mut line = String::new();
    BufReader::new(std::fs::File::open(path).ok()?)
        .take(LONGEST_HEADER)
        .read_line(&mut line)
        .ok()?;
    serde_json::from_str(&line)
        .ok()
        .filter(|header: &Header| header.schema == SCHEMA)
}

/// Removes the oldest journals of those that were left over, and hands the rest back.
pub fn prune(mut left_over: Vec<LeftOver>) -> Vec<LeftOver> {
    for old in left_over.drain(KEPT.min(left_over.len())..) {
        // It will be tried again.
        let _ = std::fs::remove_file(old.path);
    }
    left_over
}

/// The newest of these journals if it was not announced yet; from now on they all have been. That is
/// remembered in the file itself, which nothing writes to any more: it is made read-only.
pub fn tell(left_over: &[LeftOver]) -> Option<&LeftOver> {
    let is_untold = |left: &&LeftOver| {
        std::fs::metadata(&left.path).is_ok_and(|file| !file.permissions().readonly())
    };
    let untold: Vec<_> = left_over.iter().filter(is_untold).collect();
    for left in &untold {
        // Where it cannot be remembered, it is announced again.
        let _ = std::fs::set_permissions(&left.path, std::fs::Permissions::from_mode(0o400));
    }
    untold.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_are_kept_where_programs_keep_their_state() {
        let with = |set: &[(&str, &str)], user| {
            let set: Vec<(String, String)> = set
                .iter()
                .map(|(k, v)| ((*k).into(), (*v).into()))
                .collect();
            let find = move |name: &str| {
                set.iter()
                    .find(|(key, _)| key == name)
                    .map(|(_, value)| value.into())
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
        // The specification has relative paths ignored.
        assert_eq!(
            with(&[("XDG_STATE_HOME", "s")], 7),
            ["/var/tmp/peerscope-7"]
        );
        assert_eq!(with(&[], 0), ["/var/lib/peerscope", "/var/tmp/peerscope-0"]);
    }
}
