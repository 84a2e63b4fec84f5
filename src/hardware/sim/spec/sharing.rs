//! How processes of a simulated machine can share memory, and what goes wrong with that.

use serde::{Deserialize, Serialize};

use super::MachineSpec;
use hardware::SharingFacts;
use model::sharing::Rung;
use model::units::GIB;

/// Room of /dev/shm where a description says nothing.
const SHARED_MEMORY: u64 = 64 * GIB;

/// A way to share memory that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharingFault {
    pub rung: Rung,
    /// True if the process that has the memory fails, not the one that opens it.
    #[serde(default)]
    pub at_owner: bool,
    /// CUDA's code, or the system's.
    pub code: Option<u32>,
    #[serde(default)]
    pub meaning: String,
    /// True if the call never returns.
    #[serde(default)]
    pub hangs: bool,
    /// True if the opened memory is another than that of the owner.
    #[serde(default)]
    pub wrong: bool,
}

impl MachineSpec {
    /// Returns the fault of a way to share memory, at the side that opens it or has it.
    pub(crate) fn sharing_fault(&self, rung: Rung, opens: bool) -> Option<&SharingFault> {
        let of = |fault: &&SharingFault| fault.rung == rung && fault.at_owner != opens;
        self.faults.sharing.iter().find(of)
    }

    /// Returns the facts of a process of this machine. Nothing is in the way where the description says nothing.
    pub fn sharing_facts(&self) -> SharingFacts {
        let said = self.host.sharing.clone();
        SharingFacts {
            own_ipc_namespace: said.own_ipc_namespace.or(Some(self.host.container)),
            seccomp_filter: said.seccomp_filter.or(Some(self.host.container)),
            shared_memory_bytes: said.shared_memory_bytes.or(Some(SHARED_MEMORY)),
            no_file_left: said.no_file_left.or(Some(false)),
            wsl: said.wsl.or_else(|| {
                let kernel = self.host.kernel_version.to_lowercase();
                Some(kernel.contains("microsoft") || kernel.contains("wsl"))
            }),
        }
    }
}
