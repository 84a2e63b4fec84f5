//! Every possible cause that a finding may suspect, with its identifier and its words.

use super::arguments::*;
use super::plan::Plan;
use model::finding::Suspect;

/// Declares the causes. The words take the arguments by name.
macro_rules! causes {
    ($($name:ident $(($($argument:ident: $kind:ty),+))? => $id:literal $words:literal;)*) => {
        /// A possible cause.
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) enum Cause { $($name $(($($kind),+))?),* }

        impl Cause {
            /// Returns true if this is the suspect, whatever its arguments.
            pub(crate) fn is(&self, suspect: &Suspect) -> bool {
                suspect.id == self.id()
            }

            fn id(&self) -> &'static str {
                match self { $(Self::$name { .. } => $id),* }
            }

            fn words(&self) -> String {
                match self { $(Self::$name $(($($argument),+))? => format!($words)),* }
            }
        }
    };
}

causes! {
    // Settings of the machine.
    Iommu => "iommu" "the IOMMU translates device addresses";
    Acs(ports: At) => "acs" "ACS redirects peer requests at {ports}";
    HostSettings => "host-settings" "IOMMU and ACS of the host, which cannot be seen from this virtual machine";
    SlotSettings => "slot-settings" "a BIOS setting that splits the slots (bifurcation) or caps their generation";
    BiosTraining => "bios" "a BIOS version that trains these links badly";

    // Other work.
    OtherWork(gpus: All) => "other-work" "other work: processes hold memory on {gpus}";
    HostTasks(number: u32) => "other-work"
        "other work on the host: {number} tasks ran there in the minute before the check (load average)";
    HostWork => "other-work" "other work on the host, its power saving, or neighbours of a virtual machine";
    UplinkWork => "other-work" "other traffic on the same uplink (disks, network)";
    Congestion => "other-work" "congestion by other work, which raises replays on a sound link";

    // A part.
    OwnWay => "own-way" "its slot, riser, cable, socket or power supply";
    Contacts => "contacts" "a bad contact of a GPU, bridge, riser or cable, or one made for a lower generation";
    Gpu(gpu: OneOf) => "gpu" "{gpu}, its contacts or its lanes";
    GpuItself => "gpu" "the GPU or its seat";
    GpuOrNvLinks => "gpu" "a GPU or its NVLinks";
    CopyEngine => "copy-engine" "a copy engine of the source GPU";
    MoversOf(gpu: OneOf) => "copy-engine"
        "{gpu} but not its memory, which has ECC: copy engines, or their connection to the bus";
    MemoryOf(gpu: OneOf) => "gpu-memory" "the memory of {gpu}, which has no ECC";
    Clocks(gpu: OneOf, reasons: String) => "clocks" "the clocks of {gpu} are throttled ({reasons})";
    Power => "power-supply" "a power supply, power cables or cooling too weak for several GPUs";
    SwitchBoard => "switch-board" "the switch board or its cable";
    Switch(ports: At) => "switch-board" "the PCIe switch at {ports}";
    SharedLink => "shared-link" "the link or uplink that they share: its cable, riser or switch board";
    HiddenUplink => "hidden-uplink"
        "a hidden uplink above the slots (of the chipset, or of a board with several slots)";
    ChipsetUplink => "chipset" "the chipset's uplink";
    ChipsetForwards => "chipset" "peer copies that the chipset forwards slowly";
    ChipsetOrProcessors => "chipset"
        "a GPU in a slot of the chipset, or two processors that pass peer requests on slowly";
    ProcessorLinks => "processor-links" "the links between the processors";
    RisersAlike => "risers-alike" "risers, cables or a backplane of one kind, or made for a lower generation";
    Extenders => "extenders" "extenders of one lane (PCIe x1 risers)";
    CableOrDock => "cable" "the cable or the dock of its Thunderbolt link";
    OneOfLinks(place: String) => "one-of-links" "{place}";
    Everything => "board" "what all of these pairs have in common: chipset, BIOS or driver";

    // NVLink and its fabric.
    NvLinkRepeats => "nvlink-repeats" "an NVLink that retrains or replays";
    PcieRetrains => "pcie-repeats" "a PCIe link that retrains or replays";
    NvLinkFallback => "nvlink-fallback" "these bytes went over PCIe: it carries this rate";
    BridgeOrBoard => "bridge" "bridge, baseboard or switch";
    BoardOrSwitch => "board" "baseboard or switch";
    BridgeMissing => "bridge" "a bridge that was never fitted, or that came loose";
    LinksDisabled => "links-disabled" "links that were disabled after they failed training";
    LinksDown => "links-disabled" "the links of these GPUs do not train";
    FabricManagerDown => "fabric-manager" "the fabric manager does not run";
    FabricVersion => "fabric-version" "the fabric manager's version is not the driver's";
    FabricOfTray => "fabric-manager" "the fabric manager on the switch trays";
    FabricOfHost => "fabric-manager"
        "the partition with these GPUs is not active on the host, or its fabric manager does not run";
    FabricStartedBefore => "fabric-manager" "the GPUs were reset after the fabric manager had started";
    NvSwitchMissing => "nvswitch-missing" "an NVSwitch is missing";
    TrayCable => "cable" "a cable or connector between this tray and the switch trays";

    // The host's memory.
    GuestMemory => "guest-memory" "the host spreads the virtual machine's memory over NUMA nodes, or shares it";
    OtherNode => "numa-node" "memory of another NUMA node than that of the GPU";
    FewChannels => "memory-channels" "too few memory channels of the host, memory of another NUMA node, or other work that takes its bandwidth";

    // Software.
    Patched => "patched-driver" "a patched driver: NVIDIA's own refuses peer access over PCIe on these boards";
    PatchedOrOptions => "patched-driver" "a patched driver, or options that differ between the GPUs";
    PartlyPatched => "patched-driver"
        "kernel modules patched for peer access, and libraries that are not, or the other way round";
    HiddenFromCuda => "container" "a container or virtual machine that hides from CUDA what NVML still sees";
    Policy => "driver-policy" "driver policy for these boards";
    NoClique => "no-clique" "GPUs passed through without a peer-to-peer clique";
    Driver => "driver" "the driver, or a library that is loaded into the worker";
    StuckDriver => "driver" "a driver that got stuck";
    Window => "bar1" "the path of kernel stores: the window (BAR1) that maps the peer's memory";
    SmallWindow => "bar1" "a BAR1 window that is too small on the GPU that is to be reached";
    Host => "host" "the host";
}

macro_rules! signs {
    ($($name:ident: $words:literal,)*) => {
        /// The outcome of a test that confirms the suspect.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Sign { $($name),* }

        impl Sign {
            const fn words(self) -> &'static str {
                match self { $(Self::$name => $words),* }
            }
        }
    };
}

signs! {
    CountersRest: "the counters stay as they are",
    FaultEnds: "the fault ends",
    FaultMoves: "the fault moves with it",
    FaultStays: "the fault stays at the slot",
    Listed: "the GPU is listed again",
    RateRises: "the rate rises",
}

/// Returns a suspect with its test.
pub(crate) fn suspect(cause: Cause, test: impl Into<Plan>) -> Suspect {
    let steps = Vec::from(test.into());
    Suspect {
        id: cause.id().into(),
        cause: cause.words(),
        test: model::step::joined(&steps),
        steps,
    }
}

/// Returns a suspect that this outcome of its test confirms.
pub(crate) fn suspect_if(cause: Cause, test: impl Into<Plan>, sign: Sign) -> Suspect {
    let mut suspect = suspect(cause, test);
    suspect.test = format!("{}: {}", suspect.test, sign.words());
    suspect
}
