"""The grammar of machines: random ones of each kind, healthy, some of them odd."""

from .codes import LOAD
from .machine import PCIE_GBPS, Machine, rate

# name, architecture, PCIe link, memory, local GB/s (those that are published or known of the model; others are chosen)
CARDS = [
    ("NVIDIA L40S", "Ada", "Gen4 x16", "46068MiB", 363.0),
    ("NVIDIA A40", "Ampere", "Gen4 x16", "46068MiB", 292.0),
    ("NVIDIA RTX A6000", "Ampere", "Gen4 x16", "49140MiB", 322.0),
    ("NVIDIA A10", "Ampere", "Gen4 x16", "23028MiB", 252.0),
    ("NVIDIA A100-PCIE-40GB", "Ampere", "Gen4 x16", "40960MiB", 650.0),
    ("NVIDIA H100 PCIe", "Hopper", "Gen5 x16", "81559MiB", 850.0),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "Blackwell", "Gen5 x16", "97887MiB", 707.0),
    ("Tesla V100-PCIE-32GB", "Volta", "Gen3 x16", "32768MiB", 375.0),
    ("Tesla T4", "Turing", "Gen3 x16", "15360MiB", 134.0),
]
GEFORCE = [
    ("NVIDIA GeForce RTX 4090", "Ada", "Gen4 x16", "24564MiB", 460.0),
    ("NVIDIA GeForce RTX 3090", "Ampere", "Gen4 x16", "24576MiB", 419.0),
    ("NVIDIA GeForce RTX 5060 Ti", "Blackwell", "Gen5 x8", "16311MiB", 188.0),
]
# The same with number and version of NVLinks, and the share that healthy ones reach.
SWITCHED = [
    ("NVIDIA H200", "Hopper", "Gen5 x16", "143771MiB", 2094.0, 18, "4.0", (0.868, 0.881)),
    ("NVIDIA H100 80GB HBM3", "Hopper", "Gen5 x16", "81559MiB", 1250.0, 18, "4.0", (0.825, 0.843)),
    ("NVIDIA H20", "Hopper", "Gen5 x16", "97871MiB", 1116.0, 18, "4.0", (0.83, 0.875)),
    ("NVIDIA A100-SXM4-80GB", "Ampere", "Gen4 x16", "81920MiB", 800.0, 12, "3.0", (0.89, 0.925)),
    ("NVIDIA A800-SXM4-80GB", "Ampere", "Gen4 x16", "81920MiB", 800.0, 8, "3.0", (0.89, 0.92)),
    ("NVIDIA B200", "Blackwell", "Gen5 x16", "183359MiB", 3200.0, 18, "5.0", (0.853, 0.862)),
]
MESHED = [
    ("NVIDIA A100-SXM4-40GB", "Ampere", "Gen4 x16", "40960MiB", 650.0, 4, "3.0", (0.89, 0.925)),
    ("NVIDIA H100 80GB HBM3", "Hopper", "Gen5 x16", "81559MiB", 1250.0, 6, "4.0", (0.826, 0.843)),
    ("Tesla V100-SXM2-32GB", "Volta", "Gen3 x16", "32768MiB", 375.0, 2, "2.0", (0.87, 0.91)),
]
BRIDGED = [
    ("NVIDIA A40", "Ampere", "Gen4 x16", "46068MiB", 292.0, 4, "3.1", (0.89, 0.92)),
    ("NVIDIA RTX A6000", "Ampere", "Gen4 x16", "49140MiB", 322.0, 4, "3.1", (0.89, 0.92)),
    ("NVIDIA H100 NVL", "Hopper", "Gen5 x16", "95830MiB", 1480.0, 12, "4.0", (0.855, 0.868)),
    ("NVIDIA A100-PCIE-40GB", "Ampere", "Gen4 x16", "40960MiB", 650.0, 12, "3.0", (0.89, 0.925)),
    ("NVIDIA GeForce RTX 3090", "Ampere", "Gen4 x16", "24576MiB", 419.0, 4, "3.1", (0.89, 0.92)),
]
KINDS = ["slots", "switches", "switches of switches", "NVSwitch", "mesh", "bridges", "no peer access", "guest", "unlike GPUs"]


def refused(status="CNS"):
    return {"nvml": status, "cuda": "refused"}


class Builder:
    """Builds a machine of one kind."""

    def __init__(self, r, kind):
        self.r, self.kind, self.m, self.bus = r, kind, Machine(), 0
        self.m.kind = kind

    def speeds(self, model, generation):
        r, link = self.r, PCIE_GBPS[generation] * 16
        between = lambda low, high: round(r.uniform(low, high), 3)
        pcie, far = between(0.825, 0.885), between(0.66, 0.78)
        host = {"up": between(0.82, 0.89), "down": between(0.82, 0.89), "both_ways": between(0.88, 0.94)}
        host.update(pageable_up_gbps=between(6, 10), pageable_down_gbps=between(10, 15))
        self.m.toml["speeds"] = {
            "pcie": {"copy": pcie, "push": round(pcie * between(0.93, 0.98), 3), "pull": round(pcie * between(0.8, 0.95), 3), "both_ways": between(0.9, 0.97)},
            "cross_socket": {"copy": far, "push": round(far * between(0.92, 0.97), 3), "pull": round(far * between(0.76, 0.9), 3), "both_ways": between(0.88, 0.96)},
            "staged": {"copy": between(0.36, 0.59)},
            "pcie_shared": round(max(pcie, host["up"], host["down"]) * between(1.0, 1.03), 3),
            "interconnect_gbps": round(link * between(1.3, 4), 1),
            "host_memory_gbps": round(link * between(2.5, 6), 1),
            "host": host,
        }
        if len(model) > 5:
            share = between(*model[7])
            self.m["speeds"]["nvlink"] = {"copy": share, "push": round(share * between(0.92, 0.94), 3), "pull": round(share * between(0.925, 0.945), 3), "both_ways": between(0.97, 0.99)}
            self.m["speeds"]["nvlink_shared"] = round(share * between(1.003, 1.008), 4)
        self.m.toml["noise"] = {"percent": r.choice([0.1, 0.3, 0.5, 1.0, 2.0]), "seed": r.randrange(1000)}

    def add(self, **function):
        self.m["pci"].append(function)
        return function["address"]

    def gpu(self, model, address, parent, link, **more):
        slot = {} if self.m["host"].get("virtual_machine") else {"slot": str(len(self.m["gpus"]) + 1)}
        function = {"address": address, **({"parent": parent} if parent else {}), **slot, **more}
        if link:
            function["max"] = link
        self.m["pci"].append(function)
        geforce = "GeForce" in model[0]
        one = {"name": model[0], "architecture": model[1], "pci": address, "memory": model[3], "local_gbps": round(model[4] * self.r.uniform(0.99, 1.01), 1)}
        one["state"] = {"ecc": False} if geforce else {}
        if model[0].split()[-1].startswith(("A100", "H100", "H200", "A800", "B200")) or "H100" in model[0]:
            one["state"]["mig"] = False
        self.m["gpus"].append(one)

    def root(self, node, link, bridge=None):
        """A root port on a bus of its own, or on the bus of a host bridge."""
        self.bus += 0x10
        where = {"numa_node": node} if node is not None else {}
        if bridge:
            where["host_bridge"] = bridge
        return self.add(address=f"0000:{self.bus:02x}:01.0", kind="root-port", max=link, **where)

    def tree(self, models, sockets, per_switch, levels=1, one_bridge=False, known=True):
        """GPUs below root ports, or below switches of so many slots."""
        count = len(models)
        width = 0
        for gpu, model in enumerate(models):
            node = gpu * sockets // count if known else None
            if width == 0 or (per_switch > 1 and node != last):
                width = per_switch
                link = self.port if self.port else model[2].split()[0] + " x16"
                top = self.root(node, link, f"pci0000:{node or 0:02x}" if one_bridge else None)
                at = self.bus + 1
                for _ in range(levels if per_switch > 1 else 0):
                    if at > self.bus + 1:
                        top = self.add(address=f"0000:{at:02x}:00.0", parent=top, kind="switch-downstream", max=link)
                        at += 1
                    top = self.add(address=f"0000:{at:02x}:00.0", parent=top, kind="switch-upstream", max=link)
                    at += 1
                upstream, ports = top, at
            last, parent, place = node, top, per_switch - width
            if per_switch > 1:
                parent = self.add(address=f"0000:{ports:02x}:{place:02x}.0", parent=upstream, kind="switch-downstream", max=link)
            self.gpu(model, f"0000:{(at if per_switch == 1 else ports) + 1 + place:02x}:00.0", parent, model[2])
            width -= 1

    def flat(self, models, sockets, shown):
        """GPUs at the root of a guest's bus, of which there is one for each node. What its host has above them is hidden."""
        host = self.m["host"]
        host["virtual_machine"] = True
        for gpu, model in enumerate(models):
            node = gpu * sockets // len(models)
            where = {"host_bridge": f"pci0000:{0x80 * node:02x}", **({"numa_node": node} if sockets > 1 else {})}
            self.gpu(model, f"0000:{0x80 * node:02x}:{gpu + 5:02x}.0", None, model[2] if shown else None, **where)

    def build(self):
        r, m, kind = self.r, self.m, self.kind
        self.port = None
        sockets = r.choice([1, 2, 2])
        known = r.random() > 0.08
        count = r.choice([2, 3, 4, 4, 4, 6, 8])
        if kind in ("slots", "switches", "switches of switches", "unlike GPUs", "guest"):
            model = r.choice(CARDS)
        elif kind == "no peer access":
            model = r.choice(GEFORCE)
        elif kind == "NVSwitch":
            model, count = r.choice(SWITCHED), r.choice([4, 8, 8])
        elif kind == "mesh":
            model, count = r.choice(MESHED), 4
        else:
            model, count = r.choice(BRIDGED), r.choice([2, 4, 4, 6, 8])
        guest = kind == "guest"
        if guest and r.random() < 0.3:
            model, count = r.choice(SWITCHED), r.choice([2, 4, 8])
        if kind == "unlike GPUs":
            count = max(count, 3)
        models = [model] * count
        if kind == "unlike GPUs":
            other = r.choice([one for one in CARDS if one != model])
            models = [model] * (count - r.choice([1, count // 2])) + [other] * count
            models = models[:count]
        sockets = 1 if count == 2 and r.random() < 0.6 else sockets
        generation = max(int(one[2][3]) for one in models)
        if kind in ("slots", "switches") and generation == 4 and r.random() < 0.15:
            generation, self.port = 3, "Gen3 x16"
        elif kind in ("slots", "no peer access") and r.random() < 0.12:
            self.port = f"Gen{generation} x8"
        self.speeds(model, generation)
        m.toml["numa_nodes"] = [{"cpus": f"{32 * node}-{32 * node + 31}", "memory": "256GiB"} for node in range(sockets)]
        if guest:
            self.flat(models, sockets if r.random() < 0.6 else 1, shown := len(model) > 5 or r.random() < 0.6)
            groups = [[gpu] for gpu in m.gpus()]
            if shown and count >= 4 and r.random() < 0.5 and len(model) == 5:
                groups = [list(m.gpus())[at : at + 2] for at in range(0, count, 2)]
                groups = [one for group in groups for one in ([group] if len({m.node(gpu) for gpu in group}) == 1 else [[gpu] for gpu in group])]
            if not shown or any(len(group) > 1 for group in groups):
                m.toml["uplinks"] = [{"ports": [m.root(gpu) for gpu in group], "gbps": round(rate(model[2]), 3)} for group in groups]
            # What several share although the guest shows no such link is slow together: no fault, and worth a warning.
            for group in groups:
                if len(group) > 1:
                    m.tolerated.append((LOAD | {"hidden-hop-shared", "pcie-upstream-bottleneck"}, {"machine"}))
            if len(model) == 5 and r.random() < 0.4:
                m["peers"]["rule"] = refused()
                # Its page: built that way by the host of a guest, without a word that this is information.
                m.tolerated.append(({"peer-access-missing"}, {"machine"}))
        else:
            per = {"slots": 1, "switches": r.choice([2, 4]), "switches of switches": 2, "NVSwitch": r.choice([1, 2, 2]), "mesh": r.choice([1, 2]), "bridges": r.choice([1, 1, 2]), "no peer access": r.choice([1, 1, 4]), "unlike GPUs": r.choice([1, 2])}[kind]
            self.tree(models, sockets, per, 2 if kind == "switches of switches" else 1, one_bridge=per == 1 and r.random() < 0.3, known=known)
        if kind == "no peer access":
            m["peers"]["rule"] = refused()
        if kind == "NVSwitch" or (guest and len(model) > 5):
            for one in m["gpus"]:
                one["nvlinks"] = [{"count": model[5], "version": model[6], "remote": "switch"}]
                if model[1] == "Ampere":
                    one["fabric"] = {"state": "not-supported"}
        elif kind == "mesh":
            ring = "V100" in model[0]
            for gpu, one in enumerate(m["gpus"]):
                others = [other for other in m.gpus() if other != gpu and not (ring and abs(other - gpu) == 2)]
                one["nvlinks"] = [{"count": model[5], "version": model[6], "remote": {"gpu": other}} for other in others]
                one["fabric"] = {"state": "not-supported"}
            if ring:
                m["peers"]["exceptions"] = [{"pairs": {"both": [a, a + 2]}, "rule": refused("TNS")} for a in (0, 1)]
        elif kind == "bridges":
            for gpu, one in enumerate(m["gpus"]):
                links = {"count": model[5], "version": model[6], "remote": {"gpu": gpu ^ 1}}
                one["nvlinks"] = [{**links, "link_gbps": 14.0625} if model[6] == "3.1" else links]
                one["fabric"] = {"state": "not-supported"}
            if "GeForce" in model[0]:
                m["peers"]["rule"] = refused()
                m["peers"]["exceptions"] = [{"pairs": {"both": [a, a + 1]}, "rule": {"nvml": "OK", "cuda": "granted"}} for a in range(0, count, 2)]
        self.habits()
        return m

    def habits(self):
        """What is odd and healthy."""
        r, m = self.r, self.m
        guest = m["host"].get("virtual_machine")
        ends = [m.function(one["pci"]) for one in m["gpus"]]
        if not guest and r.random() < 0.5:
            for end in ends:
                end["idle"] = "Gen1 x" + m.possible(end).split("x")[1]
        if not guest and r.random() < 0.1:
            for address in m.switches():
                m.function(address)["idle"] = "Gen1 x" + m.possible(m.function(address)).split("x")[1]
        if not guest and r.random() < 0.2:
            r.choice(ends)["errors"] = {"correctable": r.randrange(1, 5000), "non_fatal": 0, "fatal": 0}
        if r.random() < 0.05:
            m["faults"]["links"] = [{"function": r.choice(ends)["address"], "replays": r.randrange(1, 40)}]
        if r.random() < 0.1:
            for one in m["gpus"]:
                one["state"]["persistence"] = False
        if r.random() < 0.05:
            r.choice(m["gpus"])["gate_delay_us"] = round(r.uniform(0.5, 3), 1)
        if r.random() < 0.05:
            r.choice(m["gpus"])["state"]["processes"] = [{"pid": 4711, "memory_bytes": 500000000}]
        if r.random() < 0.05:
            r.choice(m["gpus"])["state"]["throttle_under_load"] = ["SW_POWER_CAP"]
        if not guest and r.random() < 0.05:
            r.choice(ends)["payload"] = 128
        if not guest and r.random() < 0.05:
            for end in ends:
                end["wakes"] = {"after_ms": 5.0, "for_ms": 2.0, "share": 0.4}
        if not guest and m.kind == "NVSwitch" and r.random() < 0.1:
            for one in m["pci"]:
                if one.get("kind") == "switch-downstream":
                    one["acs_redirect"] = True
        if m.kind == "slots" and not self.port and r.random() < 0.1:
            parent = m.function(r.choice(ends)["parent"])
            parent["max"] = parent["max"].replace("x16", r.choice(["x8", "x4"]))
            for end in ends:
                end.pop("idle", None)
            # Its page: a warning if other GPUs of the model sit in slots that carry more.
            m.tolerated.append(({"pcie-narrow-by-design"}, {"gpu", "machine"}))
        if not guest and r.random() < 0.3:
            self.bus += 0x10
            top = self.add(address=f"0000:{self.bus:02x}:01.0", kind="root-port", max="Gen4 x16", **({"numa_node": 0} if m.node(0) is not None else {}))
            nic = self.add(address=f"0000:{self.bus + 1:02x}:00.0", parent=top, max="Gen4 x16")
            m.toml["adapters"] = [{"name": "mlx5_0", "kind": "rdma", "pci": nic}]
