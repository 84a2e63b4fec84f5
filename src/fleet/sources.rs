//! The sources of reports: files, folders, archives, and lists of them. All processors read in parallel; each report is
//! digested and its text dropped.

use std::fs::{DirEntry, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::archive::{One, archive, is_hidden, may_have_reports};
use super::digest::{Digest, NoReport, read, whole};
use model::report::Report;
use report::files::GZIP;
use report::read::without_mark;

/// Offset and content of the magic of tar files (POSIX, ustar).
const TAR: (usize, &[u8]) = (257, b"ustar");

/// Most nested folders that are read: more are a mistake, or a loop.
const DEEPEST: usize = 16;

/// The input that was read.
#[derive(Debug, Default, PartialEq)]
pub struct Gathered {
    pub digests: Vec<Digest>,
    /// Files that cannot be read, in the order of their names.
    pub broken: Vec<Broken>,
    /// Number of files of peerscope that are not reports.
    pub others: usize,
    /// Files in folders whose names are not those of reports.
    pub left_out: Vec<String>,
}

impl Gathered {
    /// Adds a file that cannot be read, unless it, or a file in it, is among them.
    pub fn cannot_read(&mut self, file: String, why: String) {
        self.left_out.retain(|left| *left != file);
        let is_part = |broken: &Broken| {
            let rest = broken.file.strip_prefix(&file);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        if !self.broken.iter().any(is_part) {
            self.broken.push(Broken { file, why });
            self.broken.sort_by(|one, other| one.file.cmp(&other.file));
        }
    }

    /// Adds a report that was made of these files, in place of them. `name` is the folder or file that names the machine.
    pub fn add(&mut self, name: &str, report: Report, files: &[PathBuf]) {
        let is_part = |file: &str| {
            let is_it = |path: &PathBuf| {
                let rest = file.strip_prefix(&*path.to_string_lossy());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
            };
            files.iter().any(is_it)
        };
        self.left_out.retain(|file| !is_part(file));
        self.broken.retain(|broken| !is_part(&broken.file));
        self.digests.push(whole(name, report));
    }
}

/// A file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Broken {
    /// Name of the file.
    pub file: String,
    /// The reason, worded to follow the name.
    pub why: String,
}

/// Reads all reports of these files, folders and archives.
pub fn gather(paths: &[PathBuf]) -> Gathered {
    let (mut files, mut gathered) = (Vec::new(), Gathered::default());
    for path in paths {
        list(path, 0, &mut files, &mut gathered);
    }
    let read: Vec<Vec<One>> = files.par_iter().map(|path| file(path)).collect();
    for (path, read) in files.iter().zip(&read) {
        // An archive without any report is not left out in silence.
        if read.is_empty() {
            gathered.left_out.push(shown(path));
        }
    }
    for one in read.into_iter().flatten() {
        match one {
            Ok(digest) => gathered.digests.push(digest),
            Err((_, NoReport::Other)) => gathered.others += 1,
            Err((file, NoReport::Broken(why))) => gathered.broken.push(Broken { file, why }),
        }
    }
    gathered.broken.sort_by(|one, other| one.file.cmp(&other.file));
    gathered
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Lists the files of a path; for a folder, the files whose names may be reports. A folder that cannot be read is
/// reported like a broken file.
fn list(path: &Path, depth: usize, files: &mut Vec<PathBuf>, gathered: &mut Gathered) {
    let mut cannot = |why: String| gathered.broken.push(Broken { file: shown(path), why });
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() && depth == DEEPEST => {
            cannot(format!("lies in more than {DEEPEST} folders"))
        }
        Ok(found) if found.is_dir() => match std::fs::read_dir(path) {
            Ok(entries) => within(entries.flatten().collect(), depth, files, gathered),
            Err(why) => cannot(format!("cannot be read: {why}")),
        },
        Ok(_) => files.push(path.to_owned()),
        Err(why) => cannot(format!("cannot be read: {why}")),
    }
}

/// Lists the files of a folder's entries, in the order of names.
fn within(
    mut entries: Vec<DirEntry>,
    depth: usize,
    files: &mut Vec<PathBuf>,
    gathered: &mut Gathered,
) {
    entries.sort_by_key(DirEntry::file_name);
    for entry in entries {
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        let path = entry.path();
        // A link to a folder may lead back here, and a pipe waits for its writer.
        let is_report = may_have_reports(&entry.file_name().to_string_lossy());
        // A link that leads nowhere is a report that is missing.
        let is_file = kind.is_file() || (kind.is_symlink() && (path.is_file() || !path.exists()));
        if kind.is_dir() || (is_report && is_file) {
            list(&path, depth + 1, files, gathered);
        } else if is_file && !is_hidden(&path) {
            gathered.left_out.push(shown(&path));
        }
    }
}

/// Reads the reports of one file, which may be an archive.
fn file(path: &Path) -> Vec<One> {
    let name = shown(path);
    let opened = File::open(path).and_then(|mut file| {
        let mut head = [0; TAR.0 + TAR.1.len()];
        let length = fill(&mut file, &mut head)?;
        Ok((file, head, length))
    });
    let broken = |why: &std::io::Error| {
        vec![Err((name.clone(), NoReport::Broken(format!("cannot be read: {why}"))))]
    };
    let (file, head, length) = match opened {
        Ok(opened) => opened,
        Err(why) => return broken(&why),
    };
    let head = &head[..length];
    if head.starts_with(&GZIP) {
        return compressed(&name, std::io::Cursor::new(head.to_vec()).chain(file));
    }
    if is_tar(head) {
        return archive(&name, std::io::Cursor::new(head.to_vec()).chain(BufReader::new(file)));
    }
    match read(&name, without_mark(head).chain(file)) {
        Ok(digest) => vec![digest.map_err(|why| (name, why))],
        Err(why) => broken(&why),
    }
}

fn is_tar(head: &[u8]) -> bool {
    head.get(TAR.0..).is_some_and(|rest| rest.starts_with(TAR.1))
}

/// Fills the buffer as far as the input reaches. Returns the number of bytes read.
fn fill(from: &mut impl Read, to: &mut [u8]) -> std::io::Result<usize> {
    let mut length = 0;
    while let Some(rest) = to.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(length)
}

/// Reads a compressed archive, or one compressed report.
fn compressed(name: &str, from: impl Read + Send) -> Vec<One> {
    let mut from = BufReader::with_capacity(1 << 16, MultiGzDecoder::new(from));
    let mut head = [0; TAR.0 + TAR.1.len()];
    let broken = |why: &std::io::Error| {
        vec![Err((name.to_owned(), NoReport::Broken(format!("cannot be unpacked: {why}"))))]
    };
    let length = match fill(&mut from, &mut head) {
        Ok(length) => length,
        Err(why) => return broken(&why),
    };
    let head = &head[..length];
    let all = std::io::Cursor::new(without_mark(head).to_vec()).chain(from);
    if is_tar(head) {
        return archive(name, all);
    }
    match read(name, all) {
        Ok(digest) => vec![digest.map_err(|why| (name.to_owned(), why))],
        Err(why) => broken(&why),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use model::reading::Reading;
    use report::{Style, named, render};

    fn report(node: &str) -> String {
        let mut report = sample::healthy(2);
        report.machine = "live".into();
        report.snapshot.host.hostname = Reading::Known(node.to_owned());
        render(&report, named("json").unwrap(), &Style::PLAIN)
    }

    fn tar_of(files: &[(&str, &str)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, text) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            tar.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap()
    }

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(bytes).unwrap();
        gz.finish().unwrap()
    }

    fn nodes(gathered: &Gathered) -> Vec<&str> {
        gathered.digests.iter().map(|digest| digest.node.as_str()).collect()
    }

    #[test]
    fn files_folders_and_archives_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        put("a.json", report("a").as_bytes());
        put("deep/b.json", report("b").as_bytes());
        put("deep/notes.txt", b"no report");
        put("deep/.hidden.json", b"being written");
        put(
            "c.tar",
            &tar_of(&[
                ("x/c.json", &report("c")),
                ("x/readme", "text"),
                ("x/d.json", &report("d")),
            ]),
        );
        put("e.tgz", &gz(&tar_of(&[("e.json", &report("e"))])));
        put("f.json.gz", &gz(report("f").as_bytes()));
        put("h.tar", &tar_of(&[("h.txt", "no report")]));
        put("g.json", b"{\"schema\": \"peerscope.fleet/1\"}");
        let found = gather(&[folder.path().to_owned()]);
        assert_eq!(nodes(&found), ["a", "c", "d", "b", "e", "f"]);
        assert_eq!((found.broken.as_slice(), found.others), (&[][..], 1));
        assert_eq!(found.left_out.len(), 2, "{:?}", found.left_out);
        assert!(found.digests[1].file.ends_with("c.tar:x/c.json"), "{}", found.digests[1].file);
    }

    #[test]
    fn a_link_that_leads_back_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.json"), report("a")).unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("again")).unwrap();
        assert_eq!(nodes(&gather(&[folder.path().to_owned()])), ["a"]);
    }

    #[test]
    fn nothing_in_a_folder_is_left_out_in_silence() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("A.JSON"), report("a")).unwrap();
        std::fs::write(folder.path().join("a.html"), "<html>").unwrap();
        std::fs::write(folder.path().join(".hidden"), "").unwrap();
        std::os::unix::fs::symlink("/nonexistent/b.json", folder.path().join("b.json")).unwrap();
        let gathered = gather(&[folder.path().to_owned()]);
        assert_eq!(nodes(&gathered), ["a"]);
        let [page] = &gathered.left_out[..] else { panic!("{gathered:?}") };
        assert!(page.ends_with("a.html"), "{page}");
        let [broken] = &gathered.broken[..] else { panic!("{gathered:?}") };
        assert!(broken.file.ends_with("b.json"), "{broken:?}");
    }

    #[test]
    fn a_byte_order_mark_is_read_over() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.json");
        std::fs::write(&file, format!("\u{feff}{}", report("a"))).unwrap();
        assert_eq!(nodes(&gather(&[file])), ["a"]);
    }

    #[test]
    fn a_pipe_in_a_folder_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.json"), report("a")).unwrap();
        let pipe = folder.path().join("b.json");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        assert_eq!(nodes(&gather(&[folder.path().to_owned()])), ["a"]);
    }

    #[test]
    fn broken_files_are_listed_and_none_is_fatal() {
        let folder = tempfile::tempdir().unwrap();
        let whole = report("a");
        let tar = tar_of(&[("b.json", &report("b")), ("c.json", &report("c"))]);
        let zipped = gz(&tar);
        let files: [(&str, &[u8]); 7] = [
            ("1.json", whole.as_bytes()),
            ("2.json", &whole.as_bytes()[..whole.find("\"measurements\"").unwrap()]),
            ("3.json", b""),
            ("4.json", b"\xff\xfe"),
            ("5.tar", &tar[..tar.len() / 2]),
            ("6.tgz", &zipped[..zipped.len() / 2]),
            ("7.json", b"{\"schema\": \"other\"}"),
        ];
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        let found = gather(&[folder.path().to_owned(), folder.path().join("nowhere.json")]);
        assert!(nodes(&found).contains(&"a"), "{found:?}");
        let names: Vec<_> = found
            .broken
            .iter()
            .map(|broken| broken.file.rsplit('/').next().unwrap().chars().next().unwrap())
            .collect();
        for name in "23467n".chars() {
            assert!(names.contains(&name), "{name}: {:?}", found.broken);
        }
        assert!(found.broken.iter().all(|broken| !broken.why.is_empty()));
    }
}
