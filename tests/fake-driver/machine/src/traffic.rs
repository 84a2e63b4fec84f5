//! The copies of the fake CUDA, for the counters of the fake NVML. The two libraries are loaded by processes of their
//! own. A file contains one line for each copy. It is in the run's own state folder, or else beside the machine's `sys`
//! and `proc`: runs of one machine at the same time must not appear to each other as foreign traffic.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::OnceLock;

use model::units::PciAddress;

/// One copy between these GPUs; `None` is the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// Source of the bytes.
    pub from: Option<PciAddress>,
    /// Destination of the bytes.
    pub to: Option<PciAddress>,
    pub bytes: u64,
}

fn path() -> Option<PathBuf> {
    let folder = std::env::var_os(crate::STATE).or_else(|| std::env::var_os("PEERSCOPE_FSROOT"))?;
    Some(PathBuf::from(folder).join("fake-traffic"))
}

/// Records a copy. Does nothing without a folder.
pub fn note(copy: Copy) {
    let end = |end: Option<PciAddress>| {
        end.map_or_else(|| "host".to_owned(), |address| address.to_string())
    };
    write(&format!("{} {} {}\n", end(copy.from), end(copy.to), copy.bytes));
}

fn write(line: &str) {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let open = || OpenOptions::new().create(true).append(true).open(path()?).ok();
    // A copy that is not recorded is not counted, as on a machine whose counters fail.
    if let Some(mut file) = FILE.get_or_init(open).as_ref() {
        let _ = file.write_all(line.as_bytes());
    }
}

/// Bytes that a link has sent and received since the last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnLink {
    pub gpu: PciAddress,
    pub link: u8,
    pub rise: [u64; 2],
}

/// Records traffic of a kernel over a single link.
pub fn note_link(OnLink { gpu, link, rise: [sent, received] }: OnLink) {
    write(&format!("{gpu} link {link} {sent} {received}\n"));
}

/// Returns the copies recorded after an offset of the file, and the file's new end.
pub fn since(place: u64) -> (Vec<Copy>, Vec<OnLink>, u64) {
    let mut text = String::new();
    let mut read = || -> Option<()> {
        let mut file = File::open(path()?).ok()?;
        file.seek(SeekFrom::Start(place)).ok()?;
        file.read_to_string(&mut text).ok().map(drop)
    };
    if read().is_none() {
        return (Vec::new(), Vec::new(), place);
    }
    // A line that is being written is read the next time.
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let copy = |line: &str| {
        let mut words = line.split(' ');
        let (from, to, bytes) =
            (words.next()?.parse().ok(), words.next()?.parse().ok(), words.next()?.parse().ok()?);
        Some(Copy { from, to, bytes })
    };
    let on_link = |line: &str| {
        let mut words = line.split(' ');
        let gpu = words.next()?.parse().ok()?;
        words.next().filter(|word| *word == "link")?;
        let link = words.next()?.parse().ok()?;
        let rise = [words.next()?.parse().ok()?, words.next()?.parse().ok()?];
        Some(OnLink { gpu, link, rise })
    };
    let lines = text[..whole].lines();
    let links = lines.clone().filter_map(on_link).collect();
    (
        lines.filter(|line| on_link(line).is_none()).filter_map(copy).collect(),
        links,
        place + whole as u64,
    )
}
