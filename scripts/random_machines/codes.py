"""Codes of findings that name one kind of figure, and those that show the same fault once more."""

PEER = {"peer-bandwidth-low", "peer-bandwidth-outlier", "peer-bandwidth-asymmetric", "direct-slower-than-staged"}
LOAD = {"load-below-expected", "shared-hop-low"}
HOST = {"host-bandwidth-low", "host-bandwidth-below-siblings"}
PEER_EFFECTS = PEER | LOAD | {"both-ways-low", "peer-copy-uneven", "unstable-measurement", "latency-high", "gpu-shared", "not-explained", "placement-serialises", "not-tested"}
HOST_EFFECTS = HOST | {"staged-slow", "pinned-slower-than-pageable", "host-memory-far", "unstable-measurement", "not-explained"}
EFFECTS = PEER_EFFECTS | HOST_EFFECTS | {"pcie-upstream-bottleneck"}
GAPS = {"not-tested", "nothing-measured", "copy-failed-once", "load-copy-failed"}
