//! Generates the functions that `src/functions.txt` names and `src/exports.rs` does not have.

use std::path::Path;
use std::{env, fs, io};

#[allow(clippy::disallowed_macros, reason = "cargo's own channel")]
fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src/functions.txt");
    println!("cargo::rerun-if-changed=src/exports.rs");
    let exports = fs::read_to_string("src/exports.rs")?;
    let names = fs::read_to_string("src/functions.txt")?;
    let others = names.lines().filter(|name| !exports.contains(&format!(" fn {name}(")));
    let others = others.collect::<Vec<_>>().join("\n");
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    fs::write(Path::new(&out).join("others.rs"), format!("others! {{ {others} }}"))
}
