"""A machine description under construction, and facts that follow from it."""

LANE = {1: 0.25, 2: 0.5, 3: 0.9846, 4: 1.969, 5: 3.938}  # GB/s a lane after encoding: shared/facts.md, section 5

LINKS = {  # of models, by their data sheets
    "NVIDIA GeForce RTX 3060": "Gen4 x16",
    "NVIDIA GeForce RTX 3080": "Gen4 x16",
    "NVIDIA GeForce RTX 3090": "Gen4 x16",
    "NVIDIA GeForce RTX 4060 Ti": "Gen4 x8",
    "NVIDIA GeForce RTX 4090": "Gen4 x16",
    "NVIDIA GeForce RTX 5060 Ti": "Gen5 x8",
    "NVIDIA GeForce RTX 5090": "Gen5 x16",
    "NVIDIA RTX A4000": "Gen4 x16",
    "NVIDIA RTX A6000": "Gen4 x16",
    "NVIDIA RTX 6000 Ada Generation": "Gen4 x16",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "Gen5 x16",
    "NVIDIA A10": "Gen4 x16",
    "NVIDIA A40": "Gen4 x16",
    "NVIDIA L40S": "Gen4 x16",
    "Tesla T4": "Gen3 x16",
    "Tesla V100-SXM2-32GB": "Gen3 x16",
    "NVIDIA A100 80GB PCIe": "Gen4 x16",
    "NVIDIA A100-SXM4-80GB": "Gen4 x16",
    "NVIDIA H100 PCIe": "Gen5 x16",
    "NVIDIA H100 NVL": "Gen5 x16",
    "NVIDIA H100 80GB HBM3": "Gen5 x16",
    "NVIDIA H200": "Gen5 x16",
    "NVIDIA B200": "Gen5 x16",
}

LOCAL = {  # GB/s that copies within a healthy one reach, as `peerscope machines --show` gives them; of the others any serves
    "NVIDIA GeForce RTX 4090": 460, "NVIDIA GeForce RTX 3090": 419, "NVIDIA GeForce RTX 5090": 745, "NVIDIA RTX A6000": 322, "NVIDIA RTX A4000": 188,
    "NVIDIA A40": 292, "NVIDIA A10": 252, "Tesla T4": 134, "NVIDIA L40S": 363, "NVIDIA A100 80GB PCIe": 800, "NVIDIA A100-SXM4-80GB": 800,
    "NVIDIA H100 80GB HBM3": 1250, "NVIDIA H100 PCIe": 850, "NVIDIA H100 NVL": 1480, "NVIDIA H200": 2094, "NVIDIA B200": 3274,
    "Tesla V100-SXM2-32GB": 375, "NVIDIA RTX PRO 6000 Blackwell Server Edition": 707, "NVIDIA RTX 6000 Ada Generation": 403,
    "NVIDIA GeForce RTX 3060": 151, "NVIDIA GeForce RTX 3080": 319, "NVIDIA GeForce RTX 4060 Ti": 121, "NVIDIA GeForce RTX 5060 Ti": 188,
}


def gbps(link):
    generation, lanes = link.split()
    return LANE[int(generation[3:])] * int(lanes[1:])


def least(*links):
    """What two ends agree on: the lower generation and the fewer lanes."""
    generations, lanes = zip(*(link.split() for link in links))
    return f"Gen{min(int(one[3:]) for one in generations)} x{min(int(one[1:]) for one in lanes)}"


class Machine:
    def __init__(self, kind):
        self.kind = kind
        self.host, self.speeds, self.nodes, self.noise = {}, {}, [], {}
        self.pci, self.gpus, self.uplinks, self.adapters, self.faults = [], [], [], [], {}
        self.rule, self.exceptions, self.visible = None, [], None
        self.bus, self.tiers = 0, []  # tiers: as built, written after the faults, since the first entry that matches a copy applies
        # What the pages of the rules name on such a machine as built, although it is whole: (code, GPU or None for all).
        self.tolerated = set()

    # Building

    def function(self, address, **keys):
        self.pci.append({"address": address, **{key: value for key, value in keys.items() if value is not None}})
        return address

    def next_bus(self, least_bus=None):
        self.bus = max(self.bus + 1, least_bus or 0)
        return self.bus

    def root(self, maximum, node=None, address=None, identity=None):
        """A root port with a root complex of its own, unless the address says otherwise."""
        bus = None if address else self.next_bus()
        return self.function(address or f"0000:{bus:02x}:01.0", kind="root-port", max=maximum, numa_node=node, id=identity)

    def switch(self, parent, maximum, identity=None):
        return self.function(f"0000:{self.next_bus():02x}:00.0", parent=parent, kind="switch-upstream", max=maximum, id=identity)

    def port(self, upstream, maximum, identity=None):
        bus = max(int(upstream[5:7], 16) + 1, 1)
        used = {one["address"] for one in self.pci}
        place = next(place for place in range(32) if f"0000:{bus:02x}:{place:02x}.0" not in used)
        self.bus = max(self.bus, bus)
        return self.function(f"0000:{bus:02x}:{place:02x}.0", parent=upstream, kind="switch-downstream", max=maximum, id=identity)

    def gpu(self, name, parent, maximum=None, **keys):
        address = self.function(f"0000:{self.next_bus():02x}:00.0", parent=parent, max=maximum or LINKS[name])
        self.gpus.append({"name": name, "pci": address, **keys})
        return len(self.gpus) - 1

    # Facts

    def __len__(self):
        return len(self.gpus)

    def of(self, address):
        return next(one for one in self.pci if one["address"] == address)

    def chain(self, gpu):
        """The functions from a GPU up to its root."""
        found, address = [], self.gpus[gpu]["pci"]
        while address:
            found.append(self.of(address))
            address = found[-1].get("parent")
        return found

    def addresses(self, gpu):
        return {one["address"] for one in self.chain(gpu)}

    def guest(self):
        return self.host.get("virtual_machine", False)

    def links(self, gpu):
        """(function at the lower end, the best that both ends support) of the links above a GPU that files show."""
        chain = self.chain(gpu)
        found = []
        for below, above in zip(chain, chain[1:]):
            ends = [end for end in (below.get("max"), above.get("max")) if end and end != "none"]
            if above.get("kind") != "switch-upstream" and len(ends) == 2:  # what is below that is within the switch
                found.append((below, least(*ends)))
        return found

    def own_link(self, gpu):
        links = self.links(gpu)
        return links[0][1] if links else None

    def uplink(self, gpu):
        root = self.chain(gpu)[-1]["address"]
        return next((one["gbps"] for one in self.uplinks if root in one["ports"]), None)

    def way(self, gpu):
        """What the way of a GPU to the host carries as built, GB/s."""
        rates = [gbps(link) for _, link in self.links(gpu)] + ([self.uplink(gpu)] if self.uplink(gpu) else [])
        return min(rates) if rates else 31.5

    def node(self, gpu):
        return next((one["numa_node"] for one in self.chain(gpu) if "numa_node" in one), None)

    def nvlinks(self, a, b):
        """Active links from one GPU to another."""
        switched = lambda gpu: sum(group["count"] for group in self.gpus[gpu].get("nvlinks", []) if group["remote"] == "switch" and group.get("active", True))
        straight = sum(group["count"] for group in self.gpus[a].get("nvlinks", []) if group["remote"] == {"gpu": b} and group.get("active", True))
        return straight or min(switched(a), switched(b))

    def granted(self, a, b):
        rule = self.rule or {"cuda": "granted"}
        for one in self.exceptions:
            where = one["pairs"]
            if where.get("both") in ([a, b], [b, a]) or where.get("ordered") == [a, b]:
                rule = one["rule"]
        return rule["cuda"] == "granted"

    def pairs(self, nvlink=None):
        """Unordered pairs with direct access; over NVLink, over PCIe, or both."""
        some = [(a, b) for a in range(len(self)) for b in range(a + 1, len(self)) if self.granted(a, b)]
        return some if nvlink is None else [pair for pair in some if bool(self.nvlinks(*pair)) == nvlink]

    def near(self, a, b):
        """How two GPUs are joined over PCIe, as far as files show it."""
        one, other = self.chain(a), self.chain(b)
        shared = {x["address"] for x in one[1:]} & {x["address"] for x in other[1:]}
        if any(self.of(address).get("kind") == "switch-upstream" for address in shared):
            return "switch"
        if self.node(a) != self.node(b):
            return "far"
        bridge = lambda chain: chain[-1].get("host_bridge") or chain[-1]["address"][:7]
        return "root" if bridge(one) == bridge(other) else "node"

    def alike(self, a, b):
        """What makes pairs equals: models, links and distance."""
        return (frozenset(self.gpus[x]["name"] for x in (a, b)), self.nvlinks(a, b), self.near(a, b), round(min(self.way(a), self.way(b)), 1))

    def fault(self, table, entry):
        self.faults.setdefault(table, []).append(entry)

    # Writing

    def text(self):
        top = {"summary": f"field machine: {self.kind}, {len(self)} x {self.gpus[0]['name']}"}
        top |= {"numa_nodes": self.nodes} if self.nodes else {}
        top |= {"visible_devices": self.visible} if self.visible else {}
        top |= {"pci": self.pci, "gpus": self.gpus}
        top |= {"uplinks": self.uplinks} if self.uplinks else {}
        top |= {"adapters": self.adapters} if self.adapters else {}
        peers = ({"rule": self.rule} if self.rule else {}) | ({"exceptions": self.exceptions} if self.exceptions else {})
        top |= {"peers": peers} if peers else {}
        for name in ("host", "speeds", "noise"):
            top |= {name: getattr(self, name)} if getattr(self, name) else {}
        faults = self.faults | ({"pairs": self.faults.get("pairs", []) + self.tiers} if self.tiers else {})
        top |= {"faults": faults} if faults else {}
        return "".join(f"{key} = {self.value(value, True)}\n" for key, value in top.items())

    def value(self, value, outer=False):
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str):
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        if isinstance(value, dict):
            return "{ " + ", ".join(f"{key} = {self.value(one)}" for key, one in value.items()) + " }"
        if isinstance(value, (list, tuple)):
            if outer and value and isinstance(value[0], dict):
                return "[\n" + "".join(f"    {self.value(one)},\n" for one in value) + "]"
            return "[" + ", ".join(self.value(one) for one in value) + "]"
        return f"{value:.6g}" if isinstance(value, float) else str(value)
