"""Codes of findings that name one kind of figure, and those that show the same fault once more."""

PEER = {"peer-bandwidth-low", "peer-bandwidth-outlier", "peer-bandwidth-asymmetric", "direct-slower-than-staged"}
LOAD = {"load-below-expected", "load-below-expected as error", "shared-hop-low"}
HOST = {"host-bandwidth-low", "host-bandwidth-below-siblings"}
PEER_EFFECTS = PEER | LOAD | {"both-ways-low", "peer-copy-uneven", "unstable-measurement", "latency-high", "gpu-shared", "not-explained", "placement-serialises", "not-tested"}
HOST_EFFECTS = HOST | {"staged-slow", "pinned-slower-than-pageable", "host-memory-far", "unstable-measurement", "not-explained"}
EFFECTS = PEER_EFFECTS | HOST_EFFECTS | {"pcie-upstream-bottleneck"}
GAPS = {"not-tested", "nothing-measured", "copy-failed-once", "copy-failed at once"}


def code_of(row):
    """The code of a finding, with its place where one code has several: copies of pairs, with the host, and several flows at once."""
    code, evidence, kind = row["code"], row.get("evidence", {}), row["subject"]["kind"]
    if code == "load-below-expected" and row["severity"] == "error":
        return f"{code} as error"
    if code == "peer-access-missing" and "while the other direction has it" in row["message"]:
        return f"{code} one way"
    if code not in ("data-wrong", "copy-failed"):
        return code
    if "pattern" in evidence:
        return f"{code} at once"
    if "pairs" in evidence:
        return code
    return f"{code} with the host" if kind == "gpu" or "copies_dropped" in evidence else f"{code} at once"
