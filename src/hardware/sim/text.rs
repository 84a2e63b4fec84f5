//! The text of a description in a file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Most bytes read of a description. The longest built-in one has some 100 kB.
const LONGEST: u64 = 4 << 20;

/// Returns the text of a description.
///
/// # Errors
///
/// The reason why it cannot be read.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let read =
        file.take(LONGEST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if read as u64 > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    Ok(text)
}
