//! Broken input that passes through several rooms. `scripts/fuzz` runs those named `fuzz_...`.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy looks only into test functions")]

mod machines;
mod replies;
