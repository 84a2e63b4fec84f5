//! The binary: parse, run, exit code.

fn main() {}
