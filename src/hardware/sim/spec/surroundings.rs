//! Surroundings of a simulated machine: power, packets and windows of its functions, its ports, its log, and the
//! environment of peerscope there.

use serde::{Deserialize, Serialize};

use super::{FunctionSpec, MachineSpec};
use hardware::kernel_log;
use model::reading::{Reading, Unknown};
use model::snapshot::{
    AdapterKind, AdapterPort, Bar, Host, PciFunction, PciPower, RuntimeStatus, Xid,
};
use model::units::PciAddress;

/// A line of the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogLine {
    /// Seconds since boot.
    pub seconds: u64,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdapterSpec {
    /// The kernel's name.
    pub name: String,
    /// RDMA or Ethernet.
    pub kind: AdapterKind,
    /// Its PCI function.
    pub pci: PciAddress,
    /// The state of its port in the kernel's words; `active` or `up` if omitted.
    pub state: Option<String>,
    /// The rate of its port, megabits per second. If omitted, 400 Gb/s for RDMA and 10 Gb/s for Ethernet.
    pub rate_mbit: Option<u32>,
    /// The signal below its port in the kernel's words; `LinkUp` if omitted. RDMA only, as all that follows.
    pub physical_state: Option<String>,
    /// `InfiniBand` or `Ethernet`; `InfiniBand` if omitted.
    pub link_layer: Option<String>,
    /// Version of its firmware; not known if not given.
    pub firmware: Option<String>,
    /// The maker's identifier of the board; not known if not given.
    pub board: Option<String>,
    /// Times that the link of its port went down.
    #[serde(default)]
    pub link_downed: u64,
}

/// Size of one read request of every function, bytes: the default of PCI Express.
pub const READ_REQUEST: u16 = 512;

/// Reason why the packets of a function without an answer are unknown.
const NO_ANSWER: &str = "configuration space reads all ones: the function does not answer";

impl FunctionSpec {
    /// Returns the largest payload that could be set.
    pub fn payload_possible(&self) -> u16 {
        self.payload_max.map_or(*self.payload * 2, |most| *most).max(*self.payload)
    }

    /// Returns the state of runtime power management that follows from its power state.
    pub(crate) fn runtime_status(&self) -> RuntimeStatus {
        if self.power_state == PciPower::D0 {
            RuntimeStatus::Active
        } else {
            RuntimeStatus::Suspended
        }
    }
}

impl AdapterSpec {
    /// Returns its only port.
    pub fn port(&self) -> AdapterPort {
        let known = |own: &Option<String>, usual: &str| {
            Reading::Known(own.clone().unwrap_or_else(|| usual.to_owned()))
        };
        let rate = |usual| Reading::Known(self.rate_mbit.unwrap_or(usual));
        let unread = AdapterPort::unread(1, &Unknown::Unsupported);
        match self.kind {
            AdapterKind::Rdma => AdapterPort {
                state: known(&self.state, "active"),
                link_layer: known(&self.link_layer, "InfiniBand"),
                rate_mbit: rate(400_000),
                physical_state: known(&self.physical_state, "LinkUp"),
                link_downed: Reading::Known(self.link_downed),
                ..unread
            },
            AdapterKind::Ethernet => AdapterPort {
                state: known(&self.state, "up"),
                link_layer: Reading::Known("Ethernet".to_owned()),
                rate_mbit: rate(10_000),
                ..unread
            },
        }
    }
}

impl MachineSpec {
    /// Returns true if a function does not answer: a GPU that fell off the bus, or one without power.
    pub fn is_silent(&self, function: &FunctionSpec) -> bool {
        let lost = || {
            self.gpus
                .iter()
                .zip(0..)
                .any(|(gpu, index)| gpu.pci == function.address && self.lost(index))
        };
        function.power_state == PciPower::D3Cold || lost()
    }

    /// Returns the windows of a GPU's function.
    pub fn bars(&self, function: &FunctionSpec) -> Option<Vec<Bar>> {
        let gpu = self.gpus.iter().find(|gpu| gpu.pci == function.address);
        if !function.is_display() {
            return None;
        }
        let bytes = function.bar.or_else(|| Some(gpu?.bar1));
        let bar = |bytes| Bar { number: 1, bytes, largest_bytes: function.bar_max };
        Some(bytes.map(bar).into_iter().collect())
    }

    /// Fills in packets, power and windows of a function.
    pub(crate) fn read_function(&self, spec: &FunctionSpec, function: &mut PciFunction) {
        let silent = self.is_silent(spec);
        let answered = |bytes: u16| {
            if silent { Reading::failed(NO_ANSWER) } else { Reading::Known(bytes) }
        };
        function.answers = Reading::Known(!silent);
        function.max_payload_bytes = answered(*spec.payload);
        function.max_payload_possible_bytes = answered(spec.payload_possible());
        function.max_read_request_bytes = answered(READ_REQUEST);
        function.power_state = Reading::Known(spec.power_state);
        function.runtime_status = Reading::Known(spec.runtime_status());
        function.removable =
            if spec.removable { Reading::Known(true) } else { Reading::unsupported() };
        function.bars = self.bars(spec).ok_or(Unknown::Unsupported).into();
    }

    /// Fills in the environment of peerscope, and the kernel's parameters and log.
    pub(crate) fn read_surroundings(&self, facts: &mut Host) {
        let host = &self.host;
        facts.container_made_by = if host.container {
            Reading::Known("docker".to_owned())
        } else {
            Reading::unsupported()
        };
        facts.control_group = Reading::Known(host.control_group.clone());
        facts.iommu_parameters = Reading::Known(host.iommu_parameters.clone());
        facts.confidential_computing = Reading::Known(host.confidential_computing);
        facts.peer_memory_module = Reading::Known(host.peer_memory_module);
        facts.open_kernel_module = Reading::Known(host.open_kernel_module);
        let running = host.fabric_manager_running.filter(|_| !host.container);
        facts.fabric_manager_running = running.ok_or(Unknown::Unsupported).into();
        facts.mps_pipe_directory = Reading::Known("/tmp/nvidia-mps".to_owned());
        facts.mps_daemon = Reading::Known(host.mps_daemon);
        facts.busy_tasks = Reading::Known(host.busy_tasks);
        let cache = host.last_level_cache;
        facts.last_level_cache_bytes = cache.ok_or(Unknown::Unsupported).into();
        facts.up_seconds = host.up_seconds.ok_or(Unknown::Unsupported).into();
        facts.boot_id = host.boot_id.clone().ok_or(Unknown::Unsupported).into();
        facts.nccl_variables = Reading::Known(host.nccl_variables.clone());
        facts.shm_total_bytes = host.shm.ok_or(Unknown::Unsupported).into();
        facts.shm_free_bytes = facts.shm_total_bytes.clone();
        facts.xids = self.xids();
    }

    fn xids(&self) -> Reading<Vec<Xid>> {
        if self.host.kernel_log_denied {
            return Reading::Unknown(Unknown::Denied("needs root".to_owned()));
        }
        let lines = self.host.kernel_log.iter();
        let messages =
            lines.map(|line| (line.seconds.saturating_mul(1_000_000), line.text.as_str()));
        Reading::Known(kernel_log::xids(messages))
    }
}
