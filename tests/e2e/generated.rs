//! Tests of files that are generated from others.

use std::process::Command;

use crate::common::{finish, skipped};

/// `scripts/build-kernels` writes the SHA-256 of sources and images into a manifest.
#[test]
fn the_images_were_built_from_these_kernels() {
    if Command::new("python3").arg("--version").output().is_err() {
        return skipped(
            "there is no python3, so whether the images fit their sources was not looked at",
        );
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/build-kernels");
    let ran = finish(Command::new("python3").args([script, "--check-hash"]));
    assert_eq!(ran.code, Some(0), "run scripts/build-kernels and commit what it writes: {ran:?}");
}
