//! # What it means
//!
//! A copy between two GPUs did not end.
//!
//! # How it is detected
//!
//! The process that runs the copies did not report back within the deadline. It was ended and
//! replaced, and the check went on with the other pairs.
//!
//! # Why it matters
//!
//! Programs that use both GPUs hang indefinitely, usually without any message.
//!
//! # What to do
//!
//! Look for Xid messages in the kernel's log (`dmesg | grep -i xid`). On machines without NVSwitch
//! look for ACS and an IOMMU that translates, which are known to make peer copies hang. Reset or
//! power-cycle the GPUs, then check the pair alone (`--gpus`); if it hangs again, swap one of the
//! two with another GPU.
//!
//! # Sources
//!
//! NCCL issues 606 and 557.

use super::peer_copy;
use super::prelude::*;

/// The rule.
pub const RULE: Rule = Rule::new("peer-copy-hung", Severity::Error, include_str!("peer_copy_hung.rs"), judge);

fn judge(evidence: &Evidence<'_>) -> Vec<Finding> {
    let next_step = "Look for Xid messages (dmesg | grep -i xid). Power-cycle the machine and check these GPUs alone \
             (--gpus). If it hangs again: switch off ACS and IOMMU translation, then swap one of the GPUs with another \
             to see whether the fault moves with it";
    peer_copy::findings(&RULE, evidence, Status::Hung, "do not end", next_step)
}
