//! Tests of files that are generated from others.

use std::process::Command;

use crate::common::{finish, skipped};

/// `scripts/build-ptx` writes the SHA-256 of its source into each PTX file.
#[test]
fn the_ptx_was_built_from_these_kernels() {
    if Command::new("python3").arg("--version").output().is_err() {
        return skipped(
            "there is no python3, so whether the PTX fits its sources was not looked at",
        );
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/build-ptx");
    let ran = finish(Command::new("python3").args([script, "--check-hash"]));
    assert_eq!(
        ran.code,
        Some(0),
        "run scripts/build-ptx and commit what it writes: {ran:?}"
    );
}
