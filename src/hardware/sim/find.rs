//! Finding a simulated machine by name or file.

use std::path::Path;

use super::text::read;
use super::{Simulated, builtin, load};
use model::nearest::did_you_mean;

impl Simulated {
    /// Returns the built-in machine of this name, or the one that the file describes. A name with a slash or a dot is a
    /// file.
    ///
    /// # Errors
    ///
    /// A sentence that names the machine and lists the existing ones, or that names the file, line and key of the
    /// mistake.
    pub fn find(name: &str) -> Result<Self, String> {
        let lower = name.to_ascii_lowercase();
        if let Some(spec) = builtin::get(&lower) {
            return Ok(Self { name: lower, spec });
        }
        if !name.contains(['/', '.']) {
            return Err(match did_you_mean(name, builtin::names().chain(["live"])) {
                meant if meant.is_empty() => format!(
                    "there is no machine '{name}': choose live, a file that ends in .toml, or a simulated one that \
                     'peerscope machines' lists, such as demo"
                ),
                meant => format!("there is no machine '{name}'{meant}"),
            });
        }
        let text = read(Path::new(name))
            .map_err(|error| format!("cannot read the machine '{name}': {error}"))?;
        let spec = load::parse_in(&text, Path::new(name).parent())
            .map_err(|error| format!("the machine '{name}' is not usable: {error}"))?;
        Ok(Self { name: name.to_owned(), spec })
    }
}
