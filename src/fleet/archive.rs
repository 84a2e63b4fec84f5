//! The reports of a tar archive: unpacked one after the other, parsed in batches.

use std::io::Read;
use std::path::Path;

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::digest::{Digest, NoReport, read};
use report::files::whole;
use report::read::without_mark;

/// Endings of the file names that are read within folders and archives.
const ENDS: [&str; 6] = [".json", ".json.gz", ".tar", ".tar.gz", ".tgz", ".jsonl.gz"];

/// The result for one file: a digest, or the file's name and the reason why there is none.
pub(super) type One = Result<Digest, (String, NoReport)>;

/// Reads the reports of an archive: unpacks one after the other, and parses batches in parallel.
pub(super) fn archive(name: &str, from: impl Read + Send) -> Vec<One> {
    let mut archive = tar::Archive::new(from);
    let broken = |name: &str, why: &std::io::Error| {
        Err((name.to_owned(), NoReport::Broken(format!("cannot be unpacked: {why}"))))
    };
    // By itself, the library reads names of any length.
    let entries = match archive.entries() {
        Ok(entries) => entries.raw(true),
        Err(why) => return vec![broken(name, &why)],
    };
    let mut found = Vec::new();
    let mut batch = Batch::default();
    let mut named: Option<String> = None;
    for entry in entries {
        match unpacked(entry, &mut named) {
            Ok(None) => {}
            Ok(Some((inner, text))) => batch.add((format!("{name}:{inner}"), text), &mut found),
            Err((inner, why)) => {
                let of = inner.map_or(name.to_owned(), |inner| format!("{name}:{inner}"));
                batch.end(&mut found);
                found.push(broken(&of, &why));
                // A truncated archive returns the same error again and again: the rest of it stays unknown.
                return found;
            }
        }
    }
    batch.end(&mut found);
    found
}

/// Reports of an archive that were unpacked and not parsed yet. Its limits bound memory.
#[derive(Default)]
struct Batch {
    texts: Vec<(String, Vec<u8>)>,
    bytes: usize,
}

/// Most reports of a batch, and most bytes of them.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 64 << 20;

impl Batch {
    fn add(&mut self, one: (String, Vec<u8>), found: &mut Vec<One>) {
        // A longer one is parsed by itself.
        if self.bytes.saturating_add(one.1.len()) > BATCH_BYTES {
            self.end(found);
        }
        self.bytes = self.bytes.saturating_add(one.1.len());
        self.texts.push(one);
        if self.texts.len() == BATCH || self.bytes > BATCH_BYTES {
            self.end(found);
        }
    }

    /// Parses what there is.
    fn end(&mut self, found: &mut Vec<One>) {
        let read_one = |(name, text): (String, Vec<u8>)| {
            let digest = read(&name, without_mark(&text));
            let digest = digest.unwrap_or_else(|why| Err(NoReport::Broken(why.to_string())));
            digest.map_err(|why| (name, why))
        };
        self.bytes = 0;
        let texts = std::mem::take(&mut self.texts);
        if let [_] = texts.as_slice() {
            // A thread that waits for others takes up another archive meanwhile.
            found.extend(texts.into_iter().map(read_one));
        } else {
            let read: Vec<One> = texts.into_par_iter().map(read_one).collect();
            found.extend(read);
        }
    }
}

/// Longest entry that names the next one (GNU long name, pax header), bytes.
const LONGEST_NAME: u64 = 64 << 10;

/// The name of an entry if it is known, and the error.
type Torn = (Option<String>, std::io::Error);

/// Unpacks an entry of an archive. Returns `None` if it cannot be a report. `named` is the name that the entries before it
/// gave to it.
fn unpacked<R: Read>(
    entry: std::io::Result<tar::Entry<'_, R>>,
    named: &mut Option<String>,
) -> Result<Option<(String, Vec<u8>)>, Torn> {
    let mut entry = entry.map_err(|why| (None, why))?;
    let kind = entry.header().entry_type();
    if kind.is_gnu_longname() || kind.is_pax_local_extensions() {
        if entry.size() > LONGEST_NAME {
            let why = format!("a name in it has {} bytes", entry.size());
            return Err((None, std::io::Error::other(why)));
        }
        let mut bytes = Vec::new();
        let read = (&mut entry).take(LONGEST_NAME).read_to_end(&mut bytes);
        read.map_err(|why| (None, why))?;
        *named = match kind.is_gnu_longname() {
            true => Some(bytes),
            false => pax_path(&bytes),
        }
        .map(|name| {
            let name = String::from_utf8_lossy(&name).into_owned();
            name.trim_end_matches('\0').to_owned()
        })
        .or(named.take());
        return Ok(None);
    }
    if kind.is_gnu_longlink() || kind.is_pax_global_extensions() {
        return Ok(None);
    }
    let own = || String::from_utf8_lossy(&entry.path_bytes()).into_owned();
    let inner = named.take().unwrap_or_else(own);
    if !kind.is_file()
        || !inner.to_ascii_lowercase().ends_with(".json")
        || !may_have_reports(&inner)
    {
        return Ok(None);
    }
    match whole(entry) {
        Ok(text) => Ok(Some((inner, text))),
        Err(why) => Err((Some(inner), why)),
    }
}

/// Returns the path of a pax header: records `LENGTH KEY=VALUE` and a line feed (POSIX, pax).
fn pax_path(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut rest = bytes;
    while let Some(blank) = rest.iter().position(|byte| *byte == b' ') {
        let length: usize = std::str::from_utf8(&rest[..blank]).ok()?.parse().ok()?;
        let record = rest.get(blank + 1..length.checked_sub(1)?)?;
        if let Some(path) = record.strip_prefix(b"path=") {
            return Some(path.to_vec());
        }
        rest = rest.get(length..)?;
    }
    None
}

/// Returns true for a file that is being written, or that a tool hides.
pub(super) fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.starts_with('.'))
}

/// Returns true for a name that a report or an archive of reports may have.
pub(super) fn may_have_reports(name: &str) -> bool {
    let hidden = is_hidden(Path::new(name));
    let name = name.to_ascii_lowercase();
    !hidden && ENDS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::{Style, named, render};

    /// A header and a body of this length.
    fn entry(kind: tar::EntryType, name: &str, size: u64, body: &[u8]) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        header.set_path(name).unwrap();
        header.set_size(size);
        header.set_mode(0o644);
        header.set_entry_type(kind);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend(body);
        bytes.resize(bytes.len().div_ceil(512) * 512, 0);
        bytes
    }

    #[test]
    fn long_names_of_archives_are_read_up_to_a_bound() {
        let long = format!("{}/n.json", "a".repeat(150));
        let text = render(&sample::healthy(2), named("json").unwrap(), &Style::PLAIN);
        let whole = |named: Vec<u8>| {
            let mut tar = named;
            let own = entry(tar::EntryType::Regular, "x.bin", text.len() as u64, text.as_bytes());
            tar.extend(own);
            tar.extend(vec![0; 1024]);
            archive("in.tar", tar.as_slice())
        };
        let gnu = format!("{long}\0");
        let record = format!(" path={long}\n");
        let pax = format!("{}{record}", record.len() + 3);
        for named in [
            entry(tar::EntryType::GNULongName, "././@LongLink", gnu.len() as u64, gnu.as_bytes()),
            entry(tar::EntryType::XHeader, "x", pax.len() as u64, pax.as_bytes()),
        ] {
            let found = whole(named);
            assert!(
                matches!(&found[..], [Ok(digest)] if digest.file == format!("in.tar:{long}")),
                "{found:?}"
            );
        }
        // A name of 3 GB is refused before it is read: its bytes are not there.
        for kind in [tar::EntryType::GNULongName, tar::EntryType::XHeader] {
            let found = whole(entry(kind, "x", 3 << 30, b""));
            let [Err((file, NoReport::Broken(why)))] = &found[..] else { panic!("{found:?}") };
            assert!(file == "in.tar" && why.contains("a name in it has 3221225472 bytes"), "{why}");
        }
    }

    #[test]
    fn a_batch_of_reports_is_bounded_in_bytes() {
        let (mut batch, mut found) = (Batch::default(), Vec::new());
        for n in 0..10 {
            batch.add((format!("{n}.json"), vec![b' '; 20 << 20]), &mut found);
            assert!(batch.bytes <= BATCH_BYTES, "{}", batch.bytes);
        }
        batch.add(("long.json".to_owned(), vec![b' '; 65 << 20]), &mut found);
        assert!(batch.texts.is_empty() && found.len() == 11, "{}", found.len());
    }
}
