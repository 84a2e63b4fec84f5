"""Faults, each with the codes whose pages (docs/rules) fit it, its parts, and whether a register or a figure shows it."""

import copy

from field_machines.description import LOCAL, gbps, least

PAIRS = {"peer-bandwidth-low", "peer-bandwidth-outlier"}
HOST = {"host-bandwidth-low", "host-bandwidth-below-siblings"}
# What a part that is slow lowers beside what names it.
SLOW = PAIRS | HOST | {
    "peer-bandwidth-asymmetric", "peer-copy-uneven", "direct-slower-than-staged", "staged-slow", "both-ways-low", "shared-hop-low",
    "load-below-expected", "pinned-slower-than-pageable", "pcie-upstream-bottleneck", "unstable-measurement", "latency-high",
    "live-latency-high", "placement-serialises", "copy-engines-fewer", "host-memory-far", "not-explained", "not-tested"}
DATA = {"data-wrong", "peer-access-broken", "live-memory-broken", "memory-window-broken", "copy-failed", "not-tested"}
# The least share of the theoretical rate that healthy machines reach: docs/rules/README.md.
FLOORS = {"2.0": 0.85, "3.0": 0.78, "3.1": 0.78, "4.0": 0.73, "5.0": 0.71, "switch": 0.72, "root": 0.59, "node": 0.59, "far": 0.39, "host": 0.68}


class Fault:
    def __init__(self, kind, codes, gpus=(), pairs=(), addresses=(), effects=SLOW, reach=None, whole=False, figure=None, state="visible"):
        self.kind, self.codes, self.effects, self.whole = kind, set(codes), set(effects) | set(codes), whole
        self.gpus, self.pairs, self.addresses = set(gpus), {frozenset(pair) for pair in pairs}, set(addresses)
        self.reach = set(reach if reach is not None else self.gpus)  # GPUs whose figures it lowers
        self.figure, self.state = figure, state  # figure: ("pairs", pairs, share) or ("host", GPUs, share)


def own(m, gpu):
    """A GPU and everything that is its own on the way up: what a finding on it may name."""
    mine = m.addresses(gpu)
    for other in range(len(m)):
        if other != gpu:
            mine -= m.addresses(other)
    return mine


def touching(m, gpu, nvlink):
    return [pair for pair in m.pairs(nvlink) if gpu in pair]


def slow(m, pairs, share, **where):
    for a, b in pairs:
        m.fault("pairs", {"pairs": {"both": [a, b]}, "fault": {"slow": {"share": share}}, **where})


# PCIe


def riser_narrow(r, m, gpu):
    """A riser or a card half in its slot: fewer lanes than both ends can do. pcruns.com, PCIe link speed downgrades."""
    link = m.own_link(gpu)
    lanes = link and [n for n in (1, 4, 8) if n < int(link.split("x")[1])]
    if m.guest() or not lanes:
        return None
    trained(m, gpu, f"{link.split()[0]} x{r.choice(lanes)}")
    return Fault("riser-narrow", {"pcie-narrow"}, {gpu}, addresses=own(m, gpu))


def riser_slow_generation(r, m, gpu):
    """A riser of PCIe 3 in a slot of PCIe 4, or a BIOS setting that is left at Gen1 (tomshardware.com, SLI FAQ)."""
    link = m.own_link(gpu)
    generation, lanes = int(link[3]) if link else 0, link.split("x")[1] if link else 0
    if m.guest() or generation < 3:
        return None
    trained(m, gpu, f"Gen{r.choice([1, generation - 1])} x{lanes}")
    return Fault("riser-generation", {"pcie-narrow"}, {gpu}, addresses=own(m, gpu))


def trained(m, gpu, link):
    function = m.of(m.gpus[gpu]["pci"])
    function["trained"] = link
    if "idle" in function:
        function["idle"] = "Gen1 x" + link.split("x")[1]


def uplink_narrow(r, m, gpu):
    """The cable or slot of a switch card has lost half of its lanes; all GPUs below share what is left."""
    above = next((one for one in m.chain(gpu) if one.get("kind") == "switch-upstream"), None)
    if m.guest() or not above:
        return None
    best = least(above["max"], m.of(above["parent"])["max"])
    if best.endswith("x1"):
        return None
    above["trained"] = f"{best.split()[0]} x{int(best.split('x')[1]) // r.choice([2, 2, 4])}"
    below = {one for one in range(len(m)) if above["address"] in m.addresses(one)}
    places = {above["address"], above["parent"]}
    return Fault("uplink-narrow", {"pcie-narrow"}, below, addresses=places, reach=below)


def trains_down(r, m, gpu):
    """A riser that trains down once copies run: tinygrad issue 6, "check if any of your lanes are being downgraded"."""
    link = m.own_link(gpu)
    if m.guest() or not link or int(link.split("x")[1]) < 8:
        return None
    m.fault("links", {"function": m.gpus[gpu]["pci"], "trains_down_to": f"{link.split()[0]} x{r.choice([1, 4])}", "replays": r.choice([0, 500])})
    return Fault("trains-down", {"pcie-link-changed"}, {gpu}, addresses=own(m, gpu), effects=SLOW | {"pcie-errors-rose", "pcie-narrow"})


def replays(r, m, gpu):
    """A riser that is too long resends: docs/rules/pcie-errors-rose.md, 100 and 20 in each second."""
    if m.guest() or not m.own_link(gpu):
        return None
    m.fault("links", {"function": m.gpus[gpu]["pci"], "replays": r.choice([5000, 40000])})
    return Fault("replays", {"pcie-errors-rose"}, {gpu}, addresses=own(m, gpu), effects=())


def logged(r, m, gpu):
    """AER counted errors since boot (docs/rules/pcie-errors-logged.md): fatal ones, or far over 8 in a minute."""
    if m.guest() or not m.own_link(gpu):
        return None
    m.host["up_seconds"] = r.randrange(4000, 80000)
    errors = r.choice([{"correctable": 0, "non_fatal": 0, "fatal": 2}, {"correctable": 900000, "non_fatal": 0, "fatal": 0}])
    m.of(m.gpus[gpu]["pci"])["errors"] = errors
    return Fault("errors-logged", {"pcie-errors-logged"}, {gpu}, addresses=own(m, gpu), effects=())


def redirect(r, m, gpu):
    """ACS left on in a switch: nccl troubleshooting; FIDESlib issue 28; pytorch issue 84803."""
    if m.guest():
        return None
    port = m.chain(gpu)[1]
    inside = [pair for pair in touching(m, gpu, None) if m.near(*pair) == "switch"]
    if port.get("kind") != "switch-downstream" or not [pair for pair in inside if not m.nvlinks(*pair)]:
        return None
    share = r.choice([0.35, 0.5, 0.6])
    switch = port["parent"]
    below = {one for one in range(len(m)) if switch in m.addresses(one)}
    all_ports = r.random() < 0.5
    for one in m.pci:
        if one.get("parent") == switch and (all_ports or one is port):
            one |= {"acs_redirect": True, "redirect_share": share}
    parts = below if all_ports else {gpu}
    return Fault("acs", {"acs-redirect", "direct-slower-than-staged"}, below, pairs=inside, addresses={one["address"] for one in m.pci if one.get("acs_redirect")}, reach=parts, whole=True)


def iommu(r, m, gpu):
    """A host whose IOMMU translates: CUDA guide 3.4.2.5. A warning only where GPUs copy directly over PCIe."""
    if m.guest() or not m.pairs(False):
        return None
    m.host |= {"iommu_translating": True, "iommu_parameters": r.choice([["amd_iommu=on"], ["intel_iommu=on"], []])}
    return Fault("iommu", {"iommu-translating", "peer-access-broken"}, whole=True, effects=())


def access_missing(r, m, gpu):
    """One pair among equals without peer access: docs/rules/peer-access-missing.md."""
    some = [pair for pair in touching(m, gpu, False) if sum(m.alike(*pair) == m.alike(*other) for other in m.pairs(False)) > 1]
    if not some:
        return None
    a, b = r.choice(some)
    m.exceptions.append({"pairs": {"both": [a, b]}, "rule": {"nvml": "CNS", "cuda": "refused"}})
    return Fault("access-missing", {"peer-access-missing"}, {a, b}, pairs=[(a, b)], reach=(), state="access")


# NVLink


def bridge_half(r, m, gpu):
    """A bridge half seated: half of its links are down at both ends. nccl issue 557, NV3 of NV4, and 340: "partially making contact"."""
    group = straight(m, gpu)
    if not group:
        return None
    other = group["remote"]["gpu"]
    gone = r.choice([1, group["count"] // 2, group["count"] // 2]) if group["count"] > 2 else 1
    listed = r.random() < 0.7
    for one, to in ((gpu, other), (other, gpu)):
        cut(m, one, {"gpu": to}, gone, listed)
    codes = {"nvlink-inactive", "nvlink-missing"}
    # One bridge, without any other to compare, and links that are not listed: only a known number of the model would tell.
    alone = not listed and not any(straight(m, one) for one in range(len(m)) if one not in (gpu, other)) and m.kind == "bridges"
    return Fault("bridge-half", codes, {gpu, other}, pairs=[(gpu, other)], reach={gpu, other}, state="optional" if alone else "visible")


def straight(m, gpu):
    return next((group for group in m.gpus[gpu].get("nvlinks", []) if isinstance(group["remote"], dict) and group.get("active", True) and group["count"] > 1), None)


def cut(m, gpu, remote, gone, listed):
    groups = m.gpus[gpu]["nvlinks"]
    place = next(place for place, group in enumerate(groups) if group["remote"] == remote and group.get("active", True))
    whole = groups[place]
    rest = {**whole, "count": whole["count"] - gone}
    groups[place : place + 1] = ([rest] if rest["count"] else []) + ([{**whole, "count": gone, "active": False}] if listed else [])


def bridge_missing(r, m, gpu):
    """One bridge of several is not there: nobody can tell if it was ever fitted (docs/rules/nvlink-inactive.md), so it need not be named."""
    group = straight(m, gpu)
    if m.kind != "bridges" or not group or len(m) < 4:
        return None
    other = group["remote"]["gpu"]
    for one in (gpu, other):
        m.gpus[one]["nvlinks"] = [{**m.gpus[one]["nvlinks"][0], "active": False}]
    if m.rule:
        m.exceptions = [one for one in m.exceptions if set(one["pairs"].get("both", [])) != {gpu, other}]
    return Fault("bridge-missing", {"nvlink-inactive", "nvlink-missing"}, {gpu, other}, pairs=[(gpu, other)], effects=(), state="optional")


def module_links(r, m, gpu):
    """A module with fewer NVLinks than its siblings: azhpc-diagnostics issue 73, two of six inactive; DCGM issue 198."""
    if m.kind != "module":
        return None
    cut(m, gpu, "switch", r.choice([1, 2, 4, 6]), r.random() < 0.7)
    return Fault("module-links", {"nvlink-inactive", "nvlink-missing"}, {gpu}, state="visible")


def link_errors(r, m, gpu):
    """CRC errors and recoveries while copies run: docs/rules/nvlink-errors-rose.md."""
    if not m.gpus[gpu].get("nvlinks"):
        return None
    new = m.gpus[gpu]["nvlinks"][0]["version"] == "5.0"
    errors = {"recovery": r.choice([1, 3])} if new or r.random() < 0.3 else {"crc": r.choice([20, 5000])}
    m.fault("nvlinks", {"gpu": gpu, "link": 0, "errors": errors})
    ends = ends_of(m, gpu)
    return Fault("link-errors", {"nvlink-errors-rose"}, {gpu} | ends, effects={"counters-disagree"})


def ends_of(m, gpu):
    """The GPU at the other end of link 0, if it leads to one: both ends are the same link."""
    remote = m.gpus[gpu]["nvlinks"][0]["remote"]
    return {remote["gpu"]} if isinstance(remote, dict) else set()


def link_slow(r, m, gpu):
    """One of a module's links at a part of its rate: copies are spread over all, so each waits for it (docs/machine-keys.md)."""
    if m.kind != "module":
        return None
    share = r.choice([0.4, 0.6, 0.75])
    m.fault("nvlinks", {"gpu": gpu, "link": r.randrange(4), "rate": share})
    return Fault("link-slow", PAIRS | {"nvlink-slower-than-siblings"}, {gpu}, figure=("pairs", touching(m, gpu, True), share))


# Copies


def pair_slow(r, m, gpu):
    """One pair far below its equals, both ways or one way; what lies between the two is at fault."""
    some = touching(m, gpu, r.choice([True, False]))
    if not some:
        return None
    pair, share = r.choice(some), r.choice([0.3, 0.5, 0.65, 0.75])
    codes = PAIRS | {"direct-slower-than-staged"}
    if r.random() < 0.35:
        a, b = r.sample(pair, 2)
        m.fault("pairs", {"pairs": {"ordered": [a, b]}, "fault": {"slow": {"share": share}}})
        return Fault("one-way-slow", codes | {"peer-bandwidth-asymmetric"}, (), pairs=[pair], reach=(), figure=("way", [pair], share))
    slow(m, [pair], share)
    return Fault("pair-slow", codes, (), pairs=[pair], reach=(), figure=("pairs", [pair], share))


def way_slow(r, m, gpu):
    """Everything over a GPU's slot is slow and its registers say nothing: contacts, a riser, a hypervisor's settings for one guest device."""
    share = r.choice([0.25, 0.4, 0.6, 0.7])
    for memory in ("pinned", "registered"):
        m.fault("host", {"gpu": gpu, "memory": memory, "fault": {"slow": {"share": share}}})
    for direction, key, usual in (("to-device", "pageable_up_gbps", 8.5), ("to-host", "pageable_down_gbps", 13.5)):
        rate = min(m.speeds.get("host", {}).get(key, usual), 0.878 * m.way(gpu))
        if 0.878 * m.way(gpu) * share < rate:  # pageable copies pass the same way
            m.fault("host", {"gpu": gpu, "memory": "pageable", "direction": direction, "fault": {"slow": {"share": 0.878 * m.way(gpu) * share / rate}}})
    slow(m, touching(m, gpu, False), share)
    everyone = [tuple(sorted((gpu, other))) for other in range(len(m)) if other != gpu]
    slow(m, everyone, share, path="staged")
    return Fault("way-slow", HOST | PAIRS | {"staged-slow"}, {gpu}, addresses=own(m, gpu), figure=("host", {gpu}, share))


def hidden_hop(r, m, gpu):
    """In a guest, one GPU's way on the host is narrower than its siblings', which no file of the guest shows: shared/facts.md, 6."""
    if m.kind != "guest":
        return None
    m.uplinks[gpu]["gbps"] = round(m.uplinks[gpu]["gbps"] / r.choice([2, 4, 4]), 3)
    return Fault("hidden-narrow", HOST | PAIRS | {"staged-slow"}, {gpu}, addresses=own(m, gpu), figure=("host", {gpu}, 0.5))


def dimms(r, m, gpu):
    """A node with a single memory module: all copies of its GPUs with the host get what it carries."""
    node = m.node(gpu) or 0
    if node >= len(m.nodes) or m.guest():
        return None
    below = {one for one in range(len(m)) if (m.node(one) or 0) == node}
    rate = r.uniform(8, 14)
    fast = [one for one in below if m.way(one) * 0.878 > 1.7 * rate]
    if not fast:
        return None
    m.nodes[node] |= {"read_gbps": rate, "write_gbps": rate * 0.9, "memory": "32GiB"}
    return Fault("few-modules", HOST | {"staged-slow"}, below, whole=len(m.nodes) == 1, reach=below, addresses=set().union(*(m.addresses(one) for one in below)))


def bytes_wrong(r, m, gpu):
    """Peer access that is granted and loses or changes bytes: pytorch issue 84803, FIDESlib issue 28, shared/facts.md, 6."""
    some = touching(m, gpu, r.choice([True, False]))
    if not some:
        return None
    a, b = r.choice(some)
    kind = r.choice(["dropped", {"corrupt": {"words": 8}}, "stale", {"missing-tail": {"bytes": 4096}}])
    ordered = r.random() < 0.5
    m.fault("pairs", {"pairs": {"ordered" if ordered else "both": [a, b]}, "fault": kind})
    return Fault("bytes-wrong", {"data-wrong", "peer-access-broken"}, {a, b} if len(m) == 2 else (), pairs=[(a, b)], effects=DATA, reach={a, b})


def both_ways(r, m, gpu):
    """Full rate one way and far less both ways: docs/rules/both-ways-low.md, tinygrad issue 6 (which is healthy at 80%)."""
    some = touching(m, gpu, r.choice([True, False]))
    if not some:
        return None
    pair = r.choice(some)
    slow(m, [pair], 0.4, both_ways=True)
    return Fault("both-ways", {"both-ways-low"}, (), pairs=[pair], reach=(), figure=("pairs", [pair], 0.4))


def uplink_collapses(r, m, gpu):
    """A switch's uplink that carries less than one GPU's share as soon as several copies pass: shared/facts.md, 6, two flows."""
    above = next((one for one in m.chain(gpu) if one.get("kind") == "switch-upstream"), None)
    below = {one for one in range(len(m)) if above and above["address"] in m.addresses(one)}
    outside = [pair for pair in m.pairs(False) if len(below & set(pair)) == 1]
    if not above or m.guest() or len(below) < 2 or len({one for pair in outside for one in pair} & below) < 2 or len(m) - len(below) < 2:
        return None
    rate = gbps(least(above["max"], m.of(above["parent"])["max"])) * r.choice([0.2, 0.35])
    m.fault("collapses", {"at": {"pci": above["address"]}, "gbps": round(rate, 2)})
    return Fault("uplink-collapses", {"shared-hop-low", "load-below-expected"}, below, pairs=outside, addresses={above["address"], above["parent"]}, whole=True)


# The GPU itself


def memory_slow(r, m, gpu):
    alike = [one for one in range(len(m)) if m.gpus[one]["name"] == m.gpus[gpu]["name"]]
    m.gpus[gpu]["local_gbps"] = LOCAL[m.gpus[gpu]["name"]] * r.choice([0.4, 0.6, 0.7])
    return Fault("memory-slow", {"local-memory-slow"}, {gpu}, effects=(), state="visible" if len(alike) > 2 else "optional")


def memory_errors(r, m, gpu):
    m.gpus[gpu].setdefault("state", {}).update(r.choice([{"ecc_uncorrected": 3}, {"remapping_failed": True}, {"remapping_pending": True}]))
    return Fault("memory-errors", {"gpu-memory-errors"}, {gpu}, effects=())


def hot(r, m, gpu):
    """Riser cages that keep air away: hardware slowdown while copies run."""
    m.gpus[gpu].setdefault("state", {}).update({"throttle_under_load": [r.choice(["hw-thermal-slowdown", "hw-slowdown", "hw-power-brake"])]})
    return Fault("throttled", {"gpu-throttled"}, {gpu}, effects=())


def lost(r, m, gpu):
    """Fallen off the bus (Xid 79)."""
    if len(m) < 3 or m.faults or any(m.gpus[gpu].get("nvlinks", [])):
        return None
    m.fault("lost_gpus", gpu)
    return Fault("lost", {"gpu-unreachable", "gpu-not-listed"}, {gpu}, addresses=own(m, gpu), effects={"devices-hidden", "not-tested"}, whole=True)


def not_listed(r, m, gpu):
    """One more card on the bus that the driver could not start: docs/rules/gpu-not-listed.md, RmInitAdapter failed."""
    if m.guest():
        return None
    other = m.of(m.gpus[gpu]["pci"])
    root = m.root("Gen4 x16", node=m.node(gpu))
    address = m.function(f"0000:{m.next_bus():02x}:00.0", parent=root, max=other["max"], id="10de:26b9", **{"class": "030200"})
    return Fault("not-listed", {"gpu-not-listed"}, addresses={address, root}, effects=(), whole=True)


def adapter_narrow(r, m, gpu):
    if not m.adapters or m.guest():
        return None
    one = m.of(r.choice(m.adapters)["pci"])
    one["trained"] = one["max"].split()[0] + " x8"
    return Fault("adapter-narrow", {"adapter-link-narrow"}, addresses={one["address"], one["parent"]}, effects=())


# (fault, what it may not share with another fault: parts of the GPUs that it touches)
FAULTS = [
    (riser_narrow, "way"), (riser_narrow, "way"), (riser_slow_generation, "way"), (uplink_narrow, "way"), (trains_down, "way"), (replays, "way"),
    (logged, "way"), (redirect, "way"), (iommu, "host"), (access_missing, "way"), (bridge_half, "nvlink"), (bridge_half, "nvlink"),
    (bridge_missing, "nvlink"), (module_links, "nvlink"), (module_links, "nvlink"), (link_errors, "nvlink"), (link_slow, "nvlink"),
    (pair_slow, "copies"), (way_slow, "copies"), (hidden_hop, "copies"), (dimms, "copies"), (bytes_wrong, "copies"), (both_ways, "copies"),
    (uplink_collapses, "copies"), (memory_slow, "state"), (memory_errors, "state"), (hot, "state"), (lost, "all"), (not_listed, "host"), (adapter_narrow, "host")]
WEIGHTS = {"way": 1, "nvlink": 2, "copies": 4, "state": 0.5, "host": 0.6, "all": 0.5}  # what registers show is easier to find


def plant(r, m, count):
    """Up to `count` faults. No two of one sort share a GPU, and none that a figure alone shows shares one with any other."""
    planted, taken = [], {}
    for _ in range(40):
        if len(planted) == count:
            break
        make, sort = r.choices(FAULTS, [WEIGHTS[sort] for _, sort in FAULTS])[0]
        gpu = r.randrange(len(m))
        if any(fault.kind in ("lost",) for fault in planted) or clash(taken.get(gpu, set()), sort):
            continue
        trial = copy.deepcopy(m)
        fault = make(r, trial, gpu)
        touched = fault and fault.gpus | fault.reach | {one for pair in fault.pairs for one in pair}
        if not fault or any(clash(taken.get(one, set()), sort) for one in touched) or any(fault.kind == other.kind for other in planted):
            continue
        m.__dict__ = trial.__dict__
        planted.append(fault)
        for one in touched:
            taken.setdefault(one, set()).add(sort)
    for fault in planted:
        decide(m, fault, planted)
        explained(m, fault, planted)
    return planted


def explained(m, fault, planted):
    """What the page of another fault's finding takes in, so that it need not be a finding of its own."""
    for other in planted:
        if fault.kind == "iommu" and other.kind == "bytes-wrong" and not all(m.nvlinks(*pair) for pair in other.pairs):
            fault.state = "optional"  # data-wrong has the IOMMU as its cause
        if fault.figure and m.kind.startswith("desktop") and len(m) - 1 in fault.gpus | {one for pair in fault.pairs for one in pair}:
            fault.state = "optional"  # pcie-upstream-bottleneck: the last GPU's chipset has an uplink that disks use as well
        if other.kind == "throttled" and fault.figure and other.gpus & fault.reach:
            fault.state = "optional"  # gpu-throttled: an error if a copy of the GPU is slow


def clash(others, sort):
    if sort in ("host", "state"):
        return sort in others or "all" in others
    return sort in others or bool(others & {"copies", "all"}) or (sort in ("copies", "all") and bool(others))


def decide(m, fault, planted):
    """Whether equals or what is published show a figure that is low; what lies in between may be named and need not be."""
    busy = set().union(*({one for pair in other.pairs for one in pair} | other.gpus | other.reach for other in planted if other is not fault and other.effects & SLOW), set())
    if fault.state == "access":
        pair = tuple(next(iter(fault.pairs)))
        equals = [other for other in m.pairs(False) if m.alike(*other) == m.alike(*pair)]
        fault.state = "visible" if equals else "optional"
    if not fault.figure:
        return
    kind, what, share = fault.figure
    if kind == "host":
        gpu = next(iter(what))
        equals = [one for one in range(len(m)) if one != gpu and one not in busy and abs(m.way(one) / m.way(gpu) - 1) < 0.02 or fault.kind == "hidden-narrow" and one != gpu and one not in busy]
        low = m.own_link(gpu) and 0.878 * share < FLOORS["host"] and not m.uplink(gpu) and not m.guest()
        fault.state = "visible" if share <= 0.75 and (len(equals) >= 2 or low) else "optional"
        return
    pairs = {frozenset(pair) for pair in what}
    equals = [pair for pair in m.pairs() if frozenset(pair) not in pairs and not busy & set(pair) and any(m.alike(*pair) == m.alike(*one) for one in what)]
    a, b = what[0] if what else (0, 0)
    if m.nvlinks(a, b):
        floor, built = FLOORS[m.gpus[a]["nvlinks"][0]["version"]], m.speeds["nvlink"]["copy"]
    else:
        place = "far" if m.guest() else m.near(a, b)
        floor, built = FLOORS[place], (m.speeds.get("cross_socket", {}).get("copy", 0.72) if place == "far" else m.speeds.get("pcie", {}).get("copy", 0.83))
        if m.uplink(a) or m.uplink(b) or "Intel" in m.host.get("cpu", "") and place != "switch" or place == "far" and built < 0.7:
            floor = 0  # limits that no file shows, and processors whose healthy rates are far apart
    below = built * share < floor * 0.97 and fault.kind != "both-ways"
    other_way = kind == "way"  # the other direction of the pair is an equal
    fault.state = "visible" if share <= 0.78 and (equals or below or other_way) else "optional"
    for pair in fault.pairs:  # a GPU whose only pair of that kind it is cannot be told from the pair
        for one in pair:
            same = [other for other in touching(m, one, bool(m.nvlinks(*pair)))]
            if len(same) == 1:
                fault.gpus |= set(pair)
                fault.reach |= set(pair)
    if len(what) == 1 and fault.gpus and not fault.pairs:
        fault.pairs = pairs
