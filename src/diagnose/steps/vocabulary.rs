//! Every step of the rules: its arguments, its identifier, its class and its words.

use super::arguments::*;

model::steps! {
    // To check again.
    CheckWithPeerscope => "peerscope-check" Repeat
        "run 'peerscope check' on the machine";
    GiveOutput(commands: String) => "more-output" Investigate "add the output of {commands}";
    AsExplained(advice: String) => "as-explained" Investigate "{advice}";
    ReadLines => "read-lines" Investigate
        "read these lines: some may be errors of the machine; leave out only what no tool printed";
    GiveOneMachine => "one-machine" Investigate
        "give output of one machine only, printed at one time: print all of it again with scripts/collect";
    CheckAgain => "check-again" Repeat "check again";
    CheckOften => "check-again" Repeat
        "check again several times, and with --serial to compare: a sound machine never does this";
    CheckIdle => "check-again-idle" Repeat "check again with the machine and its host idle";
    CheckOthersIdle => "check-again-idle" Repeat "check again with the other GPUs at rest (--gpus)";
    CheckGovernor => "check-again-idle" Repeat "check again with the host idle and its processors' governor on performance";
    CheckAlone(gpus: All) => "check-alone" Repeat "check {gpus} alone (--gpus)";
    CheckAloneThenAll => "check-alone" Repeat "check one of these GPUs alone (--gpus), then all at once";
    CheckOtherSwitch => "check-alone" Repeat "check a pair below another switch (--gpus)";
    CheckOthers(gpus: All) => "check-alone" Repeat "check the other GPUs alone (--gpus {gpus:#})";
    CheckSubsets => "check-subsets" Repeat "check subsets of the GPUs (--gpus) to find which ones cause it";
    CheckFull => "longer-profile" Repeat
        "check with --profile full, which measures more patterns, every NUMA node, and takes more samples";
    CheckOneLink => "longer-profile" Repeat "run two flows that pass this link and not the others (--profile full)";
    CheckStandardCounters => "longer-profile" Repeat
        "check with --profile standard, which copies fewer bytes around the counters";
    CheckAsExpected => "longer-profile" Repeat
        "check with the profile of the report that the expectations were made from, without --only and --skip";
    CheckAllStandard => "longer-profile" Repeat "check all GPUs with --profile standard";
    CheckAsBaseline => "longer-profile" Repeat
        "give a report of the same machine, measured with the same profile (--profile, --gpus)";
    CheckWithHost => "ask-for-more" Repeat
        "to measure copies with the host, check without --only and --skip, or with --only host";
    CheckAfterJob => "check-after-job" Repeat
        "when the job has ended, run 'peerscope check --profile full', which measures each link and clock by itself";
    WatchJob => "watch-job" Repeat "start the job, then watch it while it runs";
    CheckLess => "ask-for-less" Repeat "ask for less with --gpus, --only or --skip";
    CheckInTurn => "check-in-turn" Repeat "check again when the other one has ended, or let this one wait with --wait";
    CheckOnHost => "check-on-host" Repeat
        "run the check on the host, or in a container that has all GPUs";
    CheckInGuest => "check-in-guest" Repeat "check them from within the virtual machine";
    CheckUnderLoad => "check-under-load" Repeat
        "run 'peerscope check' (profile standard), which copies over this link, or read it while something is copied \
         (lspci -vv, LnkSta): some ports show fewer lanes at rest than they have";
    CheckAdapterBusy => "check-under-load" Repeat "read it again while the adapter is busy (lspci -vvv, LnkSta)";
    CheckEachNode => "check-each-node" Repeat
        "run the check under numactl --cpunodebind=N --membind=N for each node and compare";
    RunAsRoot => "run-as-root" Repeat "run the check as root, which sees whether ACS redirects";
    WholeReport => "whole-report" Repeat "get the report as check wrote it, with all rows, or check again";
    ComparePaths => "compare" Investigate "compare with the staged copies of the same pair, which do not need it";

    // To read a log.
    Xid => "xid" Investigate "look for Xid messages (dmesg | grep -i xid)";
    XidOf(codes: &'static str) => "xid" Investigate "look for Xid {codes} (dmesg | grep -i xid)";
    DriverLog => "xid" Investigate "look for the driver's messages (dmesg | grep -iE 'nvrm|xid')";
    DriverLogOf(at: At) => "xid" Investigate
        "look for {at} in dmesg (grep -iE 'nvrm|xid': RmInitAdapter failed, Xid 79)";
    StartLog => "driver-log" Investigate "see what the driver writes when it starts (dmesg | grep -i nvrm)";
    StartLogOf(at: At) => "driver-log" Investigate
        "look for {at} in dmesg (grep -i nvrm): \"probe routine failed\" is a GPU that does not start, \"not supported\" \
         is a board that this version of the driver does not serve";
    NvLinkLog => "nvlink-log" Investigate
        "look for NVLinks, and for NVSwitches that are missing (dmesg | grep -iE 'nvlink|nvswitch|sxid'; lspci lists them)";
    AerLog => "aer" Investigate "look for AER messages (dmesg | grep -iE 'aer|pcie')";
    CrashLog => "crash-log" Investigate "look for the process in dmesg (segfault)";
    IommuLog(told: String) => "iommu-log" Investigate
        "see why {told} does not hold for these devices (dmesg | grep -iE 'iommu|dmar|amd-vi'; the firmware may demand translation, or \
         the group's type was changed in /sys/kernel/iommu_groups)";
    EdacLog => "edac" Investigate "look for memory errors of the host (EDAC)";
    Bmc => "bmc" Investigate "look in the log of the management controller (BMC)";

    // To read a counter or a state.
    LinkErrors => "link-errors" Investigate "look at the error counters of the NVLinks (nvidia-smi nvlink -e)";
    LinkErrorsOf(gpu: OneOf) => "link-errors" Investigate
        "see whether the same links of {gpu} count again (nvidia-smi nvlink -e -i {gpu:#})";
    LinkTrafficAround => "link-traffic" Investigate
        "compare nvidia-smi nvlink -gt d before and after a check of these GPUs (--gpus)";
    LinkStates => "link-state" Investigate "look at the states of the NVLinks (nvidia-smi nvlink -s)";
    PcieErrors => "pcie-errors" Investigate
        "look at the error counters of the links on the way before and after a check of these GPUs (lspci -vvv)";
    PcieErrorsOf(gpu: OneOf) => "pcie-errors" Investigate
        "look at the error counters of the PCIe link of {gpu} (replays in nvidia-smi -q, AER in lspci -vvv)";
    Retraining => "retraining" Investigate
        "look for a link that retrains or replays: its counters before and after the check, and dmesg | grep -iE \
         'aer|pcie|xid'";
    Clocks => "clocks" Investigate "look for throttled clocks (nvidia-smi -q -d CLOCK,PERFORMANCE)";
    MemoryRows => "memory-rows" Investigate "look for memory rows that were remapped (nvidia-smi -q -d ROW_REMAPPER,ECC)";
    Cooling => "cooling" Investigate
        "look at temperatures and fans (nvidia-smi -q -d TEMPERATURE,PERFORMANCE), air filters, blanking plates and the \
         room's temperature";
    PowerSupply => "power-supply" Investigate
        "look at the power supplies (ipmitool sdr type \"Power Supply\") and the power draw (nvidia-smi -q -d POWER)";
    ServerPower => "power-management" Investigate
        "look at the power limit and the power profile of the server, in BIOS and in its management controller (BMC): they \
         may throttle all GPUs at once";
    LookAtIommu => "look-at-iommu" Investigate
        "look whether the IOMMU translates (cat /sys/kernel/iommu_groups/*/type: DMA or DMA-FQ; iommu=pt ends that)";
    FabricManager => "fabric-manager" Investigate
        "see systemctl status nvidia-fabricmanager and its log where the NVSwitches are; its version must be exactly the \
        driver's";
    Partitions => "restart-fabric-manager" ChangeSetting
        "look at the partitions in the fabric manager's configuration and restart it";
    FabricTrays => "switch-trays" Investigate
        "look at the cables of this tray and at the switch trays of the rack, where the fabric manager of such a machine \
        runs, and compare with other trays";
    TestMemory => "test-memory" Investigate "test the memory of each GPU by itself (memtest_vulkan, cuda_memtest)";
    RunDcgm => "dcgm" Investigate "run dcgmi diag -r 3";
    MemoryModules => "memory-modules" Investigate
        "see that every memory channel of the host is fitted (dmidecode -t memory)";
    Bus => "lspci" Investigate "see what the bus shows (lspci -d 10de:)";
    AdapterBus => "lspci" Investigate
        "see whether the bus shows an adapter that no driver has (lspci -nn | grep -iE 'infiniband|ethernet'; rdma link)";
    SubnetManager => "subnet-manager" Investigate
        "see whether a subnet manager runs on this network (sminfo; journalctl -u opensm where it runs)";
    DeviceFile => "device-file" Investigate
        "on the host, see whether the device file is there (ls -l /dev/nvidia*; nvidia-modprobe -c makes one)";
    Driver => "smoke-test" Investigate "see whether nvidia-smi and any CUDA program work";
    Container => "container" Investigate
        "in a container, see whether it has access to the GPUs, and whether the image brings NVIDIA libraries of its own";
    Dkms => "dkms" Investigate "see whether DKMS built the module (dkms status)";
    MigMode => "mig-mode" Investigate "look for a vGPU or MIG instance (nvidia-smi)";
    Modes => "modes" Investigate "compare MIG and compute modes of both GPUs (nvidia-smi -q)";
    Bar1 => "bar1" Investigate "compare the sizes of the BAR1 windows (nvidia-smi -q)";
    PlaceOf(gpu: OneOf) => "compare-places" Investigate
        "compare {gpu} with others that have access: the switch or processor that it is connected to, and the ACS and \
         IOMMU settings of the bridges above it (lspci -vvv)";
    PeerToPeerWords => "compare-places" Investigate
        "look at ACS and IOMMU settings and at nvidia-smi topo -p2p r";
    WhoHasIt(driver: String, at: At) => "bound-driver" Investigate "see why {driver} is bound to {at} (lspci -k -s {at})";

    // To compare or to find out.
    OtherFindings(gpus: All) => "other-findings" Investigate "see the other findings on {gpus} for the cause";
    FindingOf(rule: &'static str) => "other-findings" Investigate "see {rule} for the cause";
    CompareAlike => "compare" Investigate "compare with a machine of the same kind";
    CompareOrdered => "expectation" Investigate "compare with what was ordered (peerscope topo --verbose)";
    CompareExpected => "expectation" Investigate
        "compare with the machine that the expectations were made from";
    CompareBaseline => "compare" Investigate
        "compare driver, BIOS settings (IOMMU, ACS) and the places of the cards with the earlier report";
    CompareDriver => "compare" Investigate
        "compare with the same driver version on another machine, and with patches to the driver that force peer access";
    WhatWasDone => "history" Investigate "ask what was done to the machine since";
    RemoveReason => "remove-reason" Investigate "remove the reason";
    EditedReport => "edited-report" Investigate "if this is a saved report, see whether it was edited";
    WhatIsShared(what: SharedParts) => "what-is-shared" Investigate
        "before single GPUs, look at what they share: {what}";
    SharedSlots(gpus: All) => "what-is-shared" Investigate
        "find in the board's manual what the slots of {gpus} share: an uplink of the chipset, or a board with several \
         slots";
    SharedHop => "pcie-switch" Investigate
        "check the cable, riser or switch board that these pairs share, and whether other traffic uses it";
    ChipsetSlot => "chipset-slot" Investigate
        "see whether one of the slots is the chipset's, whose uplink no link file shows (the board's manual)";
    Extenders => "extenders" Investigate "look at the extenders: a GPU in a slot of the board has all its lanes";
    ThreeBridges => "bridge-fitted" Investigate "see whether all three bridges are fitted";
    BridgesFitted(gpus: All) => "bridge-fitted" Investigate "see whether NVLink bridges should sit on {gpus}";
    BridgeMissing => "bridge-fitted" Investigate
        "open the machine and look; nothing to repair if the order has no bridge for this GPU";
    Processors => "processor" Investigate
        "look at the processors: their load, power saving, and the NUMA node that the check ran on";

    // Programs.
    Stop(work: Work) => "end-programs" ChangeProgram "stop {work}";
    EndProgramOn(gpus: All) => "end-programs" ChangeProgram
        "end the program that has {gpus}, or wait for its end (nvidia-smi lists it)";
    QuitMps => "quit-mps" ChangeProgram "end the MPS daemon if it is that (echo quit | nvidia-cuda-mps-control)";
    LookForVariables => "unset" ChangeProgram
        "look for CUDA_LAUNCH_BLOCKING and CUDA_DEVICE_MAX_CONNECTIONS in the environment";
    UnsetMask => "unset" ChangeProgram
        "to test all GPUs, unset CUDA_VISIBLE_DEVICES; to test the visible ones only, name them with --gpus";
    UnsetForOthers => "unset" ChangeProgram "unset them for programs that are slow with the same environment";
    UnsetNeedless => "unset" ChangeProgram
        "unset what nobody needs any more, and check with NCCL_DEBUG=INFO which transports NCCL uses";
    DisablePeers(host: ThroughHost) => "disable-peers" ChangeProgram
        "set NCCL_P2P_DISABLE=1 and use no peer access in other programs ({host})";
    NearPeersOnly(level: &'static str) => "near-peers-only" ChangeProgram
        "set NCCL_P2P_LEVEL={level} (nearer pairs are sound) and use no peer access beyond that in other programs";
    NoLl128 => "no-ll128" ChangeProgram "set NCCL_PROTO=^LL128, so that NCCL sends no lines of 128 bytes";
    ComputeAgain => "compute-again" ChangeProgram
        "do not trust what was computed from data that these GPUs exchanged";
    FewerGpus => "fewer-peers" ChangeProgram
        "give a process at most 9 GPUs (-g 8 of nccl-tests), or start a process for each GPU";
    FewerPeers => "fewer-peers" ChangeProgram
        "let programs enable access only for the pairs that they use, eight for each GPU";
    OneModel => "pair-alike" ChangeProgram "let programs that exchange data use GPUs of one model";
    ConnectedOnly => "pair-alike" ChangeProgram "let programs exchange data between GPUs that NVLinks connect";
    DeviceOrder => "device-order" ChangeProgram
        "set CUDA_DEVICE_ORDER=PCI_BUS_ID so that CUDA numbers GPUs as nvidia-smi does";
    NumaBind => "numa-bind" ChangeProgram
        "run each program on the NUMA node of its GPU (numactl --cpunodebind=N --membind=N; peerscope topo shows the nodes)";
    BindToNode(gpus: All, node: u32) => "numa-bind" ChangeProgram
        "run programs of {gpus} on NUMA node {node} (numactl --cpunodebind={node} --membind={node})";
    PinMemory => "pin-memory" ChangeProgram
        "pin buffers once and use them again (PyTorch: pin_memory=True, persistent_workers=True, non_blocking=True; CUDA: a \
         pool of cudaMallocHost buffers); for a single copy, do not pin";
    SpreadGpus => "spread-gpus" ChangeProgram
        "spread GPUs that work at the same time over links of their own where the board has them";
    CountOnSum => "plan-with-it" ChangeProgram "plan loading and saving with this sum";
    NewBaseline => "new-baseline" ChangeProgram "take the new report as the next baseline";
    ChangeExpectations => "change-expectations" ChangeProgram
        "take it out of the expectations if this kind of machine does not show it";

    // Settings, driver and firmware.
    PassThrough => "pass-through" ChangeSetting
        "boot with iommu=pt on the kernel's command line, or switch VT-d / AMD-Vi off in BIOS";
    IommuInFirmware => "iommu-in-firmware" ChangeSetting "switch VT-d / AMD-Vi off in BIOS where nothing needs it";
    ClearAcs(ports: AcsOf) => "clear-acs" ChangeSetting "switch ACS off in BIOS, or as root until the next boot: `{ports}`";
    OwnDriver => "own-driver" ChangeSetting
        "check again with NVIDIA's own driver, which refuses peer access on these boards";
    StockDriver => "own-driver" ChangeSetting
        "compare /proc/driver/nvidia/version with the version of libcuda.so.1; install NVIDIA's own driver";
    OneDriver => "one-driver" ChangeSetting
        "compare modinfo nvidia and nvidia-smi with the driver package: install one driver, kernel modules and libraries \
         of the same build, patched or not";
    OtherDriver => "other-driver" ChangeSetting "check again with another version of the driver";
    UpdateDriver => "update-driver" ChangeSetting "update the driver";
    UpdateBiosAndDriver => "update-firmware" ChangeSetting "update BIOS and driver";
    UpdateBios => "update-firmware" ChangeSetting "update the BIOS";
    UpdateHop => "update-firmware" ChangeSetting "update the firmware of the parts that it runs through";
    UpdateSwitch(ports: At) => "update-firmware" ChangeSetting "update the firmware of the switch at {ports}";
    UpdateFabric => "update-driver" ChangeSetting "update driver and fabric manager to one version";
    FirmwareBundle => "update-firmware" ChangeSetting
        "ask the manufacturer of the machine for the firmware bundle, and bring all GPUs of the model to one version";
    RestartFabricManager => "restart-fabric-manager" ChangeSetting
        "on a machine with NVSwitches, restart the fabric manager (systemctl restart nvidia-fabricmanager)";
    StartFabricManager => "start-fabric-manager" ChangeSetting
        "start the fabric manager, at every boot too (systemctl enable --now nvidia-fabricmanager; journalctl -u \
         nvidia-fabricmanager says why it ended)";
    PeerMemory => "peer-memory" ChangeSetting
        "load nvidia_peermem (modprobe nvidia-peermem; a line in /etc/modules-load.d for every boot), or use dma-buf: \
         NVIDIA's open kernel modules on Linux 5.12 or later";
    PortOn(adapter: String) => "port-on" ChangeSetting
        "switch the port on if it is to be used (mlxlink -d {adapter} --port_state UP; Ethernet: ip link set INTERFACE up)";
    LoadDriver => "bind-driver" ChangeSetting "load the driver where it is installed (modprobe nvidia)";
    BindDriver => "bind-driver" ChangeSetting "bind the nvidia driver instead";
    NoNouveau => "bind-driver" ChangeSetting
        "blacklist nouveau ('blacklist nouveau' and 'options nouveau modeset=0' in /etc/modprobe.d), write the initial \
         RAM disk again";
    KeepPowered(at: At) => "keep-powered" ChangeSetting
        "keep the kernel from switching it off (echo on > /sys/bus/pci/devices/{at}/power/control)";
    NvLinkDisabled => "module-parameter" ChangeSetting
        "see whether NVLink is disabled (NVreg_NvLinkDisable in /etc/modprobe.d and on the kernel's command line)";
    RegistryKey => "module-parameter" ChangeSetting
        "look for NVreg_RegistryDwords in /etc/modprobe.d and on the kernel's command line, and take out the key that \
         disables peer access";
    ExcludedGpus => "module-parameter" ChangeSetting "look for NVreg_ExcludedGpus in /etc/modprobe.d";
    DriverOptions => "module-parameter" ChangeSetting "look at the driver's options in /etc/modprobe.d";
    MigOff(gpus: All) => "mig-off" ChangeSetting
        "to exchange data with other GPUs, end all programs on {gpus} and switch MIG off (nvidia-smi -i {gpus:#} -mig 0)";
    DefaultComputeMode(gpus: All) => "default-compute-mode" ChangeSetting
        "let several programs use {gpus} (nvidia-smi -i {gpus:#} -c DEFAULT)";
    Persistence => "persistence" ChangeSetting
        "enable the daemon: systemctl enable --now nvidia-persistenced (or nvidia-smi -pm 1 until the next boot)";
    Limits => "limits" ChangeSetting
        "raise that limit for this process (ulimit as root; LimitNOFILE, LimitNPROC, LimitAS or TasksMax in a systemd \
         unit; --ulimit or --pids-limit of a container)";
    MemoryLimit => "limits" ChangeSetting
        "raise the limit (ulimit -l, LimitMEMLOCK= of systemd, --ulimit memlock=-1 and the memory of the container), or \
         free memory of the host";
    SharedMemoryRoom => "shared-memory-room" ChangeSetting
        "give /dev/shm more room (--shm-size of a container; mount -o remount,size=16G /dev/shm; an emptyDir of medium Memory \
         in Kubernetes)";
    OneIpcNamespace => "one-ipc-namespace" ChangeSetting
        "start the container in the host's IPC namespace (--ipc=host; hostIPC in Kubernetes)";
    SeccompProfile => "seccomp-profile" ChangeSetting
        "allow the calls that the seccomp profile of the container refuses (--security-opt seccomp=FILE)";
    ResizableBar(gpus: All, most: String, now: String) => "resizable-bar" ChangeSetting
        "switch on Resizable BAR in BIOS, with Above 4G Decoding: the BAR1 window of {gpus} could be {most}, and is {now}";
    LargerBar(gpus: All) => "resizable-bar" ChangeSetting
        "see whether Resizable BAR in BIOS, or a newer video BIOS, enlarges the BAR1 window of {gpus}";
    Above4G => "resizable-bar" ChangeSetting "look for Above 4G Decoding in BIOS";
    PatchedWindows => "resizable-bar" ChangeSetting
        "see whether the patched driver serves these GPUs: their BAR1 window must be as large as their memory \
         (nvidia-smi -q, Resizable BAR in BIOS)";
    Bifurcation => "bifurcation" ChangeSetting
        "compare the BIOS setting that splits the slot (bifurcation) with the board's manual and with that of a wide slot";
    SlotSpeed => "firmware-setting" ChangeSetting
        "set the slot's link speed in BIOS to Auto or to its highest generation";
    SlowerSlot => "firmware-setting" ChangeSetting "set the slot one generation lower in BIOS";
    MaxPayload => "firmware-setting" ChangeSetting
        "look for Max Payload Size in BIOS, or start the kernel with pci=pcie_bus_perf";
    ProcessorLinks => "firmware-setting" ChangeSetting
        "look in BIOS at speed and power saving of the links between the processors, and at what else crosses them";
    LowerPower => "power-limit" ChangeSetting "set a lower power limit (nvidia-smi -pl)";
    PowerSaving => "power-saving" ChangeSetting "check with idle processors and their power saving off";
    GuestClique => "ask-host" AskHost
        "look for x-nv-gpudirect-clique (QEMU) or a similar option in the configuration of the virtual machine";

    // To take a GPU out, to reset, to restart.
    OutOfService(gpus: All) => "out-of-service" TakeOut
        "take {gpus} out of service: what is computed there may be wrong";
    MachineOutOfService => "out-of-service" TakeOut
        "take the machine out of service: what is computed on it may be wrong";
    LeaveGpuOut(gpu: OneOf) => "leave-gpu-out" TakeOut "leave {gpu} out";
    ResetGpu(gpus: All) => "reset-gpu" ResetGpu
        "end all programs on {gpus} and reset (nvidia-smi --gpu-reset -i {gpus:#})";
    ResetGpuAt(gpus: All, at: At) => "reset-gpu" ResetGpu
        "end all programs on {gpus} and reset (nvidia-smi --gpu-reset -i {at})";
    ReloadDriver => "reload-driver" ResetGpu
        "reload the driver (modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia)";
    Reboot => "reboot" Reboot "reboot";
    PowerCycle => "power-cycle" PowerCycle "power the machine off and on again";
    RestartDock => "dock" PowerCycle "switch the dock off and on and plug its Thunderbolt cable in again";
    RestartGuest => "restart-guest" PowerCycle
        "shut this virtual machine down and start it again, which resets its GPUs";

    // Parts.
    Reseat(part: Part) => "reseat" Reseat "power off and reseat {part}";
    SlotContacts => "slot" Reseat "check the contacts of the slot";
    PowerCables(gpu: OneOf) => "power-cables" Reseat "check the power cables of {gpu}";
    NetworkCable(adapter: String) => "network-cable" Reseat
        "reseat the network cable of {adapter} with its transceivers at both ends, try another, and look at the switch's \
         port (mlxlink -d {adapter} -m)";
    CableAndDock => "cable" Reseat "check the cable, and the dock and its power";
    OtherSlot(gpu: OneOf) => "other-slot" Reseat "move {gpu} to another slot: there it is as fast as the others";
    WiderSlot(gpus: All) => "other-slot" Reseat "move {gpus} to a wider or newer slot, if the board has one";
    ProcessorSlot(gpu: OneOf) => "other-slot" Reseat
        "move {gpu} to a slot with a link of its own to the processor (see the board's manual, usually the topmost x16 slot)";
    NearSlots => "other-slot" Reseat "move the GPUs to slots of one processor or switch if they need it";
    BoardSlot => "other-slot" Reseat "put one of these GPUs into a slot of the board";
    LargerPayloadSlot(gpus: All, bytes: u32) => "other-slot" Reseat
        "put {gpus} into another slot if copies over PCIe matter: a port or device on the way can do no more than {bytes} \
         bytes";
    Swap(part: Part) => "swap" Exchange "swap {part} with another to see whether the fault moves";
    SwapTest(part: Part) => "swap" Exchange "swap {part} with another";
    Exchange(part: Part) => "exchange" Exchange "exchange {part}";
    Replace(part: Part) => "replace" Exchange "replace {part}";
    ReplaceMatching => "riser" Exchange "use a riser and cable made for that generation";

    // To ask.
    AskHost(what: Ask) => "ask-host" AskHost "ask whoever runs the host {what}";
    Service(part: Served) => "service" CallService "have {part} serviced";
    SendReport => "send-report" CallService "report it with the JSON report";

    // Nothing.
    Nothing(fine: Fine) => "nothing" None "nothing to repair{fine}";
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use model::step::Remedy;

    #[test]
    fn an_identifier_has_one_class() {
        let mut classes: BTreeMap<&str, Remedy> = BTreeMap::new();
        for (id, remedy) in STEPS {
            assert_eq!(classes.entry(id).or_insert(*remedy), remedy, "{id}");
        }
    }

    #[test]
    fn the_labels_name_steps() {
        let known: BTreeSet<&str> = STEPS.iter().map(|(id, _)| *id).collect();
        let parts = BTreeSet::from(crate::advice_steps::PARTS);
        let rows: toml::Table =
            toml::from_str(include_str!("../../../tests/machines/advice.toml")).unwrap();
        let mut unknown: BTreeMap<&str, &str> = BTreeMap::new();
        for row in rows["row"].as_array().unwrap() {
            for list in ["must", "may"] {
                let ids = row.get(list).and_then(|list| list.as_array());
                for id in ids.into_iter().flatten().filter_map(|id| id.as_str()) {
                    if !known.contains(id) && !parts.contains(id) {
                        unknown.insert(id, row["case"].as_str().unwrap());
                    }
                }
            }
        }
        assert!(unknown.is_empty(), "no such step: {unknown:?}");
    }
}
