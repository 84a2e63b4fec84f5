//! Short samples in the forms that tools print, written for the tests.

/// `nvidia-smi topo -m` of four GPUs with direct NVLinks in pairs.
pub(crate) const TOPO: &str = "\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV4\tSYS\tSYS\tPIX\t0-15,32-47\t0\t\tN/A
GPU1\tNV4\t X \tSYS\tSYS\tNODE\t0-15,32-47\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tNV4\tSYS\t16-31,48-63\t1\t\tN/A
GPU3\tSYS\tSYS\tNV4\t X \tSYS\t16-31,48-63\t1\t\tN/A
NIC0\tPIX\tNODE\tSYS\tSYS\t X

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks
";

pub(crate) const P2P: &str = "\
root@node:~# nvidia-smi topo -p2p r
 \tGPU0\tGPU1\t
 GPU0\tX\tOK\t
 GPU1\tCNS\tX\t

root@node:~# nvidia-smi topo -p2p w
 \tGPU0\tGPU1\t
 GPU0\tX\tOK\t
 GPU1\tOK\tX\t
";

pub(crate) const NVLINK: &str = "\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a1b2c3d4-0000-0000-0000-000000000001)
\t Link 0: 25 GB/s
\t Link 1: <inactive>
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-a1b2c3d4-0000-0000-0000-000000000002)
\t Link 0: 25 GB/s
\t Link 1: 25 GB/s
$ nvidia-smi nvlink -e
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a1b2c3d4-0000-0000-0000-000000000001)
\t Link 0: Replay Errors: 7
\t Link 0: Recovery Errors: 1
\t Link 0: CRC Errors: 12
";

pub(crate) const QUERY: &str = "\
==============NVSMI LOG==============

Timestamp                                 : Tue Nov 24 03:00:00 2026
Driver Version                            : 580.65.06
CUDA Version                              : 13.0

Attached GPUs                             : 2
GPU 00000000:3B:00.0
    Product Name                          : NVIDIA A40
    Product Architecture                  : Ampere
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    Serial Number                         : N/A
    GPU UUID                              : GPU-11111111-0000-0000-0000-000000000000
    VBIOS Version                         : 94.02.5C.00.05
    GPU Virtualization Mode
        Virtualization Mode               : None
    PCI
        Bus                               : 0x3B
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 1
                Device Current            : 1
                Device Max                : 4
                Host Max                  : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
        Replays Since Reset               : 3
    Performance State                     : P8
    Clocks Event Reasons
        Idle                              : Active
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
    FB Memory Usage
        Total                             : 46068 MiB
        Free                              : 45000 MiB
    Compute Mode                          : Default
    Remapped Rows
        Correctable Error                 : 1
        Uncorrectable Error               : 2
        Pending                           : Yes
        Remapping Failure Occurred        : No
    Temperature
        GPU Current Temp                  : 34 C
    Clocks
        Graphics                          : 210 MHz
        SM                                : 210 MHz
        Memory                            : 405 MHz
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4711
            Type                          : C
            Used GPU Memory               : 1024 MiB

GPU 00000000:5E:00.0
    Product Name                          : NVIDIA A40
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 4
            Link Width
                Max                       : 16x
                Current                   : 16x
";

pub(crate) const TABLE: &str = "\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|=========================================+========================+======================|
|   0  NVIDIA A40                     On  |   00000000:3B:00.0 Off |                    0 |
|  0%   34C    P8             21W /  300W |       4MiB /  46068MiB |      0%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA A40                     Off |   00000000:5E:00.0 Off |                    0 |
|  0%   35C    P0             70W /  300W |       4MiB /  46068MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
";

pub(crate) const CSV: &str = "\
index, name, pci.bus_id, pcie.link.gen.current, pcie.link.width.current, pcie.link.width.max, memory.total [MiB]
0, NVIDIA A40, 00000000:3B:00.0, 1, 8, 16, 46068 MiB
1, NVIDIA A40, 00000000:5E:00.0, 4, 16, 16, 46068 MiB
";

pub(crate) const NVBANDWIDTH: &str = "\
nvbandwidth Version: v0.8
Built from Git version: v0.8

CUDA Runtime Version: 12080
CUDA Driver Version: 12080
Driver Version: 580.65.06

Device 0: NVIDIA A40 (00000000:3b:00)
Device 1: NVIDIA A40 (00000000:5e:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     26.10     25.90

SUM host_to_device_memcpy_ce 52.00

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       N/A     20.01
 1     20.10       N/A

SUM device_to_device_memcpy_read_ce 40.11

Running device_to_device_memcpy_write_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0       N/A     21.01
 1     21.10       N/A

SUM device_to_device_memcpy_write_ce 42.11

Running device_to_device_bidirectional_memcpy_write_ce.
memcpy CE GPU(row) <-> GPU(column) Write1 bandwidth (GB/s)
           0         1
 0       N/A     17.00
 1     17.00       N/A

memcpy CE GPU(row) <-> GPU(column) Write2 bandwidth (GB/s)
           0         1
 0       N/A     16.00
 1     16.00       N/A

memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)
           0         1
 0       N/A     33.00
 1     33.00       N/A
";

pub(crate) const LSPCI: &str = "\
3a:01.0 PCI bridge [0604]: Intel Corporation Device [8086:352a] (rev 04) (prog-if 00 [Normal decode])
\tNUMA node: 0
\tBus: primary=3a, secondary=3b, subordinate=3b, sec-latency=0
\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00
\t\tDevCap:\tMaxPayload 512 bytes, PhantFunc 0
\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes
\t\tLnkCap:\tPort #5, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s (downgraded), Width x8 (downgraded)
\tCapabilities: [100 v1] Access Control Services
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-

3b:00.0 3D controller [0302]: NVIDIA Corporation GA102GL [A40] [10de:2235] (rev a1)
\tPhysical Slot: 4
\tNUMA node: 0
\tIOMMU group: 17
\tCapabilities: [78] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s, Width x8 (downgraded)
\tKernel driver in use: nvidia
";

pub(crate) const KERNEL: &str = "\
[    0.000000] Linux version 6.8.0-45-generic (buildd@lcy02) (gcc 13.2.0)
[    0.000000] Command line: BOOT_IMAGE=/vmlinuz root=/dev/sda1 intel_iommu=on iommu=pt quiet
[    0.512345] iommu: Default domain type: Translated
[    1.000000] pci 0000:3b:00.0: Adding to iommu group 17
[   20.100000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 07:00:00 UTC 2025
[ 5000.200000] pcieport 0000:3a:01.0: AER: Corrected error message received from 0000:3b:00.0
[ 5000.200010] nvidia 0000:3b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)
[ 7200.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
Nov 24 03:00:00 node kernel: NVRM: Xid (PCI:0000:5e:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error
[ 7300.000000] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22013, Non-fatal, Link 62 Minion Link DLREQ interrupt
";

pub(crate) const NCCL: &str = "\
node:100:100 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
NCCL version 2.21.5+cuda12.4
node:100:120 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to NVL.
node:100:120 [0] NCCL INFO comm 0x55 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 3b000 commId 0x1 - Init START
node:101:121 [1] NCCL INFO comm 0x56 rank 1 nranks 2 cudaDev 0 nvmlDev 1 busId 5e000 commId 0x1 - Init START
node:100:120 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
node:101:121 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct
node:101:121 [1] transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'
";

pub(crate) const NCCL_TESTS: &str = "\
# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid   4711 on       node device  0 [0x3b] NVIDIA A40
#  Rank  1 Group  0 Pid   4711 on       node device  1 [0x5e] NVIDIA A40
#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    10.10    0.00    0.00      0    10.00    0.00    0.00      0
   134217728      33554432     float     sum      -1  11000.0   12.20   12.20      0  11010.0   12.19   12.19      3
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 6.1
";

pub(crate) const SIMPLE_P2P: &str = "\
Checking GPU(s) for support of peer to peer memory access...
> Peer access from NVIDIA A40 (GPU0) -> NVIDIA A40 (GPU1) : Yes
> Peer access from NVIDIA A40 (GPU1) -> NVIDIA A40 (GPU0) : No
Enabling peer access between GPU0 and GPU1...
cudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: 12.50GB/s
Preparing host buffer and memcpy to GPU0...
Copy data back to host from GPU0 and verify results...
Verification error @ element 1: val = 0.000000, ref = 4.000000
Test failed!
";

pub(crate) const BANDWIDTH_TEST: &str = "\
[CUDA Bandwidth Test] - Starting...
Running on...

 Device 0: NVIDIA A40
 Quick Mode

 Host to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)\tBandwidth(MB/s)
   33554432\t\t\t12000.0

 Device to Host Bandwidth, 1 Device(s)
 PAGEABLE Memory Transfers
   Transfer Size (Bytes)\tBandwidth(GB/s)
   32000000\t\t\t6.5

Result = PASS
";

/// p2pBandwidthLatencyTest of three GPUs.
pub(crate) const P2P_BANDWIDTH: &str = "\
[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
Device: 0, NVIDIA A40, pciBusID: 3b, pciDeviceID: 0, pciDomainID:0
Device: 1, NVIDIA A40, pciBusID: 5e, pciDeviceID: 0, pciDomainID:0
Device: 2, NVIDIA A40, pciBusID: af, pciDeviceID: 0, pciDomainID:0
Device=0 CAN Access Peer Device=1
Device=0 CANNOT Access Peer Device=2
Device=1 CAN Access Peer Device=0
P2P Connectivity Matrix
     D\\D     0     1     2
     0\t     1     1     0
     1\t     1     1     1
     2\t     0     1     1
Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)
   D\\D     0      1      2 
     0 500.00   9.50   9.60 
     1   9.70 500.00   9.80 
     2   9.90   9.10 500.00 
Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D     0      1      2 
     0 600.00  20.50   9.60 
     1  20.70 600.00  20.80 
     2   9.90  20.10 600.00 
Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)
   D\\D     0      1      2 
     0 600.00  40.00   9.60 
     1  42.00 600.00  40.80 
     2   9.90  40.10 600.00 
P2P=Enabled Latency (P2P Writes) Matrix (us)
   GPU     0      1      2 
     0   1.50   2.50  15.00 
     1   2.60   1.50   2.70 
     2  15.00   2.80   1.50 

   CPU     0      1      2 
     0   3.00   2.00   6.00 
     1   2.00   3.00   2.00 
     2   6.00   2.00   3.00 
";

/// Error counters as newer drivers print them: links without errors together, and the counters of NVLink 5.
pub(crate) const NVLINK_ERRORS: &str = "\
GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-a1b2c3d4-0000-0000-0000-000000000001)
\t Link 0: CRC Errors: 88
\t Links 1-5: No errors
GPU 1: NVIDIA B200 (UUID: GPU-a1b2c3d4-0000-0000-0000-000000000002)
\t Link 0: Malformed packet Errors: 0
\t Link 0: Tx discards: 0
\t Link 0: Link recovery successful events: 2
\t Link 0: Effective BER: 15e-255
\t Link 1: Malformed packet Errors: 0
$ exit
";

/// All samples.
pub(crate) const ALL: &[(&str, &str)] = &[
    ("smi-topo", TOPO),
    ("smi-p2p-read", P2P),
    ("smi-nvlink", NVLINK),
    ("smi-nvlink-errors", NVLINK_ERRORS),
    ("smi-query", QUERY),
    ("smi-table", TABLE),
    ("smi-csv", CSV),
    ("nvbandwidth", NVBANDWIDTH),
    ("lspci", LSPCI),
    ("kernel-log", KERNEL),
    ("nccl-log", NCCL),
    ("nccl-tests", NCCL_TESTS),
    ("simple-p2p", SIMPLE_P2P),
    ("bandwidth-test", BANDWIDTH_TEST),
    ("p2p-bandwidth", P2P_BANDWIDTH),
];
