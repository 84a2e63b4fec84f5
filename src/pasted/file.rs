//! Bytes of a file → inputs: text, compressed or packed.

use std::io::Read;

use flate2::read::MultiGzDecoder;

/// A text and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    pub name: String,
    pub text: String,
}

/// Most bytes of all texts of a file. A bug report has some 30 MB.
const MOST_BYTES: u64 = 256 << 20;

/// Most files of an archive.
const MOST_FILES: usize = 1000;

/// First bytes of compressed files (RFC 1952) and of zip archives.
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZIP: &[u8] = b"PK\x03\x04";

/// Offset and content of the magic of tar files (POSIX, ustar).
const TAR: (usize, &[u8]) = (257, b"ustar");

/// Bytes at the start that show whether a file is text.
const HEAD: usize = 4096;

/// Returns the texts of a file: itself, what is compressed in it, or the texts of an archive.
///
/// # Errors
///
/// Its defect, worded to follow the file's name.
pub fn inputs(name: &str, bytes: Vec<u8>) -> Result<Vec<Input>, String> {
    if bytes.starts_with(ZIP) {
        return Err(
            "is a zip archive, which peerscope does not read: unpack it, and give the folder"
                .into(),
        );
    }
    let bytes = if bytes.starts_with(GZIP) {
        let why = |why: std::io::Error| format!("cannot be unpacked: {why}");
        let mut unpacked = Vec::new();
        let mut from = MultiGzDecoder::new(bytes.as_slice()).take(MOST_BYTES + 1);
        let end = from.read_to_end(&mut unpacked);
        if unpacked.len() as u64 > MOST_BYTES {
            return Err(too_long());
        }
        // A report that was cut while it was copied is of use up to there.
        if unpacked.is_empty() {
            end.map_err(why)?;
        }
        unpacked
    } else {
        bytes
    };
    if bytes
        .get(TAR.0..)
        .is_some_and(|rest| rest.starts_with(TAR.1))
    {
        return archive(name, &bytes);
    }
    if bytes.len() as u64 > MOST_BYTES {
        return Err(too_long());
    }
    match text(bytes) {
        Some(text) => Ok(vec![Input {
            name: name.to_owned(),
            text,
        }]),
        None => Err("is no text".into()),
    }
}

fn too_long() -> String {
    format!("has more than {} MiB of text", MOST_BYTES >> 20)
}

fn archive(name: &str, bytes: &[u8]) -> Result<Vec<Input>, String> {
    let why = |why: std::io::Error| format!("cannot be unpacked: {why}");
    let mut inputs = Vec::new();
    let mut left = MOST_BYTES;
    for entry in tar::Archive::new(bytes).entries().map_err(why)? {
        let mut entry = entry.map_err(why)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let inside = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let mut bytes = Vec::new();
        entry
            .by_ref()
            .take(left + 1)
            .read_to_end(&mut bytes)
            .map_err(why)?;
        left = left.checked_sub(bytes.len() as u64).ok_or_else(too_long)?;
        if bytes.starts_with(GZIP) {
            let mut unpacked = Vec::new();
            let end = MultiGzDecoder::new(bytes.as_slice())
                .take(left + 1)
                .read_to_end(&mut unpacked);
            left = left
                .checked_sub(unpacked.len() as u64)
                .ok_or_else(too_long)?;
            bytes = unpacked;
            // What could be unpacked is read.
            let _ = end;
        }
        if let Some(text) = text(bytes) {
            inputs.push(Input {
                name: format!("{name}/{inside}"),
                text,
            });
        }
        if inputs.len() == MOST_FILES {
            break;
        }
    }
    if inputs.is_empty() {
        return Err("has no text in it".into());
    }
    Ok(inputs)
}

/// Returns the text of bytes; `None` if they are none. Other programs write UTF-16 with its mark on Windows.
fn text(bytes: Vec<u8>) -> Option<String> {
    let wide = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = rest.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        String::from_utf16_lossy(&units.collect::<Vec<u16>>())
    };
    match bytes.get(..2) {
        Some([0xff, 0xfe]) => return Some(wide(&bytes[2..], u16::from_le_bytes)),
        Some([0xfe, 0xff]) => return Some(wide(&bytes[2..], u16::from_be_bytes)),
        _ => {}
    }
    if bytes.iter().take(HEAD).any(|byte| *byte == 0) {
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
    fn texts_are_found_in_every_form_that_they_travel_in() {
        let texts = |bytes: Vec<u8>| {
            let inputs = inputs("in", bytes).unwrap();
            inputs
                .into_iter()
                .map(|input| (input.name, input.text))
                .collect::<Vec<_>>()
        };
        let plain = [("in".to_owned(), "GPU 0\n".to_owned())];
        assert_eq!(texts(b"GPU 0\n".to_vec()), plain);
        assert_eq!(texts(b"\xef\xbb\xbfGPU 0\n".to_vec()), plain);
        assert_eq!(texts(gzip(b"GPU 0\n")), plain);
        let wide: Vec<u8> = "\u{feff}GPU 0\n"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        assert_eq!(texts(wide), plain);
        let mut tar = tar::Builder::new(Vec::new());
        for (name, bytes) in [
            ("a.txt", &b"one"[..]),
            ("b.bin", b"\0\0"),
            ("c.gz", &gzip(b"two")),
        ] {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_cksum();
            tar.append_data(&mut header, name, bytes).unwrap();
        }
        let tar = tar.into_inner().unwrap();
        let inside = [("in/a.txt", "one"), ("in/c.gz", "two")];
        let inside = inside.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(texts(tar.clone()), inside);
        assert_eq!(texts(gzip(&tar)), inside);
        // A file that was cut is read up to there.
        let long: String = (0..20_000).map(|n| format!("{n}\n")).collect();
        let packed = gzip(long.as_bytes());
        let part = texts(packed[..packed.len() / 2].to_vec());
        assert!(long.starts_with(&part[0].1) && part[0].1.len() > 1000);
    }

    #[test]
    fn what_is_no_text_is_refused_with_the_reason() {
        let why = |bytes: &[u8]| inputs("in", bytes.to_vec()).unwrap_err();
        assert!(why(b"PK\x03\x04rest").contains("zip archive"));
        assert_eq!(why(b"\x7fELF\0\0"), "is no text");
        assert!(why(b"\x1f\x8bno").starts_with("cannot be unpacked: "));
    }
}
