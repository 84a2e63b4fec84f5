"""A description of a machine with its graph, and a model of the figures that the profile measures on it."""

import json
from collections import Counter

PCIE_GBPS = {1: 0.25, 2: 0.5, 3: 8 * 128 / 130 / 8, 4: 16 * 128 / 130 / 8, 5: 32 * 128 / 130 / 8}
NVLINK_GBPS = {"2": 25.0, "3": 25.0, "4": 25.0, "5": 50.0}
# What healthy machines are known to reach at least, shares of theory (docs/rules/README.md).
LEAST = {"pcie": 0.82, "pcie-root": 0.63, "pcie-far": 0.62, "host": 0.76, "nvlink-2": 0.80, "nvlink-3": 0.877, "nvlink-4": 0.82, "nvlink-5": 0.85}
LEAST_STAGED = 0.22  # of the margin of staged copies


def rate(link):
    generation, lanes = link[3:].split(" x")
    return PCIE_GBPS[int(generation)] * int(lanes)


def least(*links):
    known = [tuple(map(int, link[3:].split(" x"))) for link in links if link]
    return f"Gen{min(one for one, _ in known)} x{min(one for _, one in known)}" if known else None


class Machine:
    """A description, as nested dictionaries, with its graph."""

    def __init__(self):
        self.toml = {"summary": "", "host": {}, "numa_nodes": [], "uplinks": [], "peers": {}, "speeds": {}, "noise": {}, "faults": {}, "adapters": [], "pci": [], "gpus": []}
        self.kind, self.tolerated = "", []

    def __getitem__(self, key):
        return self.toml[key]

    def gpus(self):
        return range(len(self["gpus"]))

    def function(self, address):
        return next(one for one in self["pci"] if one["address"] == address)

    def path(self, gpu):
        """The functions from a GPU up to its root."""
        found, address = [], self["gpus"][gpu]["pci"]
        while address:
            found.append(self.function(address))
            address = found[-1].get("parent")
        return found

    def below(self, address):
        return [gpu for gpu in self.gpus() if any(one["address"] == address for one in self.path(gpu))]

    def switches(self):
        return [one["address"] for one in self["pci"] if one.get("kind") == "switch-upstream" and self.below(one["address"])]

    def node(self, gpu):
        return next((one["numa_node"] for one in self.path(gpu) if "numa_node" in one), None)

    def root(self, gpu):
        return self.path(gpu)[-1]["address"]

    def possible(self, function):
        parent = function.get("parent")
        return least(function.get("max"), self.function(parent).get("max") if parent else None) if function.get("max") else None

    def trained(self, function):
        for fault in self["faults"].get("links", []):
            if fault["function"] == function["address"] and "trains_down_to" in fault:
                return fault["trains_down_to"]
        return function.get("trained") or self.possible(function)

    def links(self, gpu):
        """The links from a GPU up to its root, by their lower ends."""
        return [one for one in self.path(gpu) if one.get("kind") not in ("root-port", "switch-downstream")]

    def uplink(self, gpu):
        return next((place for place, one in enumerate(self["uplinks"]) if self.root(gpu) in one["ports"]), None)

    def nvlink_gbps(self, gpu, remote):
        groups = self["gpus"][gpu].get("nvlinks", [])
        alike = [one for one in groups if one["remote"] == remote and one.get("active", True)]
        return sum(one["count"] * one.get("link_gbps", NVLINK_GBPS[one["version"][0]]) for one in alike)

    def joined(self, a, b):
        return min(self.nvlink_gbps(a, "switch"), self.nvlink_gbps(b, "switch")) or self.nvlink_gbps(a, {"gpu": b})

    def access(self, a, b):
        rule = self["peers"].get("rule", {})
        for exception in self["peers"].get("exceptions", []):
            if matches(exception["pairs"], a, b):
                rule = exception["rule"]
        return rule.get("cuda", "granted") == "granted"

    def direct(self, a, b):
        return self.access(a, b) and self.access(b, a)

    def all_direct(self):
        return all(self.direct(a, b) for a in self.gpus() for b in self.gpus() if a < b)

    def far(self, a, b):
        return None not in (self.node(a), self.node(b)) and self.node(a) != self.node(b)

    def unused(self):
        """GPUs on which nothing can be measured."""
        faults = self["faults"]
        return set(faults.get("lost_gpus", [])) | {one["gpu"] for one in faults.get("contexts", [])}

    def meeting(self, a, b):
        below = [one["address"] for one in self.path(b)]
        return next((one["address"] for one in self.path(a) if one["address"] in below), None)

    def disturbed(self, *gpus):
        """Whether another program moves data over a link that copies of these GPUs pass: they are then not judged."""
        for other in self["faults"].get("others", []):
            links = {one["address"] for one in self.links(other["gpu"])}
            shared = any(one["address"] in links for gpu in gpus for one in self.links(gpu))
            if other["gpu"] in gpus or ("pcie" in other and shared):
                return True
        return False

    def series(self, gpu):
        """The links of a GPU that nothing else passes: no figure tells them apart."""
        return {one["address"] for one in self.path(gpu) if self.below(one["address"]) == [gpu]}

    def pcie_hops(self, a, b):
        """The GB/s of each link between two GPUs over PCIe, and the class of the route."""
        redirected = any(one.get("acs_redirect") for one in self.path(a))
        meet = None if redirected else self.meeting(a, b)
        rates = []
        for gpu in (a, b):
            for link in self.links(gpu):
                if link["address"] == meet:
                    break
                if self.trained(link):
                    rates.append(rate(self.trained(link)))
        if meet is None and (redirected or self.uplink(a) is None or self.uplink(a) != self.uplink(b)):
            rates += [self["uplinks"][place]["gbps"] for place in (self.uplink(a), self.uplink(b)) if place is not None]
        crosses = meet is None and self.far(a, b)
        own = lambda gpu: self.path(gpu)[-1].get("host_bridge", self.root(gpu)[:7])
        if meet is not None:
            kind = "pcie"
        elif own(a) == own(b) and not self["host"].get("virtual_machine"):
            kind = "pcie-root"
        else:
            kind = "pcie-far"
        return rates, crosses, kind

    def host_hops(self, gpu):
        rates = [rate(self.trained(link)) for link in self.links(gpu) if self.trained(link)]
        if self.uplink(gpu) is not None:
            rates.append(self["uplinks"][self.uplink(gpu)]["gbps"])
        return rates

    def memory(self, gpu, way):
        node = self["numa_nodes"][self.node(gpu) or 0]
        return node.get(way, self["speeds"]["host_memory_gbps"])

    def hops(self, a, b):
        """The hops of a direct copy, one direction each, with the GB/s that several flows have of each."""
        joined = self.joined(a, b)
        if joined and not any(matches(pairs, a, b) for pairs in self["faults"].get("over_pcie", [])):
            top = self["speeds"]["nvlink_shared"]
            if self.nvlink_gbps(a, {"gpu": b}):
                return {("nvlink", a, b): top * joined}
            return {("nvlinks", a, "up"): top * self.nvlink_gbps(a, "switch"), ("nvlinks", b, "down"): top * self.nvlink_gbps(b, "switch")}
        found, top = {}, self["speeds"]["pcie_shared"]
        redirected = any(one.get("acs_redirect") for one in self.path(a))
        meet = None if redirected else self.meeting(a, b)
        for gpu, way in ((a, "up"), (b, "down")):
            for link in self.links(gpu):
                if link["address"] == meet:
                    break
                if self.trained(link):
                    found["pci", link["address"], way] = top * rate(self.trained(link))
            if meet is None and self.uplink(gpu) is not None and (redirected or self.uplink(a) != self.uplink(b)):
                found["uplink", self.uplink(gpu), way] = top * self["uplinks"][self.uplink(gpu)]["gbps"]
        if meet is None and self.far(a, b):
            found["interconnect", self.node(a), self.node(b)] = self["speeds"]["interconnect_gbps"]
        return found

    def patterns(self):
        """The patterns of several direct copies that the profile measures, by name."""
        used = [gpu for gpu in self.gpus() if gpu not in self.unused()]
        count = len(used)
        found = {f"shift {by}": [(gpu, used[(place + by) % count]) for place, gpu in enumerate(used)] for by in range(1, count)}
        for place, gpu in enumerate(used):
            others = [used[(place + by) % count] for by in range(1, count)]
            found[f"two into {gpu}"] = [(other, gpu) for other in others[:2]]
            found[f"all to {gpu}"] = [(other, gpu) for other in others]
        groups = [self.below(one) for one in self.switches()] + [[gpu for gpu in used if self.node(gpu) == node] for node in range(len(self["numa_nodes"]))]
        for group in groups:
            inside, outside = [[gpu for gpu in used if (gpu in group) == side][:2] for side in (True, False)]
            if len(inside) == len(outside) == 2:
                found[f"out of {inside}"] = list(zip(inside, outside))
                found[f"into {inside}"] = list(zip(outside, inside))
        flows_of = {name: [flow for flow in flows if self.direct(*flow)] for name, flows in found.items()}
        return {name: flows for name, flows in flows_of.items() if not any(self.disturbed(*flow) for flow in flows)}

    def load(self):
        """What each flow of each pattern reaches, by (pattern, source, destination): GB/s, max-min fair."""
        found = {}
        faults = self["faults"]
        for name, flows in self.patterns().items():
            ways = {flow: self.hops(*flow) for flow in flows}
            room = {hop: gbps for way in ways.values() for hop, gbps in way.items()}
            users = Counter(hop for way in ways.values() for hop in way)
            back = {"up": "down", "down": "up"}
            opposed = lambda hop: ((hop[0], hop[2], hop[1]) if hop[0] in ("nvlink", "interconnect") else (hop[0], hop[1], back[hop[2]])) in users
            caps = {}
            for a, b in flows:
                joined = next(iter(ways[a, b]))[0].startswith("nvlink")
                path = self["speeds"]["nvlink" if joined else "cross_socket" if any(hop[0] == "interconnect" for hop in ways[a, b]) else "pcie"]
                single = next(self.peer_figures(a, b))[1]
                both = any(opposed(hop) for hop in ways[a, b])
                third = any(len({*one} - {a, b}) for one in flows if set(one) & {a, b})
                caps[a, b] = single * (path["both_ways"] if both else 1)
                for fault in faults.get("pairs", []):
                    if matches(fault["pairs"], a, b) and fault.get("beside_third") and third and "slow" in fault["fault"]:
                        caps[a, b] *= fault["fault"]["slow"]["share"]
            at = lambda place, hop: place == "interconnect" == hop[0] or (isinstance(place, dict) and next(iter(place.items())) == hop[:2])
            for hop in room:
                if users[hop] < 2:
                    continue
                for collapse in faults.get("collapses", []):
                    if at(collapse["at"], hop):
                        room[hop] = min(room[hop], collapse["gbps"])
            rates, growing = dict.fromkeys(flows, 0.0), set(flows)
            while growing:
                active = Counter(hop for flow in growing for hop in ways[flow])
                step = min([caps[flow] - rates[flow] for flow in growing] + [room[hop] / count for hop, count in active.items()])
                for flow in growing:
                    rates[flow] += max(step, 0)
                for hop, count in active.items():
                    room[hop] -= max(step, 0) * count
                growing = {flow for flow in growing if rates[flow] < caps[flow] - 1e-9 and all(room[hop] > 1e-9 for hop in ways[flow])}
            found.update({(name, *flow): one for flow, one in rates.items()})
        return found

    def pair_share(self, a, b, **mode):
        """The share of its rate that a copy between two GPUs keeps."""
        for fault in self["faults"].get("pairs", []):
            wanted = {key: fault[key] for key in ("engine", "issuer", "path") if key in fault}
            if not matches(fault["pairs"], a, b) or ("path" in fault) != (mode.get("path") == "staged"):
                continue
            if any(mode.get(key) != value for key, value in wanted.items()):
                continue
            if fault.get("both_ways") or fault.get("under_load"):
                if not mode.get("both"):
                    continue
            elif fault.get("beside_third") or fault.get("flows_at_once"):
                continue
            return fault["fault"]["slow"]["share"] if "slow" in fault["fault"] else 1.0
        drifts = [one["percent"] for one in self["faults"].get("drifts", []) if one["gpu"] in (a, b)]
        return 1 - max(drifts, default=0) / 100 if mode.get("path") != "staged" else 1.0

    def host_share(self, gpu, memory, direction):
        for fault in self["faults"].get("host", []):
            wanted = {"gpu": gpu, "node": self.node(gpu) or 0, "memory": memory, "direction": direction}
            if all(fault[key] == value for key, value in wanted.items() if key in fault):
                return fault["fault"]["slow"]["share"] if "slow" in fault["fault"] else 1.0
        return 1.0

    def peer_figures(self, a, b):
        """The figures of direct copies: name, GB/s, what makes figures alike, published least share, theory."""
        speeds = self["speeds"]
        joined = self.joined(a, b)
        if joined and not any(matches(pairs, a, b) for pairs in self["faults"].get("over_pcie", [])):
            path, narrowest, top, kind, cap = speeds["nvlink"], joined, speeds["nvlink_shared"] * joined, f"nvlink-{self['gpus'][a]['nvlinks'][0]['version'][0]}", 1.0
        else:
            hops, crosses, kind = self.pcie_hops(a, b)
            narrowest = min(hops)
            path, top = speeds["cross_socket" if crosses else "pcie"], speeds["pcie_shared"] * narrowest
            top = min(top, speeds["interconnect_gbps"]) if crosses else top
            ports = [one for one in self.path(a) if one.get("acs_redirect")]
            cap = ports[0].get("redirect_share", 1.0) if ports else 1.0
        theory = joined or min(self.pcie_hops(a, b)[0])
        expected = joined if joined else min(rate(self.possible(one)) for gpu in (a, b) for one in self.links(gpu) if one.get("max")) if any(one.get("max") for one in self.links(a)) else None
        alike = (kind if joined else self.pcie_hops(a, b)[2], joined or expected, self.far(a, b))
        for name, share, mode in (
            ("peer", "copy", dict(engine="copy", issuer="source")),
            ("read", "copy", dict(engine="copy", issuer="destination")),
            ("kernel", "push", dict(engine="kernel", issuer="source")),
            ("both", "copy", dict(engine="copy", issuer="source", both=True)),
        ):
            value = min(path[share] * cap * narrowest * self.pair_share(a, b, **mode), top) * (path["both_ways"] if name == "both" else 1)
            bytes_us = 1e3 * min(0.4e-3 * value * 1e9, 5e8) / 1e9 / value * 1e3 if value else 0
            value *= bytes_us / (bytes_us + path.get("each_us", 3))
            yield name, value, alike, LEAST.get(alike[0]) if name == "peer" and expected else None, theory if expected else None

    def figures(self):
        """What the profile measures of one flow at a time, by (name, ends): GB/s, alike, least share, theory."""
        found, speeds = {}, self["speeds"]
        used = [gpu for gpu in self.gpus() if gpu not in self.unused()]
        pairs = [(a, b) for a in used for b in used if a != b]
        staged = {}
        for a, b in pairs:
            hops = self.host_hops(a) + self.host_hops(b)
            # Both legs pass a shared link, one in each direction.
            shared = bool(self.meeting(a, b)) or (self.uplink(a) is not None and self.uplink(a) == self.uplink(b))
            value = speeds["staged"]["copy"] * min(hops) * self.pair_share(a, b, engine="copy", issuer="source", path="staged") * (0.7 if shared else 1)
            value = min(value, self.memory(a, "write_gbps"), self.memory(a, "read_gbps"))
            known = [rate(self.possible(one)) for gpu in (a, b) for one in self.links(gpu) if one.get("max")]
            staged[a, b] = value, ("staged", min(known, default=None), self.node(a), self.node(b), shared), LEAST_STAGED if known else None, min(known, default=None)
            if self.direct(a, b):
                for name, *figure in self.peer_figures(a, b):
                    found[name, a, b] = tuple(figure)
        # Copies through the host are left out where direct ones are far faster, but for a ring.
        far_faster = all(self.direct(a, b) and self.joined(a, b) for a, b in pairs)
        for (a, b), figure in staged.items():
            if not far_faster or used[(used.index(a) + 1) % len(used)] == b:
                found["staged", a, b] = figure
        for gpu in used:
            known = [rate(self.possible(one)) for one in self.links(gpu) if one.get("max")]
            theory = min(known, default=None)
            for direction, share, way, pageable in (("to-device", "up", "read_gbps", "pageable_up_gbps"), ("to-host", "down", "write_gbps", "pageable_down_gbps")):
                cap = speeds["host"][share] * min(self.host_hops(gpu))
                top = min(speeds["pcie_shared"] * min(self.host_hops(gpu)), self.memory(gpu, way))
                value = min(cap * self.host_share(gpu, "pinned", direction), top)
                found["host " + direction, gpu] = value, (self["gpus"][gpu]["name"], theory), LEAST["host"] if theory else None, theory
                value = min(cap, speeds["host"][pageable]) * self.host_share(gpu, "pageable", direction)
                found["pageable " + direction, gpu] = min(value, top), (theory,), None, None
            found["local", gpu] = self["gpus"][gpu]["local_gbps"], (self["gpus"][gpu]["name"],), None, None
        return {key: figure for key, figure in found.items() if not self.disturbed(*key[1:])}

    def text(self):
        def value(one):
            if isinstance(one, bool):
                return "true" if one else "false"
            if isinstance(one, dict):
                return "{ " + ", ".join(f"{key} = {value(inner)}" for key, inner in one.items()) + " }"
            if isinstance(one, list):
                return "[" + ", ".join(map(value, one)) + "]"
            return json.dumps(round(one, 4) if isinstance(one, float) else one)

        lines = []
        for key, one in self.toml.items():
            if isinstance(one, list) and key in ("pci", "gpus"):
                lines += [f"{key} = [", *(f"    {value(inner)}," for inner in one), "]"]
            elif one or key == "summary":
                lines.append(f"{key} = {value(one)}")
        return "\n".join(lines) + "\n"


def matches(pairs, a, b):
    if pairs == "all":
        return True
    return pairs["ordered"] == [a, b] if "ordered" in pairs else set(pairs["both"]) == {a, b}
