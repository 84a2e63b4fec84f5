//! Reading files up to a length: whatever a user names may be of any length, and unpack to any length.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

/// Longest file of peerscope that is read, bytes: a journal of 72 GPUs with the full profile has some 300 MB.
pub const LONGEST: u64 = 512 << 20;

/// Reads a file that peerscope wrote.
///
/// # Errors
///
/// The file cannot be read, or is longer than [`LONGEST`].
pub fn file(path: &Path) -> io::Result<Vec<u8>> {
    whole(File::open(path)?)
}

/// Reads an open file that peerscope wrote.
///
/// # Errors
///
/// As [`file`].
pub fn whole(from: impl Read) -> io::Result<Vec<u8>> {
    let too_long =
        || format!("it is longer than {LONGEST} bytes; peerscope writes no file of that length");
    at_most(from, LONGEST)?.ok_or_else(|| io::Error::other(too_long()))
}

/// Reads to the end. Returns none if there are more bytes than `most`.
///
/// # Errors
///
/// Returns the errors of the input.
pub fn at_most(from: impl Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// First bytes of gzip files (RFC 1952).
pub const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Unpacks what gzip packed, at most this many bytes; returns anything else as it is.
///
/// # Errors
///
/// Returns the defect, worded to follow the file's name.
pub fn unzipped(bytes: &[u8], most: u64) -> Result<Cow<'_, [u8]>, String> {
    if !bytes.starts_with(&GZIP) {
        return Ok(Cow::Borrowed(bytes));
    }
    let unpacked = unpacked(bytes, most);
    unpacked.map(Cow::Owned).map_err(|why| format!("cannot be unpacked: {why}"))
}

/// Returns what a function writes, packed by gzip.
///
/// # Errors
///
/// Returns the errors of the function.
pub fn packed(write: &dyn Fn(&mut dyn Write) -> io::Result<()>) -> io::Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    write(&mut packed)?;
    packed.flush()?;
    packed.finish()
}

/// Unpacks gzip. Fails if the result is longer than `most` bytes.
///
/// # Errors
///
/// Returns the defect.
pub(crate) fn unpacked(bytes: &[u8], most: u64) -> Result<Vec<u8>, String> {
    let whole = at_most(MultiGzDecoder::new(bytes), most).map_err(|error| error.to_string())?;
    whole.ok_or_else(|| format!("it is longer than {most} bytes"))
}
