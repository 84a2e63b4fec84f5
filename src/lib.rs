//! peerscope: are the paths between the GPUs of a server what they should be, and if not, which
//! one is wrong, why, and what should a technician do?
//!
//! ```text
//!  hardware      discover      topology      plan          measure         diagnose     report
//!  NVML, sysfs → Snapshot   →  graph,     →  rounds     →  Measurements →  Findings  →  text json html
//!  CUDA                        routes           |              ↑
//!                                               └─ worker process: the only one that opens CUDA
//! ```
//!
//! Each arrow is plain, immutable, serialisable data of [`model`]. A stage knows the data of the
//! stages before it and nothing of what comes after.

mod cli;
mod commands;

pub use cli::Cli;
pub use commands::{complain, fail_evaluation, parse, run, usage};
pub use diagnose::Ending;
pub use report::{Format, Of, formats};
