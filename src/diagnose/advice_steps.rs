//! Steps that a technician can be given, the words by which a text is recognised as containing them, and the comparison of
//! a finding with the steps that its facts want. Only tests use it, in two crates (tests/machines has it by path), so it
//! names nothing of this program.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

/// A step in the advice to a technician. Words that no other step has identify it in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step {
    DisablePeers,
    NearPeersOnly,
    LeaveGpuOut,
    OutOfService,
    PassThrough,
    LookAtIommu,
    ClearAcs,
    AskHost,
    RunAsRoot,
    OwnDriver,
    TestMemory,
    Swap,
    Reseat,
    Slot,
    Riser,
    Xid,
    PowerCycle,
    ReloadDriver,
    FabricManager,
    SwitchTrays,
    Extenders,
    Bifurcation,
    PcieSwitch,
    LinkErrors,
    Dock,
    Cable,
    Bmc,
    RestartGuest,
    PowerCables,
    WhatIsShared,
    Bar1,
    Retraining,
    CheckAgainIdle,
    BridgeFitted,
    EndPrograms,
    Unset,
    DefaultComputeMode,
    MigOff,
    Persistence,
    Reboot,
    UpdateFirmware,
    Cooling,
    PowerSupply,
    Replace,
    ResetGpu,
    OtherSlot,
    Limits,
    NumaBind,
    PinMemory,
    ReuseBuffer,
    SendReport,
    BindDriver,
    Lspci,
    MemoryModules,
    Nothing,
    Container,
    SideStreams,
    Expectation,
    NewBaseline,
    Processor,
    LongerProfile,
    IommuInFirmware,
    FirmwareSetting,
    ModuleParameter,
    QuitMps,
}

const WORDS: [(Step, &[&str]); 65] = [
    (Step::DisablePeers, &["NCCL_P2P_DISABLE=1"]),
    (Step::NearPeersOnly, &["NCCL_P2P_LEVEL="]),
    (Step::LeaveGpuOut, &["or leave GPU"]),
    (Step::OutOfService, &["out of service"]),
    (
        Step::PassThrough,
        &[
            "boot with iommu=pt",
            "Boot with iommu=pt",
            "boot once with iommu=pt",
            "pass-through (iommu=pt)",
            "set iommu=pt",
        ],
    ),
    (Step::LookAtIommu, &["look whether the IOMMU translates"]),
    (Step::ClearAcs, &["setpci"]),
    (
        Step::AskHost,
        &["whoever runs the host", "whoever runs its host"],
    ),
    (Step::RunAsRoot, &["run the check as root"]),
    (Step::OwnDriver, &["NVIDIA's own driver"]),
    (Step::TestMemory, &["memory test", "test the memory"]),
    (Step::Swap, &["swap "]),
    (Step::Reseat, &["eseat"]),
    (Step::Slot, &["the slot", "slot,"]),
    (Step::Riser, &["riser"]),
    (Step::Xid, &["Xid", "nvrm|xid"]),
    (Step::PowerCycle, &["ower-cycle"]),
    (Step::ReloadDriver, &["eload the driver"]),
    (
        Step::FabricManager,
        &["systemctl status nvidia-fabricmanager"],
    ),
    (Step::SwitchTrays, &["switch trays"]),
    (Step::Extenders, &["extender"]),
    (Step::Bifurcation, &["bifurcation", "splits the slot"]),
    (
        Step::PcieSwitch,
        &[
            "PCIe switch",
            "switch board",
            "of switch and board",
            "switch's arbitration",
            "pass one uplink",
        ],
    ),
    (Step::LinkErrors, &["nvlink -e"]),
    (Step::Dock, &["dock"]),
    (Step::Cable, &["try another cable"]),
    (Step::Bmc, &["management controller"]),
    (Step::RestartGuest, &["Shut this virtual machine down"]),
    (Step::PowerCables, &["power cables"]),
    (
        Step::WhatIsShared,
        &[
            "what these GPUs share",
            "what these links share",
            "what the slots of",
        ],
    ),
    (Step::Bar1, &["BAR1"]),
    (Step::Retraining, &["retrains"]),
    (
        Step::CheckAgainIdle,
        &["the machine idle", "top other work on the machine"],
    ),
    (Step::BridgeFitted, &["bridges are fitted"]),
    (
        Step::EndPrograms,
        &[
            "nd the other program",
            "nd the program",
            "nd the processes",
            "nd all programs",
            "top the program",
            "top them",
            "top other work",
            "other work on the GPUs",
            "no other program",
        ],
    ),
    (Step::Unset, &["nset ", "in the environment"]),
    (Step::DefaultComputeMode, &["-c 0", "-c DEFAULT"]),
    (Step::MigOff, &["-mig 0"]),
    (Step::Persistence, &["nvidia-persistenced", "-pm 1"]),
    (Step::Reboot, &["eboot"]),
    (
        Step::UpdateFirmware,
        &["firmware bundle", "one version: a guest cannot"],
    ),
    (Step::Cooling, &["airflow", "fans", "cooling"]),
    (
        Step::PowerSupply,
        &["power supply", "power limit", "power brake"],
    ),
    (
        Step::Replace,
        &[
            "eplace the GPU",
            "eplace it",
            "then replace",
            "and replace what",
            "reseat or replace",
        ],
    ),
    (Step::ResetGpu, &["gpu-reset", "eset the GPU", "eset it"]),
    (
        Step::OtherSlot,
        &[
            "to another slot",
            " move the GPU to",
            "Move the GPU to",
            "move the GPU there",
            " move it to a slot",
            "move a GPU to a slot",
        ],
    ),
    (Step::Limits, &["ulimit", "raise the limit"]),
    (Step::NumaBind, &["numactl"]),
    (Step::PinMemory, &["pinned buffers", "page-locked buffers"]),
    (
        Step::ReuseBuffer,
        &["allocated once", "use them again", "re-use"],
    ),
    (Step::SendReport, &["report it"]),
    (
        Step::BindDriver,
        &[
            "nouveau",
            "driver_override",
            "modprobe nvidia",
            "Load the driver",
        ],
    ),
    (Step::Lspci, &["lspci -d"]),
    (Step::MemoryModules, &["memory channel"]),
    (
        Step::Nothing,
        &["othing to do", "othing to repair", "othing hinders"],
    ),
    (Step::Container, &["container"]),
    (Step::SideStreams, &["side stream", "default stream"]),
    (Step::Expectation, &["what was ordered", "the expectation"]),
    (Step::NewBaseline, &["baseline"]),
    (
        Step::Processor,
        &[
            "processors idle",
            "Look at the processors",
            "overcommitted",
            "are pinned",
        ],
    ),
    (Step::LongerProfile, &["--profile"]),
    (Step::IommuInFirmware, &["switch VT-d / AMD-Vi off in BIOS"]),
    (
        Step::FirmwareSetting,
        &[
            "Max Payload Size in BIOS",
            "Above 4G",
            "speed and power saving",
        ],
    ),
    (Step::ModuleParameter, &["NVreg_"]),
    (Step::QuitMps, &["nvidia-cuda-mps-control"]),
];

/// The steps that this text has.
fn steps_in(text: &str) -> BTreeSet<Step> {
    WORDS
        .iter()
        .filter(|(_, words)| words.iter().any(|words| text.contains(words)))
        .map(|(step, _)| *step)
        .collect()
}

/// Compares the next step and the suspects of a finding, in the form of the report, with the steps that must and may be
/// in them; all others must not. Returns a complaint.
pub(crate) fn wrong_advice(finding: &Value, must: &[Step], may: &[Step]) -> Option<String> {
    let suspects = finding["suspects"].as_array().into_iter().flatten();
    let suspects = suspects.flat_map(|suspect| [&suspect["cause"], &suspect["test"]]);
    let parts = std::iter::once(&finding["next_step"]).chain(suspects);
    let text = parts
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(" | ");
    let steps = steps_in(&text);
    let missing: Vec<_> = must.iter().filter(|step| !steps.contains(step)).collect();
    let wrong: Vec<_> = steps
        .iter()
        .filter(|step| !must.contains(step) && !may.contains(step))
        .collect();
    (!missing.is_empty() || !wrong.is_empty()).then(|| {
        format!(
            "advice of {}: lacks {missing:?}, must not have {wrong:?}: {text}",
            finding["code"]
        )
    })
}
