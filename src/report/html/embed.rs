//! The report within its page, so that `diagnose` reads it back: JSON, compressed and in base64. The plain JSON of
//! eight GPUs alone exceeds the size limit of a page. Base64 cannot contain the end of its element.

use std::io::Write;

use maud::{Markup, PreEscaped, html};

use crate::files::{self, unpacked};
use model::report::Report;

/// Id of the element.
const ID: &str = "peerscope-report";

/// Characters of base64, by value.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(super) fn element(report: &Report) -> Markup {
    html! { script id=(ID) type="application/gzip" { (PreEscaped(packed(report))) } }
}

/// Returns an empty text if packing fails, which cannot happen with plain data.
fn packed(report: &Report) -> String {
    packed_of(&|to| crate::json::write(report, to)).unwrap_or_default()
}

fn packed_of(write: &dyn Fn(&mut dyn Write) -> std::io::Result<()>) -> std::io::Result<String> {
    Ok(base64(&files::packed(write)?))
}

/// Returns a page with these bytes in place of its report, for tests.
pub fn page_with(bytes: &[u8]) -> String {
    let packed = packed_of(&|to| to.write_all(bytes)).unwrap_or_default();
    format!(
        "<!DOCTYPE html><body><script id=\"{ID}\" type=\"application/gzip\">{packed}</script></body>\n"
    )
}

/// Returns true if these bytes are a page and not JSON.
pub(crate) fn is_page(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().starts_with(b"<")
}

/// Returns the JSON of a page. Fails if it is longer than `most` bytes.
///
/// # Errors
///
/// Returns the page's defect, worded to follow the file's name.
pub(crate) fn json_of(page: &[u8], most: u64) -> Result<Vec<u8>, String> {
    let marker = format!("<script id=\"{ID}\" type=\"application/gzip\">");
    let start = memchr::memmem::find(page, marker.as_bytes()).map(|at| at + marker.len());
    let rest = start
        .and_then(|start| page.get(start..))
        .ok_or("is a page without a report of peerscope in it")?;
    let end = memchr::memchr(b'<', rest).ok_or("ends within its report: the page was cut off")?;
    let bytes = from_base64(&rest[..end]).ok_or("has a report in it that is not base64")?;
    unpacked(&bytes, most)
        .map_err(|why| format!("has a report in it that cannot be unpacked: {why}"))
}

/// Returns these bytes in gzip, for tests.
#[cfg(test)]
pub(crate) fn gzip_of(bytes: &[u8]) -> Vec<u8> {
    files::packed(&|to| to.write_all(bytes)).unwrap()
}

pub(super) fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let value = three
            .iter()
            .chain([&0, &0])
            .take(3)
            .fold(0_u32, |value, byte| value << 8 | u32::from(*byte));
        for place in 0..4 {
            let digit = DIGITS[(value >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut values = [None; 256];
    for (value, digit) in (0_u32..).zip(DIGITS) {
        values[usize::from(*digit)] = Some(value);
    }
    let digits: Vec<u8> =
        text.iter().copied().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=').collect();
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3);
    for four in digits.chunks(4) {
        if four.len() == 1 {
            return None;
        }
        let mut value = 0_u32;
        for place in 0..4 {
            value = value << 6
                | four.get(place).map_or(Some(0), |digit| values[usize::from(*digit)])?;
        }
        let [_, three @ ..] = value.to_be_bytes();
        bytes.extend_from_slice(&three[..four.len() - 1]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_base64() {
        for length in 0..70_u8 {
            let bytes: Vec<u8> = (0..length).map(|n| n.wrapping_mul(37)).collect();
            assert_eq!(from_base64(base64(&bytes).as_bytes()).unwrap(), bytes);
        }
        assert_eq!(base64(b"peer"), "cGVlcg==");
        assert!(from_base64(b"cGV*").is_none() && from_base64(b"c").is_none());
    }

    #[test]
    fn a_page_within_a_page_is_not_read() {
        let report = serde_json::to_vec(&sample::healthy(1)).unwrap();
        let page = page_with(&report);
        assert!(crate::read::parse(page.as_bytes()).is_ok());
        let error = crate::read::parse(page_with(page.as_bytes()).as_bytes()).unwrap_err();
        assert_eq!(error, "is a page with another page in it");
    }

    #[test]
    fn a_page_gives_its_report_back() {
        let report = sample::pcie_box();
        let page = format!("<!DOCTYPE html>{}</body>", element(&report).into_string());
        assert!(is_page(page.as_bytes()) && !is_page(b" {}"));
        let json = json_of(page.as_bytes(), 1 << 30).unwrap();
        let back: Report = serde_json::from_slice(&json).unwrap();
        assert_eq!(back.snapshot.gpus, report.snapshot.gpus);
        assert_eq!(back.verdict, report.verdict);
        assert!(json_of(page.as_bytes(), 1000).unwrap_err().contains("longer than 1000 bytes"));
        assert!(json_of(b"<html>", 1000).unwrap_err().contains("without a report"));
        let cut = &page.as_bytes()[..page.len() / 2];
        assert!(json_of(cut, 1 << 30).unwrap_err().contains("cut off"));
    }
}
