//! The rules of a version of NCCL, applied to a machine.

use super::between::Machine;
use super::version::Version;

/// The rules of a version on a machine.
pub(super) struct Rules<'a> {
    pub(super) machine: &'a Machine<'a>,
    pub(super) version: Version,
}
