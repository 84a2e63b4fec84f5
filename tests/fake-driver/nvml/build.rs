//! Generates functions from the names in `src/others.txt`.

use std::path::Path;
use std::{env, fs, io};

#[allow(clippy::disallowed_macros, reason = "cargo's own channel")]
fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src/others.txt");
    let names = fs::read_to_string("src/others.txt")?;
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    fs::write(
        Path::new(&out).join("others.rs"),
        format!("others! {{ {names} }}"),
    )
}
