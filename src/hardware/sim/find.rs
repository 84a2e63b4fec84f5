//! Finding a simulated machine by name or file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{Simulated, builtin, load};
use model::nearest::did_you_mean;

/// The longest description that is read. The longest built-in one has some 100 kB.
const LONGEST: u64 = 4 << 20;

impl Simulated {
    /// The built-in machine of this name, or the one that the file describes. A name with a slash
    /// or a dot is a file.
    ///
    /// # Errors
    ///
    /// A sentence that names the machine and lists those that exist, or that names the file, line
    /// and key that are wrong.
    pub fn find(name: &str) -> Result<Self, String> {
        if let Some(spec) = builtin::get(name) {
            return Ok(Self {
                name: name.to_owned(),
                spec,
            });
        }
        if !name.contains(['/', '.']) {
            let known: Vec<_> = builtin::names().collect();
            return Err(format!(
                "there is no machine '{name}'{}: choose live, a file that ends in .toml, or a simulated one ({})",
                did_you_mean(name, known.iter().copied().chain(["live"])),
                known.join(", ")
            ));
        }
        let text = read(Path::new(name))
            .map_err(|error| format!("cannot read the machine '{name}': {error}"))?;
        let spec = load::parse_in(&text, Path::new(name).parent())
            .map_err(|error| format!("the machine '{name}' is not usable: {error}"))?;
        Ok(Self {
            name: name.to_owned(),
            spec,
        })
    }
}

/// The text of a description.
///
/// # Errors
///
/// Why it cannot be read.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let read = file
        .take(LONGEST + 1)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    if read as u64 > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    Ok(text)
}
