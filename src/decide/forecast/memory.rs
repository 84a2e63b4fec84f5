//! Where the memory of NCCL's connections comes from (src/misc/cudawrap.cc, src/transport/shm.cc).

use super::rules::Rules;

/// Where memory comes from.
pub(super) enum Memory {
    Cumem(String),
    Plain(String),
    NotKnown(String),
}

impl Rules<'_> {
    /// Returns where memory of these GPUs comes from.
    pub(super) fn memory(&self, pair: (u32, u32)) -> Memory {
        let (machine, version) = (self.machine, self.version);
        let name = "NCCL_CUMEM_ENABLE";
        match machine.variables.number(name) {
            Some(number) if number > 0 => return Memory::Cumem(machine.variables.written(name)),
            // -2 is the default of newer versions, and none of older ones.
            Some(number) if number != -2 => {
                return Memory::Plain(machine.variables.written(name));
            }
            _ => {}
        }
        if !version.has_cumem_by_default() {
            return Memory::Plain(format!("NCCL {version} does not use cuMem by default"));
        }
        match machine.cuda_version() {
            Some(cuda) if cuda < (12, 0) => {
                return Memory::Plain("the driver is older than CUDA 12.0".to_owned());
            }
            Some(_) => {}
            None => return Memory::NotKnown("the CUDA version of the driver".to_owned()),
        }
        let wanted = [
            (
                machine.attribute(pair, |of| of.virtual_memory.get()),
                "virtual memory management",
                true,
            ),
            (
                machine.attribute(pair, |of| of.rdma_of_virtual_memory.get()),
                "RDMA with virtual memory management",
                version.cumem_needs_rdma(),
            ),
        ];
        for (supported, what, _) in wanted.iter().filter(|(.., matters)| *matters) {
            match supported {
                Some(true) => {}
                Some(false) => return Memory::Plain(format!("CUDA has no {what} here")),
                None => {
                    return Memory::NotKnown(format!(
                        "whether CUDA supports {what} ('peerscope check' asks)"
                    ));
                }
            }
        }
        Memory::Cumem("cuMem is the default".to_owned())
    }

    /// Returns where memory of the host comes from that processes share.
    pub(super) fn memory_of_the_host(&self, pair: (u32, u32)) -> Memory {
        let machine = self.machine;
        if !self.version.has_cumem_of_host() {
            return Memory::Plain(String::new());
        }
        match self.memory(pair) {
            Memory::Cumem(_) => {}
            other => return other,
        }
        let name = "NCCL_CUMEM_HOST_ENABLE";
        let asked = machine.variables.number(name).filter(|number| *number != -1);
        if let Some(number) = asked {
            return match number {
                0 => Memory::Plain(String::new()),
                _ => Memory::Cumem(format!("{}, not /dev/shm", machine.variables.written(name))),
            };
        }
        let newer = machine.cuda_version().is_some_and(|cuda| cuda >= (12, 6));
        match self.version.has_cumem_of_host_by_default() && newer {
            true => Memory::Cumem("in memory of cuMem, not /dev/shm".to_owned()),
            false => Memory::Plain(String::new()),
        }
    }
}
