//! The arguments of steps and causes, with their words: GPUs, parts, addresses, and what is asked, looked for or expected.

use std::fmt;

use crate::words;
use model::step::{Argument, Step};
use model::units::PciAddress;

/// One of these GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OneOf(pub Vec<u32>);

/// All of these GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct All(pub Vec<u32>);

pub(crate) fn gpu(index: u32) -> OneOf {
    OneOf(vec![index])
}

pub(crate) fn one_of(gpus: &[u32]) -> OneOf {
    OneOf(gpus.to_vec())
}

pub(crate) fn all(gpus: &[u32]) -> All {
    All(gpus.to_vec())
}

/// Written `0,3` with `{:#}`, as nvidia-smi takes GPUs.
impl fmt::Display for OneOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMED: usize = 3;
        match self.0.len() {
            _ if f.alternate() => f.write_str(&words::option(&self.0)),
            0 => f.write_str("the GPU"),
            1..=NAMED => {
                let names: Vec<_> = self.0.iter().map(|gpu| format!("GPU {gpu}")).collect();
                f.write_str(&names.join(" or "))
            }
            _ => f.write_str("one of these GPUs"),
        }
    }
}

/// Written `0,3` with `{:#}`, as nvidia-smi takes GPUs.
impl fmt::Display for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            gpus if f.alternate() => f.write_str(&words::option(gpus)),
            [] => f.write_str("these GPUs"),
            gpus => f.write_str(&words::gpus(gpus)),
        }
    }
}

/// PCI functions by their addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct At(pub Vec<PciAddress>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&words::addresses(&self.0))
    }
}

/// Bridges whose ACS is to be cleared: the command that does it until the next boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AcsOf(pub Vec<PciAddress>);

impl fmt::Display for AcsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [port] => write!(f, "setpci -s {port} ECAP_ACS+0x6.w=0000"),
            ports => {
                let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
                let ports = ports.join(" ");
                write!(f, "for p in {ports}; do setpci -s $p ECAP_ACS+0x6.w=0000; done")
            }
        }
    }
}

/// Declares what arguments add to a step: GPUs or addresses.
macro_rules! lists {
    ($($name:ident to $list:ident,)*) => {$(
        impl Argument for $name {
            fn about(&self, mut step: Step) -> Step {
                step.$list.extend(&self.0);
                step
            }
        }
    )*};
}

lists! {
    OneOf to gpus,
    All to gpus,
    At to addresses,
    AcsOf to addresses,
}

/// A part to reseat, swap or replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Gpu(OneOf),
    GpuAndRiser(OneOf),
    GpuAndBridge(OneOf),
    /// GPUs, and bridges, risers or cables between them.
    GpusAndJoints(All),
    /// The module of an SXM socket.
    Module(OneOf),
    ModuleOrBoard,
    Bridge,
    /// Adapter, riser and cable.
    AdapterAndRiser,
    Adapter,
    RiserOrCable,
    RiserCableOrBoard,
    /// The parts that a shared link runs over.
    SharedHop,
    /// A switch board above GPUs, with its riser or cable.
    SwitchBoard(All),
    /// The board that holds GPUs, with its cable.
    BoardOf(All),
    /// The parts that several flows share.
    Shared,
    Cable,
    /// The cable of a GPU that may be outside the chassis.
    Dock,
}

impl Part {
    /// One of these GPUs.
    pub(crate) fn of(gpus: &[u32]) -> Self {
        Self::Gpu(one_of(gpus))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(gpu) => gpu.fmt(f),
            Self::GpuAndRiser(gpu) => write!(f, "{gpu} and its riser or cable"),
            Self::GpuAndBridge(gpu) => {
                write!(f, "{gpu} and its NVLink bridge or cable, if there is one")
            }
            Self::GpusAndJoints(gpus) => write!(f, "{gpus} and the links between them"),
            Self::Module(gpu) => write!(f, "the module of {gpu}"),
            Self::ModuleOrBoard => f.write_str("module or board"),
            Self::Bridge => f.write_str("the NVLink bridge"),
            Self::AdapterAndRiser => f.write_str("the adapter and its riser or cable"),
            Self::Adapter => f.write_str("the adapter"),
            Self::RiserOrCable => f.write_str("riser or cable"),
            Self::RiserCableOrBoard => f.write_str("riser, cable or board"),
            Self::SharedHop => f.write_str("the riser, cable or switch board of this link"),
            Self::SwitchBoard(gpus) => write!(f, "the switch board, riser or cable above {gpus}"),
            Self::BoardOf(gpus) => write!(f, "the board that holds {gpus}, and its cable"),
            Self::Shared => f.write_str("the part that these flows share"),
            Self::Cable => {
                f.write_str("the cable, if it hangs on one, for another, as short as possible")
            }
            Self::Dock => f.write_str("the dock, or its power supply"),
        }
    }
}

impl Argument for Part {
    fn about(&self, step: Step) -> Step {
        let (mut step, parts): (Step, &[&'static str]) = match self {
            Self::Gpu(gpu) => (gpu.about(step), &["gpu"]),
            Self::GpuAndRiser(gpu) => (gpu.about(step), &["gpu", "riser"]),
            Self::GpuAndBridge(gpu) => (gpu.about(step), &["gpu", "bridge"]),
            Self::GpusAndJoints(gpus) => (gpus.about(step), &["gpu"]),
            Self::Module(gpu) => (gpu.about(step), &["gpu"]),
            Self::ModuleOrBoard => (step, &["gpu", "board"]),
            Self::Bridge => (step, &["bridge"]),
            Self::AdapterAndRiser => (step, &["adapter", "riser"]),
            Self::Adapter => (step, &["adapter"]),
            Self::RiserOrCable => (step, &["riser"]),
            Self::RiserCableOrBoard => (step, &["riser", "board"]),
            Self::SharedHop => (step, &["riser", "pcie-switch"]),
            Self::SwitchBoard(gpus) => (gpus.about(step), &["riser", "pcie-switch"]),
            Self::BoardOf(gpus) => (gpus.about(step), &["board"]),
            Self::Shared => (step, &[]),
            Self::Cable => (step, &["cable"]),
            Self::Dock => (step, &["dock"]),
        };
        step.parts.extend(parts.iter().map(|part| (*part).into()));
        step
    }
}

/// Declares an argument that is a choice of words.
macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident { $($choice:ident: $text:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum $name { $($choice),* }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$choice => $text),* })
            }
        }

    )*};
}

choices! {
    /// A question for whoever runs the host of a virtual machine; completes "ask whoever runs the host".
    Ask {
        Fabric: "whether the fabric manager runs there and the partition with these GPUs is active, and for its log",
        Firmware: "to bring all GPUs of the model to one version: a guest cannot",
        HugePages: "for huge pages behind the memory of this virtual machine",
        IommuAndAcs: "to look at IOMMU translation and ACS there (ACSCtl of the bridges above the GPUs): a guest can neither see nor change them",
        LinkOfGpu: "to compare LnkCap and LnkSta of the GPU and of the port above it (lspci -vvv)",
        NumaNodes: "whether processors and memory are pinned to the nodes of the GPUs",
        NvLink: "about NVLink and NVSwitches of these GPUs there",
        Parts: "to look at these GPUs there: Xid, AER, link, slot, seat, power and cooling, which a guest cannot reach",
        PassThrough: "whether these GPUs are passed through like the others, with peer-to-peer enabled (with QEMU in one x-nv-gpudirect-clique)",
        Processors: "whether GPUs or processors of this virtual machine are shared, pinned or overcommitted",
        Xids: "for Xid messages of the time of this run",
    }

    /// Work to stop; completes "stop".
    Work {
        OnGpus: "other work on these GPUs (nvidia-smi lists it)",
        OnMachine: "other work on the machine and its host",
        Tools: "debuggers, profilers and compute-sanitizer",
    }


    /// Staged copies beside direct ones that lose their bytes.
    ThroughHost {
        Intact: "copies through host memory arrive intact",
        Unchecked: "copies through host memory were not checked",
        Faster: "copies through host memory are faster",
    }

    /// A part for the service to look at; completes "have ... looked at".
    Served {
        Board: "the board that connects the GPUs",
        ModulesAndBoard: "the modules at both ends and their board",
        Tray: "the tray",
    }


    /// Why nothing is to be repaired; follows "nothing to repair".
    Fine {
        Always: "",
        BoardsRefuse: ": these boards copy through the host's memory, or over an NVLink bridge where they take one",
        ForCopies: " for copies between these GPUs; network adapters that write into GPUs below the same switch (GPUDirect RDMA) gain from ACS switched off in BIOS",
        GpusDiffer: " where the GPUs differ or are not made for it; compare their models",
        IfFull: " if a check that copies over this link reaches its full rate (peerscope check): ports lower their generation at rest to save power",
        IfHidden: " if this is a container that was given some of the GPUs",
        IfMeant: " if this was meant",
        IfRefused: " if the driver refuses it for these boards",
        IfReached: " where other machines of this kind reach as much: plan collective operations with this rate",
        IfWired: " if the machine's specification has no more links, or no bridge",
        MpsWantsIt: " while the MPS daemon of this machine is to share the GPUs: it wants this mode",
    }
}

choices! {
    /// Parts that links or GPUs share; completes "look for what they share before single GPUs".
    SharedParts {
        AbovePort: "the link above this port, its cable, and the power of the board that holds them",
        Risers: "risers, cables or a backplane of one kind, or made for a lower generation",
        Slots: "the BIOS version, and its settings that split slots or cap their generation; extenders of one lane (PCIe x1 risers); only then risers, cables or a backplane of one kind",
    }
}

impl Argument for Ask {}
impl Argument for Work {}
impl Argument for ThroughHost {}
impl Argument for Served {}
impl Argument for Fine {}

impl Argument for SharedParts {
    fn about(&self, mut step: Step) -> Step {
        if *self != Self::AbovePort {
            step.parts.push("riser".into());
        }
        step
    }
}
