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
        if let Some(spec) = builtin::get(name) {
            return Ok(Self { name: name.to_owned(), spec });
        }
        if !name.contains(['/', '.']) {
            let known: Vec<_> = builtin::names().collect();
            return Err(format!(
                "there is no machine '{name}': choose live, a file that ends in .toml, or a simulated one ({}){}",
                known.join(", "),
                did_you_mean(name, known.iter().copied().chain(["live"]))
            ));
        }
        let text = read(Path::new(name))
            .map_err(|error| format!("cannot read the machine '{name}': {error}"))?;
        let spec = load::parse_in(&text, Path::new(name).parent())
            .map_err(|error| format!("the machine '{name}' is not usable: {error}"))?;
        Ok(Self { name: name.to_owned(), spec })
    }
}
