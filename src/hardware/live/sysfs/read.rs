//! Small reads of kernel files. A file may be huge, binary, empty or unreadable for this user. At most a few KiB are
//! read, and the reason for an unknown value is kept.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

use hardware::limits;
use model::reading::{Reading, Unknown};

/// Most bytes read of a file. No file that is read here needs more.
const LIMIT: u64 = 8 << 10;

/// Reason for a file that an ordinary user may not read.
pub(super) const NEEDS_ROOT: &str = "needs root";

/// Returns the text of a file without the white space around it.
pub(super) fn text(path: &Path) -> Result<String, Unknown> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LIMIT).read_to_end(&mut bytes))
        .map_err(|error| io_unknown(&error))?;
    Ok(String::from_utf8_lossy(&bytes)
        .trim_matches(|c: char| c.is_whitespace() || c == '\0')
        .to_owned())
}

/// Returns the decimal number that is the whole of a file.
pub(super) fn number<T: FromStr>(path: &Path) -> Result<T, Unknown> {
    let text = text(path)?;
    text.parse().map_err(|_| odd(&text))
}

/// Returns the hexadecimal number, `0x10de`, that is the whole of a file.
pub(super) fn hex(path: &Path) -> Result<u32, Unknown> {
    let text = text(path)?;
    u32::from_str_radix(text.trim_start_matches("0x"), 16).map_err(|_| odd(&text))
}

/// Returns the names in a directory, sorted.
pub(super) fn names(path: &Path) -> Result<Vec<String>, Unknown> {
    let entries = fs::read_dir(path).map_err(|error| io_unknown(&error))?;
    let mut names: Vec<_> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

/// Returns the error for a text with unexpected contents.
pub(super) fn odd(text: &str) -> Unknown {
    if text.is_empty() {
        return Unknown::Failed("the kernel's file is empty".to_owned());
    }
    let start: String = text.chars().take(40).flat_map(char::escape_default).collect();
    Unknown::Failed(format!("the kernel says '{start}'"))
}

/// Returns the reason why a file could not be read. A missing file means that this kernel or device lacks the fact.
pub(super) fn io_unknown(error: &io::Error) -> Unknown {
    match error.kind() {
        io::ErrorKind::NotFound => Unknown::Unsupported,
        io::ErrorKind::PermissionDenied => Unknown::Denied(NEEDS_ROOT.to_owned()),
        _ => match limits::of_error(error) {
            Some(limit) => Unknown::Limited(limit),
            None => Unknown::Failed(error.to_string()),
        },
    }
}

/// Reads a whole text; an empty one is an error.
pub(super) fn reading(path: &Path) -> Reading<String> {
    text(path).and_then(|text| if text.is_empty() { Err(odd(&text)) } else { Ok(text) }).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_says_nothing_useful_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        assert_eq!(text(&path), Err(Unknown::Unsupported));
        fs::write(&path, b"").unwrap();
        assert_eq!(number::<u32>(&path), Err(Unknown::Failed("the kernel's file is empty".into())));
        fs::write(&path, b"\xff\xfe\x00\x01 nonsense\n").unwrap();
        assert!(
            matches!(hex(&path), Err(Unknown::Failed(why)) if why.is_ascii() && why.contains("nonsense"))
        );
        fs::write(&path, vec![b'7'; 1 << 20]).unwrap();
        assert!(matches!(number::<u64>(&path), Err(Unknown::Failed(why)) if why.len() < 80));
        assert!(matches!(text(dir.path()), Err(Unknown::Failed(_))), "a directory");
    }

    #[test]
    fn a_file_for_root_alone_is_denied() {
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(io_unknown(&error), Unknown::Denied("needs root".into()));
    }

    #[test]
    fn numbers_are_read_in_the_kernels_forms() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "0x10de\n").unwrap();
        assert_eq!(hex(&path), Ok(0x10de));
        fs::write(&path, "-1\n").unwrap();
        assert_eq!(number::<i64>(&path), Ok(-1));
    }
}
