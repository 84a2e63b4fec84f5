//! Every step of the fleet's own findings: its arguments, its identifier, its class and its words.

model::steps! {
    // Figures.
    CompareNeighbour => "compare" Investigate
        "run 'peerscope check --profile full' on the node and compare its clocks, link errors and temperature with those of \
         a neighbour";
    LookAtPosition => "position" Investigate "look at what this position has of its own: slot, riser, cable, air flow";
    SwapPosition => "swap" Exchange
        "swap one GPU with that of another position and check again: the finding stays with the position";
    AskVendor => "compare-places" Investigate
        "the same slot is slow on most nodes, so it is the design, the firmware or the cabling of the model and no broken \
         part: compare its link with the other slots ('peerscope topo') and ask the vendor";
    LookAtShared => "what-is-shared" Investigate
        "look for the cause in what these nodes share before changing parts in each of them";

    // Facts.
    FindGpu => "missing-gpu" Investigate
        "look for the GPU that is not there: 'peerscope check' on the node, lspci, the kernel log";
    SameDriver => "update-driver" ChangeSetting "install the driver that the other nodes have";
    SameFirmware => "update-firmware" ChangeSetting
        "compare with the vendor's firmware list and update the odd nodes";
    CheckNode => "check-node" Repeat "run 'peerscope check' on the node: it names the link that is narrow";
    CompareNodes => "compare" Investigate
        "compare 'peerscope topo' of an odd node with that of another: links that are down, GPUs in other slots";

    // Reports.
    SeeNodes => "check-node" Repeat "see whether these nodes are up and whether the check ran there";
    CollectAgain => "whole-report" Repeat "collect these reports again; 'fleet --format json' lists all files";
    NameNodes => "name-nodes" ChangeSetting
        "give each machine a host name of its own; a node whose GPUs were all replaced is not meant: move its older \
         reports away";
}
