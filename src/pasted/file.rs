//! Bytes of a file → inputs: text, compressed or packed.

use std::io::Read;

use flate2::read::MultiGzDecoder;

/// A text and its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Input {
    pub name: String,
    pub text: String,
    /// True if it, or what its archive has behind it, was cut off.
    pub is_cut: bool,
}

impl Input {
    /// Creates the input of a file that could not be read: its content is unknown, as if it were cut off.
    pub fn unreadable(name: String) -> Self {
        Self { name, text: String::new(), is_cut: true }
    }
}

/// Why a file or its text was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// It holds nothing that is read, and is no loss.
    Nothing(&'static str),
    /// It is broken, or larger than what is read: it may hold what is missed.
    Broken(String),
}

/// The words follow the file's name.
impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing(why) => f.write_str(why),
            Self::Broken(why) => f.write_str(why),
        }
    }
}

/// Most bytes of all texts of a file. A bug report has some 30 MB.
const MOST_BYTES: u64 = 256 << 20;

/// Most files of an archive.
const MOST_FILES: usize = 1000;

/// Longest name of a file in an archive, characters; the rest is cut.
const LONGEST_NAME: usize = 255;

/// First bytes of compressed files (RFC 1952).
const GZIP: &[u8] = &[0x1f, 0x8b];

/// Offset and content of the magic of tar files (POSIX, ustar).
const TAR: (usize, &[u8]) = (257, b"ustar");

/// First bytes of what is not unpacked here, and the program that unpacks it.
const OTHERS: &[(&[u8], &str)] = &[
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"7z\xbc\xaf\x27\x1c", "7z"),
    (b"PK\x03\x04", "zip"),
];

/// Returns the program that unpacks these bytes, if they are compressed in a way that is not unpacked here.
fn compression(bytes: &[u8]) -> Option<&'static str> {
    let found = OTHERS.iter().find(|(head, _)| bytes.starts_with(head));
    found.map(|(_, program)| *program)
}

/// Bytes at the start that show whether a file is text.
const HEAD: usize = 4096;

/// Returns true for an archive or a compressed file.
pub fn is_packed(bytes: &[u8]) -> bool {
    let is_tar = |rest: &[u8]| rest.starts_with(TAR.1);
    bytes.starts_with(GZIP)
        || bytes.get(TAR.0..).is_some_and(is_tar)
        || compression(bytes).is_some()
}

/// Returns the texts of a file: itself, what is compressed in it, or the texts of an archive.
///
/// # Errors
///
/// Its defect.
pub fn inputs(name: &str, bytes: Vec<u8>) -> Result<Vec<Input>, Unread> {
    let mut texts = Texts::new(name, MOST_BYTES);
    let (bytes, is_cut) = if bytes.starts_with(GZIP) {
        // A report that was cut while it was copied is of use up to there.
        match texts.unpacked(&bytes)? {
            (unpacked, Some(why)) if unpacked.is_empty() => return Err(broken(&why)),
            (unpacked, end) => (unpacked, end.is_some()),
        }
    } else {
        (bytes, false)
    };
    if let Some(kind) = compression(&bytes) {
        return Err(Unread::Broken(format!("is compressed by {kind}: unpack it first")));
    }
    if bytes.get(TAR.0..).is_some_and(|rest| rest.starts_with(TAR.1)) {
        taped(&bytes, &mut texts)?;
        if is_cut {
            texts.cut();
        }
        return texts.found();
    }
    let is_long = bytes.len() as u64 > MOST_BYTES;
    let head = bytes.get(..HEAD).unwrap_or(&bytes).to_vec();
    if is_long && text(head).is_some() {
        return Err(too_long());
    }
    match (!is_long).then(|| text(bytes)).flatten() {
        Some(text) => Ok(vec![Input { name: name.to_owned(), text, is_cut }]),
        None => Err(Unread::Nothing("is no text")),
    }
}

fn too_long() -> Unread {
    Unread::Broken(format!("has more than {} MiB of text", MOST_BYTES >> 20))
}

fn broken(why: &dyn std::fmt::Display) -> Unread {
    Unread::Broken(format!("cannot be unpacked: {why}"))
}

/// The texts of an archive.
struct Texts<'a> {
    archive: &'a str,
    inputs: Vec<Input>,
    /// Bytes that may still be unpacked: a small archive can unpack to any number.
    left: u64,
}

impl<'a> Texts<'a> {
    const fn new(archive: &'a str, left: u64) -> Self {
        Self { archive, inputs: Vec::new(), left }
    }

    /// Reads to the end, or to the first error. What is before the error is of use.
    fn bounded(&mut self, from: impl Read) -> Result<(Vec<u8>, Option<std::io::Error>), Unread> {
        let mut bytes = Vec::new();
        let end = from.take(self.left + 1).read_to_end(&mut bytes);
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or_else(too_long)?;
        Ok((bytes, end.err()))
    }

    fn unpacked(&mut self, bytes: &[u8]) -> Result<(Vec<u8>, Option<std::io::Error>), Unread> {
        self.bounded(MultiGzDecoder::new(bytes))
    }

    /// Adds a file of the archive, if it is a text or a compressed one. Returns false once there are too many.
    fn add(&mut self, inside: &str, from: impl Read) -> Result<bool, Unread> {
        let (mut bytes, end) = self.bounded(from)?;
        let mut is_cut = end.is_some();
        if bytes.starts_with(GZIP) {
            let (unpacked, end) = self.unpacked(&bytes)?;
            bytes = unpacked;
            is_cut |= end.is_some();
        }
        // An archive in an archive is not read.
        let is_packed = is_packed(&bytes);
        let inside: String = inside.chars().take(LONGEST_NAME).collect();
        let text = text(bytes).filter(|text| !text.is_empty());
        if let Some(text) = text.filter(|_| !is_packed) {
            self.inputs.push(Input { name: format!("{}/{inside}", self.archive), text, is_cut });
        } else if is_cut || is_packed {
            self.lost(&inside);
        }
        if self.inputs.len() >= MOST_FILES {
            self.cut();
        }
        Ok(self.inputs.len() < MOST_FILES)
    }

    /// Names a file of the archive that cannot be read.
    fn lost(&mut self, inside: &str) {
        self.inputs.push(Input::unreadable(format!("{}/{inside}", self.archive)));
    }

    /// Marks the archive as cut: what is behind its last text is not known.
    fn cut(&mut self) {
        if let Some(last) = self.inputs.last_mut() {
            last.is_cut = true;
        }
    }

    fn found(self) -> Result<Vec<Input>, Unread> {
        match self.inputs.iter().find(|input| !input.text.is_empty()) {
            Some(_) => Ok(self.inputs),
            None if self.inputs.is_empty() => Err(Unread::Nothing("has no text in it")),
            None => Err(Unread::Broken("has no text in it that can be unpacked".to_owned())),
        }
    }
}

/// Bytes of a block of a tar file. One of zeros follows its last file (POSIX, ustar).
const BLOCK: u64 = 512;

fn taped(bytes: &[u8], texts: &mut Texts<'_>) -> Result<(), Unread> {
    let mut end = 0;
    for entry in tar::Archive::new(bytes).entries().map_err(|why| broken(&why))? {
        let entry = match entry {
            Ok(entry) => entry,
            Err(_) if !texts.inputs.is_empty() => {
                texts.cut();
                return Ok(());
            }
            Err(why) => return Err(broken(&why)),
        };
        let of_content = entry.size().div_ceil(BLOCK).saturating_mul(BLOCK);
        end = entry.raw_file_position().saturating_add(of_content);
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let inside = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if !texts.add(&inside, entry)? {
            return Ok(());
        }
    }
    if (bytes.len() as u64) < end.saturating_add(BLOCK) {
        texts.cut();
    }
    Ok(())
}

/// Returns the text of bytes; `None` if they are none.
fn text(mut bytes: Vec<u8>) -> Option<String> {
    // A log that was being written when its machine crashed has zeros in it, beside text. Programs and pictures have other
    // characters that no text has.
    let is_binary = |byte: &&u8| matches!(byte, 1..=7 | 14..=26 | 28..=31 | 127);
    let has_zeros = bytes.iter().take(HEAD).any(|byte| *byte == 0);
    let mut head = bytes.iter().filter(|byte| **byte != 0).take(HEAD);
    if has_zeros && head.any(|byte| is_binary(&byte)) {
        return None;
    }
    bytes.retain(|byte| *byte != 0);
    if has_zeros && bytes.is_empty() {
        return None;
    }
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Some(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut to = GzEncoder::new(Vec::new(), Compression::fast());
        to.write_all(bytes).unwrap();
        to.finish().unwrap()
    }

    #[test]
    fn an_archive_that_unpacks_to_very_much_is_refused() {
        let spaces = vec![b' '; 300_000];
        let twice = gzip(&gzip(&spaces));
        let bomb = gzip(&tar_of(&[("a", &spaces), ("b", &spaces), ("c", &twice)]));
        assert!(bomb.len() < 10_000, "{}", bomb.len());
        let read = |most| {
            let mut texts = Texts::new("in", most);
            let (tar, _) = texts.unpacked(&bomb)?;
            taped(&tar, &mut texts).map(|()| texts.inputs.len())
        };
        assert_eq!(read(299_999), Err(too_long()));
        assert_eq!(read(1_000_000), Err(too_long()));
        // Files are unpacked once: the third one is named, as one that cannot be read.
        assert_eq!(read(1_400_000), Ok(3));
        let packed = tar_of(&[("a.gz", &gzip(&spaces))]);
        let mut texts = Texts::new("in", 299_999);
        assert_eq!(taped(&packed, &mut texts), Err(too_long()));
    }

    fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_cksum();
            tar.append_data(&mut header, name, *bytes).unwrap();
        }
        tar.into_inner().unwrap()
    }

    /// Bytes without end. It fails once far more was read than fits.
    struct Endless(usize);

    impl Read for Endless {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            self.0 += to.len();
            assert!(self.0 < 1 << 20, "{} bytes were read", self.0);
            to.fill(b' ');
            Ok(to.len())
        }
    }

    #[test]
    fn no_more_is_unpacked_than_fits() {
        let mut texts = Texts::new("in", 1000);
        assert_eq!(texts.add("a", Endless(0)), Err(too_long()));
    }

    #[test]
    fn texts_are_found_in_every_form_that_they_travel_in() {
        let texts = |bytes: Vec<u8>| {
            let inputs = inputs("in", bytes).unwrap();
            inputs.into_iter().map(|input| (input.name, input.text)).collect::<Vec<_>>()
        };
        let plain = [("in".to_owned(), "GPU 0\n".to_owned())];
        assert_eq!(texts(b"GPU 0\n".to_vec()), plain);
        assert_eq!(texts(b"\xef\xbb\xbfGPU 0\n".to_vec()), plain);
        assert_eq!(texts(gzip(b"GPU 0\n")), plain);
        let two = gzip(b"two");
        let files = [("a.txt", &b"one"[..]), ("b.bin", b"\0\0"), ("c.gz", &two)];
        let tar = tar_of(&files);
        let inside = [("in/a.txt", "one"), ("in/c.gz", "two")];
        let inside = inside.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(texts(tar.clone()), inside);
        assert_eq!(texts(gzip(&tar)), inside);
        // A file that was cut is read up to there.
        let long: String = (0..20_000).map(|n| format!("{n}\n")).collect();
        let packed = gzip(long.as_bytes());
        let part = texts(packed[..packed.len() / 2].to_vec());
        assert!(long.starts_with(&part[0].1) && part[0].1.len() > 1000);
        let cut = |bytes: &[u8]| {
            let inputs = inputs("in", bytes.to_vec()).unwrap();
            inputs.iter().any(|input| input.is_cut)
        };
        assert!(cut(&packed[..packed.len() / 2]) && !cut(&packed));
        assert!(cut(&tar[..tar.len() - 1800]) && !cut(&tar));
        // The last file is whole, and the end is missing.
        assert!(cut(&tar[..tar.len() - 1024]));
        // A file is packed in a way that is not unpacked here.
        let nested = |bytes: &[u8]| cut(&tar_of(&[("a.txt", b"one"), ("b", bytes)]));
        assert!(nested(&tar) && nested(b"\xfd7zXZ\0\0") && !nested(b"two"));
    }

    /// Archives of each kind, with texts and an archive in them.
    fn archives() -> Vec<Vec<u8>> {
        let text = "GPU 0: NVIDIA A40\n".repeat(40);
        let packed = gzip(text.as_bytes());
        let files = [("a.txt", text.as_bytes()), ("deep/b.gz", &packed)];
        let tar = tar_of(&files);
        vec![gzip(&tar), tar, packed]
    }

    #[test]
    #[ignore = "scripts/fuzz runs it"]
    fn fuzz_pasted_archives() {
        let archives = archives();
        let strategy = (0..archives.len(), fuzz::edits(6));
        fuzz::run("pasted, archives", 0.3, &strategy, |(base, edits)| {
            match inputs("in", fuzz::edited(&archives[base], &edits)) {
                Ok(_) => Ok(()),
                Err(why) => fuzz::assert_is_sentence(&format!("in {why}")),
            }
        });
    }

    #[test]
    fn archives_that_were_cut_are_read_without_harm() {
        for archive in archives() {
            for end in 0..archive.len().min(3000) {
                let _ = inputs("in", archive[..end].to_vec());
            }
        }
    }

    #[test]
    fn what_is_no_text_is_refused_with_the_reason() {
        let why = |bytes: &[u8]| inputs("in", bytes.to_vec()).unwrap_err().to_string();
        assert!(why(b"PK\x03\x04rest").contains("by zip"));
        assert_eq!(why(&tar_of(&[("a.bin", b"\0\0")])), "has no text in it");
        assert_eq!(why(b"\x7fELF\0\0"), "is no text");
        assert_eq!(why(b"PNG\0\x01"), "is no text");
        assert!(why(b"\x28\xb5\x2f\xfd\0").contains("by zstd"));
        assert!(why(b"\x1f\x8bno").starts_with("cannot be unpacked: "));
    }

    #[test]
    fn zeros_of_a_crash_are_left_out_of_a_log() {
        let mut log = vec![0; HEAD + 7];
        log.extend(b"[1.0] NVRM\x1b[0m\n\0\0[2.0] Xid\n");
        let found = inputs("log", log).unwrap();
        assert_eq!(found[0].text, "[1.0] NVRM\x1b[0m\n[2.0] Xid\n");
    }
}
