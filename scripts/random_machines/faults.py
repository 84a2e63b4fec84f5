"""The kinds of faults: what each changes in a description, and how it may be named."""

import copy
from collections import Counter, defaultdict

from .codes import EFFECTS, GAPS, HOST, HOST_EFFECTS, LOAD, PEER
from .machine import least, rate


def slow(share):
    return {"slow": {"share": share}}


class Fault:
    """A planted fault: how it changes a machine, and how it may be named."""

    def __init__(self, kind, apply, codes, gpus=(), pairs=(), addresses=(), effects=EFFECTS, machine=False, loose=False, register=False, shown=None, alone=False):
        self.kind, self.apply, self.codes, self.effects = kind, apply, set(codes), set(effects) - set(codes)
        self.gpus, self.pairs, self.addresses = set(gpus), {frozenset(pair) for pair in pairs}, set(addresses)
        # machine: the whole machine is its part. loose: a finding on several flows names it if they include its part.
        self.machine, self.loose = machine, loose
        # register: a fact shows it. shown: true or false where no model of figures decides, "load" where several flows show it.
        self.register, self.shown, self.alone = register, shown, alone
        # seen: the pairs by whose figures it is visible.
        self.visible, self.seen = None, set()


class Places:
    """Parts of a machine that are still free, and changes that several kinds of faults make."""

    def __init__(self, r, m):
        self.r, self.m, self.planted = r, m, []
        # What the faults of each GPU concern: one "pair", copies with the "host", or more.
        self.concerned = defaultdict(set)

    @property
    def taken(self):
        return set(self.concerned)

    def one(self, shared=False, beside="nothing"):
        """A GPU without a fault, or one whose faults the new one can be told from."""
        free = [gpu for gpu in self.m.gpus() if shared or self.concerned.get(gpu, set()) <= {beside}]
        return self.r.choice(free) if free else None

    def two(self, test):
        free = [gpu for gpu in self.m.gpus() if self.concerned.get(gpu, set()) <= {"host"}]
        found = [(a, b) for a in free for b in free if a != b and test(a, b)]
        return self.r.choice(found) if found else None

    def share(self, low=0.3, high=0.68):
        return round(self.r.uniform(low, high), 2)

    def partners(self, gpu):
        return [other for other in self.m.gpus() if other != gpu and self.m.direct(gpu, other)]

    def of_pairs(self, pairs, **fault):
        """A change that puts one entry for each of these pairs."""

        def apply(m):
            entries = [{"pairs": one, **copy.deepcopy(fault)} for one in pairs]
            # The first entry that matches applies: wrong bytes and failures go before rates.
            before = m["faults"].get("pairs", [])
            m["faults"]["pairs"] = before + entries if isinstance(fault["fault"], dict) and "slow" in fault["fault"] else entries + before

        return apply

    def put(self, key, entry):
        return lambda m: m["faults"].setdefault(key, []).append(copy.deepcopy(entry))

    def of_gpu(self, gpu, key, value):
        def apply(m):
            state = m["gpus"][gpu]["state"] if key in ("throttle_under_load", "mig", "compute_mode") or key.startswith(("ecc", "remapping")) else m["gpus"][gpu]
            state[key] = value

        return apply

    def narrow(self, address, **more):
        m, function = self.m, self.m.function(address)
        link = m.possible(function)
        if not link:
            return None
        generation, lanes = map(int, link[3:].split(" x"))
        if more.pop("generation", False):
            if generation < 3:
                return None
            generation = self.r.randrange(1, generation)
        else:
            lanes //= self.r.choice([2, 2, 4, 8])

        def apply(m):
            changed = m.function(address)
            changed["trained"] = f"Gen{generation} x{lanes}"
            if changed.get("idle"):
                changed["idle"] = least(changed["idle"], f"Gen1 x{lanes}")

        return Fault(apply=apply, codes={"pcie-narrow"}, addresses={address}, **more)

    def switched(self):
        return self.m["gpus"][0].get("nvlinks", [{}])[0].get("remote") == "switch"

    def refused(self, pairs, cuda="refused"):
        rule = {"nvml": "OK" if cuda != "refused" else "CNS", "cuda": cuda}
        return lambda m: m["peers"].setdefault("exceptions", []).append({"pairs": pairs, "rule": rule})

    def wrong(self):
        return self.r.choice(["dropped", {"corrupt": {"words": self.r.randrange(1, 99)}}, "wrong-source", {"shifted": {"bytes": 4}}, {"flipped-bit": {"bit": 77}}, {"missing-tail": {"bytes": 64}}, {"lost-line": {"every": 50}}, "stale"])

    def around(self, gpu):
        return [(gpu, other) for other in self.m.gpus() if other != gpu]

    def every(self):
        return [(a, b) for a in self.m.gpus() for b in self.m.gpus() if a < b]

    def on_node(self):
        """A node and its GPUs, if memory of it is used and no fault is there yet."""
        nodes = [node for node in range(len(self.m["numa_nodes"])) if any((self.m.node(gpu) or 0) == node for gpu in self.m.gpus())]
        node = self.r.choice(nodes)
        gpus = [gpu for gpu in self.m.gpus() if (self.m.node(gpu) or 0) == node]
        return (None, None) if set(gpus) & self.taken else (node, gpus)


class Planter(Places):
    """A method for each kind of fault: one in a free place, or none where the machine has no place for it."""

    # Links whose state registers show.

    def link_lanes(self):
        gpu = self.one()
        return self.narrow(self.m["gpus"][gpu]["pci"], kind="link: fewer lanes", gpus={gpu})

    def link_generation(self):
        gpu = self.one()
        return self.narrow(self.m["gpus"][gpu]["pci"], kind="link: lower generation", gpus={gpu}, generation=True)

    def uplink_lanes(self):
        places = [one for one in self.m.switches() if not set(self.m.below(one)) & self.taken]
        if not places:
            return None
        address = self.r.choice(places)
        below = self.m.below(address)
        return self.narrow(address, kind="uplink: fewer lanes", gpus=below, pairs=[(a, b) for a in below for b in self.m.gpus() if b not in below])

    def trains_down(self):
        gpu = self.one()
        address = self.m["gpus"][gpu]["pci"]
        link = self.m.possible(self.m.function(address))
        if not link or address in [one["function"] for one in self.m["faults"].get("links", [])]:
            return None
        generation, lanes = link[3:].split(" x")
        entry = {"function": address, "trains_down_to": f"Gen{generation} x{int(lanes) // self.r.choice([2, 4])}", "replays": self.r.choice([0, 900])}
        return Fault("link: trains down under load", self.put("links", entry), {"pcie-link-changed", "pcie-narrow"} | ({"pcie-errors-rose"} if entry["replays"] else set()), {gpu}, addresses={address})

    def link_errors(self):
        gpu = self.one()
        address = self.m["gpus"][gpu]["pci"]
        if address in [one["function"] for one in self.m["faults"].get("links", [])]:
            return None
        entry = {"function": address, "replays": self.r.randrange(400, 60000), "errors": {"correctable": self.r.randrange(400, 60000), "non_fatal": 0, "fatal": 0}}
        steps = [self.put("links", entry)]
        over_pcie = [other for other in self.partners(gpu) if not self.m.joined(gpu, other)]
        if over_pcie and self.r.random() < 0.5:
            steps.append(self.of_pairs([{"both": [gpu, other]} for other in over_pcie], fault=slow(self.share())))
        return Fault("link: errors and replays", lambda m: [step(m) for step in steps], {"pcie-errors-rose"}, {gpu}, self.around(gpu), {address}, register=True)

    def adapter_lanes(self):
        if not self.m["adapters"]:
            return None
        address = self.m["adapters"][0]["pci"]
        fault = self.narrow(address, kind="adapter: fewer lanes", register=True)
        fault.codes = {"adapter-link-narrow"}
        return fault

    # NVLinks.

    def links_down(self):
        gpu = self.one()
        if not self.switched():
            return None
        group = self.m["gpus"][gpu]["nvlinks"][0]
        down = self.r.randrange(1, group["count"] // 2)
        first = self.r.randrange(0, group["count"] - down)

        def apply(m):
            parts = [{**group, "count": first}, {**group, "count": down, "active": False}, {**group, "count": group["count"] - down - first}]
            m["gpus"][gpu]["nvlinks"] = [part for part in parts if part["count"]]

        return Fault("NVLinks to switches down", apply, {"nvlink-inactive"}, {gpu}, self.around(gpu), register=True)

    def path_down(self):
        pair = self.two(lambda a, b: self.m.nvlink_gbps(a, {"gpu": b}) > 0)
        if not pair:
            return None
        a, b = pair
        count = self.m["gpus"][a]["nvlinks"][0]["count"]
        down = self.r.choice([count, count // 2])

        def apply(m):
            for gpu, other in ((a, b), (b, a)):
                changed = []
                for group in m["gpus"][gpu]["nvlinks"]:
                    if group["remote"] != {"gpu": other}:
                        changed.append(group)
                        continue
                    changed += [{**group, "count": count - down}] if count > down else []
                    changed.append({**group, "count": down, "active": False})
                m["gpus"][gpu]["nvlinks"] = changed
            # The driver grants such boards peer access over their bridge alone.
            if "GeForce" in m["gpus"][a]["name"] and down == count:
                self.refused({"both": [a, b]})(m)

        # Its page excuses a card without a partner and a bridge that was never fitted, and a refused fallback has no link.
        return Fault("NVLinks between two GPUs down", apply, {"nvlink-inactive"}, {a, b}, [(a, b)], loose=True, register=True)

    def links_unlisted(self):
        gpu = self.one()
        if not self.switched():
            return None
        fewer = self.r.randrange(1, self.m["gpus"][gpu]["nvlinks"][0]["count"] // 2)

        def apply(m):
            m["gpus"][gpu]["nvlinks"][0]["count"] -= fewer

        return Fault("NVLinks not listed", apply, {"nvlink-missing"}, {gpu}, self.around(gpu), register=True)

    def nvlink_errors(self):
        gpu = self.one()
        if not self.m["gpus"][gpu].get("nvlinks"):
            return None
        entry = {"gpu": gpu, "link": 0, "errors": {"crc": self.r.randrange(50, 9000), "replay": self.r.randrange(50, 9000), "recovery": self.r.randrange(1, 40)}}
        steps = [self.put("nvlinks", entry)]
        joined = [other for other in self.partners(gpu) if self.m.joined(gpu, other)]
        if self.switched() and self.r.random() < 0.5:
            steps.append(self.of_pairs([{"both": [gpu, other]} for other in joined], fault=slow(self.share())))
        return Fault("NVLink errors", lambda m: [step(m) for step in steps], {"nvlink-errors-rose"}, {gpu}, self.around(gpu), register=True)

    def nvlink_uneven(self):
        gpu = self.one()
        if not self.switched():
            return None
        link = self.r.randrange(self.m["gpus"][gpu]["nvlinks"][0]["count"])
        return Fault("NVLink that carries too little", self.put("counters", {"gpu": gpu, "links": [{"link": link, "part": self.share(0.0, 0.5)}]}), {"nvlink-share-uneven"}, {gpu}, register=True)

    def over_pcie(self):
        pair = self.two(lambda a, b: self.m.joined(a, b))
        if not pair or self.m["host"].get("virtual_machine"):
            return None
        return Fault("NVLink pair copies over PCIe", lambda m: m["faults"].setdefault("over_pcie", []).append({"both": list(pair)}), {"traffic-over-pcie"} | PEER, pair, [pair], loose=True)

    def counted(self):
        gpu = self.one()
        if not self.switched():
            return None
        return Fault("NVLink counters count a part", self.put("counters", {"gpu": gpu, "counted": self.share(0.6, 0.85)}), {"counters-disagree"}, {gpu}, register=True)

    def fabric(self):
        gpu = self.one()
        if not self.switched() or self.m["gpus"][gpu]["architecture"] == "Ampere":
            return None
        state = self.r.choice([{"state": "in-progress"}, {"state": "not-started"}, {"state": "completed", "status": 999}])
        return Fault("fabric does not have a GPU", self.of_gpu(gpu, "fabric", state), {"fabric-not-ready"}, {gpu}, register=True)

    # GPUs by themselves.

    def lost(self):
        gpu = self.one()
        return Fault("GPU lost", self.put("lost_gpus", gpu), {"gpu-unreachable"}, {gpu}, self.around(gpu), effects=GAPS, register=True) if len(self.m["gpus"]) > 2 else None

    def unlisted(self):
        if self.m["host"].get("virtual_machine"):
            return None
        address, driver = "0000:fa:00.0", self.r.choice(["nouveau", "none", "nvidia"])
        entry = {"address": address, "max": "Gen4 x16", "id": "10de:26b9", "class": "030200", "driver": driver}
        return Fault("GPU not listed", lambda m: m["pci"].append(dict(entry)), {"gpu-not-listed"}, addresses={address}, register=True)

    def memory_errors(self):
        gpu = self.one(shared=True)
        if self.m["gpus"][gpu]["state"].get("ecc") is False:
            return None
        key, value = self.r.choice([("ecc_uncorrected", 3), ("ecc_uncorrected_under_load", 2), ("remapping_pending", True), ("remapping_failed", True)])
        return Fault("memory errors", self.of_gpu(gpu, key, value), {"gpu-memory-errors"}, {gpu}, register=True)

    def throttled(self):
        gpu = self.one()
        steps = [self.of_gpu(gpu, "throttle_under_load", [self.r.choice(["HW_THERMAL_SLOWDOWN", "HW_POWER_BRAKE_SLOWDOWN", "HW_SLOWDOWN"])])]
        if self.partners(gpu) and self.r.random() < 0.6:
            steps.append(self.of_pairs([{"both": [gpu, other]} for other in self.partners(gpu)], fault=slow(self.share())))
        return Fault("throttled", lambda m: [step(m) for step in steps], {"gpu-throttled"}, {gpu}, self.around(gpu), register=True)

    def local(self):
        gpu = self.one()
        rate = round(self.m["gpus"][gpu]["local_gbps"] * self.share(0.3, 0.75), 1)
        return Fault("local memory slow", self.of_gpu(gpu, "local_gbps", rate), {"local-memory-slow"}, {gpu}, self.around(gpu))

    def one_engine(self):
        gpu = self.one(shared=True)

        def apply(m):
            m["gpus"][gpu].update(one_host_engine=True, engines_reported=3)

        return Fault("copies with the host take turns", apply, {"copy-engines-fewer"}, {gpu}, effects=HOST_EFFECTS, register=True)

    def prohibited(self):
        gpu = self.one()
        if len(self.m["gpus"]) < 3:
            return None
        steps = [self.of_gpu(gpu, "compute_mode", "prohibited"), self.put("contexts", {"gpu": gpu, "code": 101, "meaning": "invalid device ordinal", "compute_mode": "prohibited"})]
        return Fault("GPU in prohibited mode", lambda m: [step(m) for step in steps], {"not-tested", "compute-mode-restricted"}, {gpu}, machine=True, effects=GAPS, register=True)

    def mig(self):
        gpu = self.one()
        if "mig" not in self.m["gpus"][gpu]["state"] or len(self.m["gpus"]) < 3 or not self.m.all_direct():
            return None
        names = Counter(one["name"] for one in self.m["gpus"])
        if names[self.m["gpus"][gpu]["name"]] < 2:
            return None
        steps = [self.of_gpu(gpu, "mig", True)] + [self.refused({"both": [gpu, other]}) for other in self.m.gpus() if other != gpu]
        return Fault("one GPU in MIG mode", lambda m: [step(m) for step in steps], {"mig-enabled", "peer-access-missing"}, {gpu}, self.around(gpu), effects=GAPS, register=True)

    def no_context(self):
        gpu = self.one()
        if len(self.m["gpus"]) < 3:
            return None
        entry = {"gpu": gpu, "code": 2, "meaning": "out of memory", "compute_mode": "default"}
        return Fault("no context on a GPU", self.put("contexts", entry), {"not-tested", "gpu-unreachable"}, {gpu}, machine=True, effects=GAPS, register=True)

    def cuda_init(self):
        code, meaning = self.r.choice([(802, "system not yet initialized"), (999, "unknown error"), (3, "initialization error")])
        codes = {"nothing-measured"} | ({"fabric-not-ready"} if code == 802 else set())
        return Fault("CUDA does not start", lambda m: m["faults"].update(cuda_init={"code": code, "meaning": meaning}), codes, machine=True, effects=GAPS, register=True, alone=True)

    def busy(self):
        gpu = self.one()
        if not self.partners(gpu):
            return None
        over = "nvlink" if self.m["gpus"][gpu].get("nvlinks") else "pcie"
        amount = self.m.joined(gpu, self.partners(gpu)[0]) * 0.4 if over == "nvlink" else 8.0
        steps = [self.put("others", {"gpu": gpu, over: [round(amount, 1), round(amount, 1)], "utilization": 60})]
        steps.append(lambda m: m["gpus"][gpu]["state"].update(processes=[{"pid": 5150, "memory_bytes": 600000000}]))
        steps.append(self.of_pairs([{"both": [gpu, other]} for other in self.partners(gpu)], fault=slow(self.share(0.4, 0.6))))
        return Fault("another program copies", lambda m: [step(m) for step in steps], {"gpu-busy"}, {gpu}, self.around(gpu), machine=True, effects=EFFECTS | GAPS, register=True)

    def busy_under_load(self):
        gpu = self.one()
        if not self.switched():
            return None
        entry = {"gpu": gpu, "nvlink": [0.0, 120.0], "only_under_load": True}
        return Fault("another program copies under load", self.put("others", entry), {"gpu-busy"}, {gpu}, register=True)

    # Access and bytes.

    def access_missing(self):
        pair = self.two(self.m.direct)
        others = pair and any(self.m.direct(a, b) for a in self.m.gpus() for b in self.m.gpus() if a < b and {a, b} != set(pair))
        if not pair or not (others or self.m.joined(*pair)):
            return None
        return Fault("peer access missing", self.refused({"both": list(pair)}), {"peer-access-missing"}, pair, [pair], register=True)

    def access_one_way(self):
        pair = self.two(self.m.direct)
        return Fault("peer access one way", self.refused({"ordered": list(pair)}), {"peer-access-missing one way"}, pair, [pair], register=True) if pair else None

    def access_on_enabling(self):
        pair = self.two(self.m.direct)
        return Fault("peer access refused on enabling", self.refused({"both": list(pair)}, "refused-on-enabling"), {"peer-access-missing"}, pair, [pair], register=True) if pair else None

    def data_pair(self):
        pair = self.two(self.m.direct)
        if not pair:
            return None
        only = self.r.choice([{}, {}, {"engine": "kernel"}, {"engine": "copy"}, {"issuer": "destination"}])
        fault = "dropped" if only.get("engine") == "kernel" else self.wrong()
        codes = {"data-wrong"} | ({"peer-access-broken"} if len(self.m["gpus"]) == 2 else set())
        return Fault("bytes of a pair wrong", self.of_pairs([{"ordered": list(pair)}], fault=fault, **only), codes, pair, [pair], effects={"data-wrong at once"}, register=True)

    def data_gpu(self):
        gpu = self.one()
        partners = self.partners(gpu)
        if len(partners) < 2:
            return None
        codes = {"data-wrong"} | ({"peer-access-broken"} if len(self.m["gpus"]) < 4 else set())
        return Fault("bytes into a GPU wrong", self.of_pairs([{"ordered": [other, gpu]} for other in partners], fault=self.wrong()), codes, {gpu}, self.around(gpu), effects={"data-wrong at once"}, register=True)

    def data_all(self):
        m = self.m
        if not m.all_direct() or any(m.joined(0, b) for b in m.gpus() if b) or self.taken:
            return None
        steps, codes = [self.of_pairs(["all"], fault="dropped")], {"peer-access-broken", "data-wrong"}
        if not m["host"].get("virtual_machine") and self.r.random() < 0.5:
            steps.append(lambda m: m["host"].update(iommu_translating=True))
            codes.add("iommu-translating")
        return Fault("bytes of all pairs dropped", lambda m: [step(m) for step in steps], codes, m.gpus(), self.every(), machine=True, effects={"data-wrong at once"}, register=True, alone=True)

    def data_under_load(self):
        pair = self.two(self.m.direct)
        if not pair or len(self.partners(pair[1])) < 2 or len(self.m["gpus"]) > 8:
            return None
        return Fault("bytes wrong under load", self.of_pairs([{"ordered": list(pair)}], fault=self.wrong(), beside_third=True), {"data-wrong at once", "data-wrong"}, pair, [pair], loose=True, effects=(), register=True)

    def hang(self):
        pair = self.two(self.m.direct)
        return Fault("copy hangs", self.of_pairs([{"ordered": list(pair)}], fault="hangs"), {"peer-copy-hung"}, pair, [pair], effects=GAPS, register=True) if pair else None

    def crash(self):
        pair = self.two(self.m.direct)
        return Fault("copy crashes", self.of_pairs([{"ordered": list(pair)}], fault="crashes"), {"copy-failed"}, pair, [pair], effects=GAPS, register=True) if pair else None

    def fails_under_load(self):
        pair = self.two(self.m.direct)
        if not pair or len(self.partners(pair[1])) < 2:
            return None
        fault = {"late-error": {"code": 700, "calls": 1}}
        return Fault("copy fails under load", self.of_pairs([{"ordered": list(pair)}], fault=fault, beside_third=True), {"copy-failed at once", "copy-failed"}, pair, [pair], machine=True, effects=GAPS, register=True)

    def host_wrong(self):
        gpu = self.one()
        entry = {"gpu": gpu, "fault": self.r.choice(["dropped", {"corrupt": {"words": 5}}]), "direction": self.r.choice(["to-device", "to-host"])}
        return Fault("bytes with the host wrong", self.put("host", entry), {"data-wrong with the host"}, {gpu}, effects=(), register=True)

    def host_hangs(self):
        gpu = self.one()
        entry = {"gpu": gpu, "memory": "pinned", "fault": "hangs"}
        return Fault("copy with the host hangs", self.put("host", entry), {"copy-failed with the host"}, {gpu}, effects=GAPS, register=True)

    # Slow copies between GPUs, which no register shows.

    def pair_slow(self):
        pair = self.two(self.m.direct)
        return Fault("pair slow", self.of_pairs([{"both": list(pair)}], fault=slow(self.share())), PEER, pair, [pair]) if pair else None

    def pair_a_little_slow(self):
        pair = self.two(self.m.direct)
        return Fault("pair a little slow", self.of_pairs([{"both": list(pair)}], fault=slow(self.share(0.76, 0.84))), PEER, pair, [pair]) if pair else None

    def gpu_itself(self):
        gpu = self.one()
        partners = self.partners(gpu)
        if len(partners) < 2:
            return None
        share = self.share(0.35, 0.65)
        steps = [self.of_pairs([{"both": [gpu, other]} for other in partners], fault=slow(share))]
        steps.append(self.of_gpu(gpu, "local_gbps", round(self.m["gpus"][gpu]["local_gbps"] * share, 1)))
        return Fault("GPU slow, its memory too", lambda m: [step(m) for step in steps], {"local-memory-slow"}, {gpu}, self.around(gpu))

    def pair_slow_one_way(self):
        pair = self.two(self.m.direct)
        return Fault("pair slow one way", self.of_pairs([{"ordered": list(pair)}], fault=slow(self.share())), PEER, pair, [pair]) if pair else None

    def gpu_slow(self, share=None, kind="GPU slow", ways=("both",)):
        gpu = self.one()
        partners = self.partners(gpu)
        if len(partners) < 2 or len(partners) < len(self.m["gpus"]) - 1:
            return None
        way = self.r.choice(ways)
        pairs = {"both": [{"both": [gpu, other]} for other in partners], "out": [{"ordered": [gpu, other]} for other in partners], "in": [{"ordered": [other, gpu]} for other in partners]}[way]
        addresses = self.m.series(gpu)
        return Fault(kind, self.of_pairs(pairs, fault=slow(share or self.share())), PEER, {gpu}, self.around(gpu), addresses)

    def gpu_slow_one_way(self):
        return self.gpu_slow(kind="GPU sends or receives slowly", ways=("out", "in"))

    def gpu_a_little_slow(self):
        if not self.switched() or self.m["noise"]["percent"] > 1:
            return None
        return self.gpu_slow(share=self.share(0.84, 0.89), kind="GPU a little slow", ways=("both", "out", "in"))

    def switch_slow(self):
        m = self.m
        places = [one for one in m.switches() if not set(m.below(one)) & self.taken and len(m.below(one)) > 1]
        if not places or not m.all_direct() or any(m.joined(0, b) for b in m.gpus() if b):
            return None
        address = self.r.choice(places)
        below = m.below(address)
        pairs = [(a, b) for a in below for b in m.gpus() if b not in below]
        if not pairs:
            return None
        outside = {b for _, b in pairs}
        addresses = {one["address"] for one in m.path(below[0]) if set(m.below(one["address"])) == set(below)}
        # Of two groups either end may be the cause.
        two = {one["address"] for one in m.path(min(outside)) if set(m.below(one["address"])) == outside}
        way = self.r.choice(["both", "both", "in", "out"])
        named = [{"both": [a, b]} if way == "both" else {"ordered": [a, b] if way == "out" else [b, a]} for a, b in pairs]
        fault = Fault("uplink of a switch slow", self.of_pairs(named, fault=slow(self.share())), PEER, below, pairs, addresses | two)
        fault.machine = bool(two)
        if len(outside) == 1:
            fault.gpus |= outside
        return fault

    def reads_slow(self):
        pair = self.two(self.m.direct)
        return Fault("reads of a pair slow", self.of_pairs([{"both": list(pair)}], issuer="destination", fault=slow(self.share(0.25, 0.65))), {"peer-copy-uneven"}, pair, [pair]) if pair else None

    def reads_gpu(self):
        gpu = self.one()
        if len(self.partners(gpu)) < 2:
            return None
        pairs = [{"both": [gpu, other]} for other in self.partners(gpu)]
        return Fault("reads of a GPU slow", self.of_pairs(pairs, issuer="destination", fault=slow(self.share(0.25, 0.65))), {"peer-copy-uneven"}, {gpu}, self.around(gpu))

    def kernels_pair(self):
        pair = self.two(self.m.direct)
        return Fault("kernel copies of a pair slow", self.of_pairs([{"both": list(pair)}], engine="kernel", fault=slow(self.share(0.2, 0.6))), {"peer-copy-uneven"}, pair, [pair]) if pair else None

    def kernels_slow(self):
        gpu = self.one()
        if len(self.partners(gpu)) < 2:
            return None
        return Fault("kernel copies of a GPU slow", self.of_pairs([{"both": [gpu, other]} for other in self.partners(gpu)], engine="kernel", fault=slow(self.share(0.2, 0.6))), {"peer-copy-uneven"}, {gpu}, self.around(gpu))

    def both_ways_pair(self):
        pair = self.two(self.m.direct)
        return Fault("pair slow both ways", self.of_pairs([{"both": list(pair)}], both_ways=True, fault=slow(self.share(0.2, 0.5))), {"both-ways-low"}, pair, [pair]) if pair else None

    def both_ways_gpu(self):
        gpu = self.one()
        if len(self.partners(gpu)) < 2:
            return None
        return Fault("GPU slow both ways", self.of_pairs([{"both": [gpu, other]} for other in self.partners(gpu)], both_ways=True, fault=slow(self.share(0.2, 0.5))), {"both-ways-low"}, {gpu}, self.around(gpu))

    def beside_third(self):
        pair = self.two(self.m.direct)
        if not pair or len(self.partners(pair[1])) < 2:
            return None
        return Fault("pair slow beside others", self.of_pairs([{"both": list(pair)}], beside_third=True, fault=slow(self.share(0.2, 0.4))), LOAD, pair, [pair], loose=True, shown="load")

    def all_beside_third(self):
        if len(self.m["gpus"]) < 3 or not self.m.all_direct():
            return None
        return Fault("all pairs slow beside others", self.of_pairs(["all"], beside_third=True, fault=slow(self.share(0.2, 0.4))), LOAD, self.m.gpus(), self.every(), machine=True, loose=True, shown="load", alone=True)

    def all_slow(self):
        if not self.m.all_direct() or self.taken:
            return None
        return Fault("all pairs slow", self.of_pairs(["all"], fault=slow(self.share(0.35, 0.6))), PEER, self.m.gpus(), self.every(), machine=True)

    def unstable(self):
        pair = self.two(self.m.direct)
        return Fault("pair unstable", self.of_pairs([{"both": list(pair)}], fault={"unstable": {"percent": float(self.r.randrange(50, 120))}}), {"unstable-measurement"}, pair, [pair], shown=True) if pair else None

    def outliers(self):
        pair = self.two(self.m.direct)
        fault = {"outliers": {"one_in": self.r.randrange(3, 7), "times": 5.0}}
        return Fault("some copies of a pair stall", self.of_pairs([{"both": list(pair)}], fault=fault), {"unstable-measurement"}, pair, [pair], shown=True) if pair else None

    def drift(self):
        gpu = self.one()
        if len(self.partners(gpu)) < 2 or len(self.partners(gpu)) < len(self.m["gpus"]) - 1:
            return None
        entry = {"gpu": gpu, "percent": float(self.r.randrange(30, 60)), "over_ms": self.r.choice([1.0, 50.0])}
        return Fault("GPU grows slower", self.put("drifts", entry), PEER | {"unstable-measurement"}, {gpu}, self.around(gpu), self.m.series(gpu))

    def latency(self):
        m = self.m
        classes = defaultdict(list)
        for a, b in self.every():
            if m.direct(a, b):
                path = "nvlink" if m.joined(a, b) else "cross_socket" if m.far(a, b) and m.meeting(a, b) is None else "pcie"
                classes[path].append((a, b))
        if not classes or self.taken:
            return None
        path = self.r.choice(sorted(classes))
        pairs, us = classes[path], float(self.r.choice([300, 900, 2000]))
        gpus = {gpu for pair in pairs for gpu in pair}

        def apply(m):
            m["speeds"].setdefault(path, {})["each_us"] = us

        return Fault("every copy of a class costs time", apply, {"latency-high"}, gpus, pairs, machine=True, loose=True, register=True)

    # The host.

    def host_gpu(self, memory=None, direction=None, share=None, kind="GPU slow with the host"):
        gpu = self.one(beside="pair")
        entry = {"gpu": gpu, "fault": slow(share or self.share(0.25, 0.6))}
        entry.update({"memory": memory} if memory else {}, **({"direction": direction} if direction else {}))
        return Fault(kind, self.put("host", entry), HOST | ({"pageable-slower"} if memory else set()), {gpu}, [], self.m.series(gpu), effects=HOST_EFFECTS)

    def host_all(self):
        if self.taken:
            return None
        entry = {"memory": self.r.choice(["pinned", None]), "fault": slow(self.share(0.25, 0.6))}
        entry = {key: value for key, value in entry.items() if value}
        return Fault("all GPUs slow with the host", self.put("host", entry), HOST | {"pinned-slower-than-pageable"}, self.m.gpus(), machine=True, effects=HOST_EFFECTS)

    def host_gpu_one_way(self):
        return self.host_gpu(direction=self.r.choice(["to-device", "to-host"]), kind="GPU slow with the host one way")

    def host_a_little_slow(self):
        return self.host_gpu(share=self.share(0.78, 0.85), kind="GPU a little slow with the host")

    def host_switch(self):
        m = self.m
        places = [one for one in m.switches() if not set(m.below(one)) & self.taken and 1 < len(m.below(one)) < len(m["gpus"])]
        if not places:
            return None
        below = m.below(self.r.choice(places))
        share = self.share(0.25, 0.6)
        addresses = {one["address"] for one in m.path(below[0]) if m.below(one["address"]) == below}

        def apply(m):
            m["faults"].setdefault("host", []).extend({"gpu": gpu, "fault": slow(share)} for gpu in below)

        return Fault("GPUs below a switch slow with the host", apply, HOST, below, [], addresses, effects=HOST_EFFECTS)

    def pageable(self):
        return self.host_gpu(memory="pageable", kind="pageable copies of a GPU slow")

    def host_unstable(self):
        gpu = self.one()
        # In a guest it is information: other users of the host do the same.
        if self.m["host"].get("virtual_machine"):
            return None
        return Fault("copies with the host unstable", self.put("host", {"gpu": gpu, "fault": {"unstable": {"percent": 90.0}}}), {"unstable-measurement"} | HOST, {gpu}, effects=HOST_EFFECTS, shown=True)

    def node_memory(self):
        node, gpus = self.on_node()
        if node is None:
            return None
        most = max(min(self.m.host_hops(gpu)) for gpu in gpus)
        values = {way: round(most * self.share(0.2, 0.5), 1) for way in self.r.choice([("read_gbps",), ("write_gbps",), ("read_gbps", "write_gbps")])}
        pairs = [(a, b) for a in gpus for b in self.m.gpus() if a != b]
        return Fault("memory of a node slow", lambda m: m["numa_nodes"][node].update(values), HOST | {"staged-slow"}, gpus, pairs, machine=len(gpus) == len(self.m["gpus"]), effects=HOST_EFFECTS)

    def host_node(self):
        node, gpus = self.on_node()
        if node is None:
            return None
        return Fault("copies with a node slow", self.put("host", {"node": node, "fault": slow(self.share(0.25, 0.6))}), HOST, gpus, [], machine=len(gpus) == len(self.m["gpus"]), effects=HOST_EFFECTS)

    def staged_gpu(self):
        gpu = self.one()
        if len(self.m["gpus"]) < 3:
            return None
        return Fault("staged copies of a GPU slow", self.of_pairs([{"both": list(pair)} for pair in self.around(gpu)], path="staged", fault=slow(self.share(0.2, 0.55))), {"staged-slow"}, {gpu}, self.around(gpu))

    def staged_pair(self):
        pair = self.two(lambda a, b: True)
        return Fault("staged copies of a pair slow", self.of_pairs([{"both": list(pair)}], path="staged", fault=slow(self.share(0.2, 0.55))), {"staged-slow"}, pair, [pair]) if pair else None

    def pinning(self):
        return Fault("page-locking refused", lambda m: m["faults"].update(pinning={"code": 2, "meaning": "out of memory"}), {"pinning-refused"}, machine=True, effects=GAPS, register=True, alone=True)

    def calls(self):
        if not self.partners(0):
            return None
        return Fault("calls of the host slow", lambda m: m["speeds"].update(copy_call_us=float(self.m["noise"]["seed"] + 2000)), {"host-calls-slow"}, machine=True, effects=EFFECTS | GAPS, register=True, alone=True)

    def kernels(self):
        return Fault("kernels cannot be loaded", lambda m: m["faults"].update(kernels="no kernel image is available"), {"not-tested", "nothing-measured"}, machine=True, effects=GAPS, register=True, alone=True)

    def late_gate(self):
        gpu = self.one()
        return Fault("GPU always late", self.put("late_gates", {"gpu": gpu, "us": 5000.0}), {"not-tested", "gpu-busy"}, {gpu}, machine=True, effects=GAPS, register=True, alone=True)

    # What several copies share.

    def hidden_uplink(self):
        roots = defaultdict(list)
        for gpu in self.m.gpus():
            if not self.m["uplinks"]:
                roots[self.m.root(gpu)].append(gpu)
        free = [one for one, gpus in roots.items() if not set(gpus) & self.taken]
        if len(roots) < 3 or len(free) < 2:
            return None
        chosen = self.r.sample(sorted(free), self.r.choice([2, 2, len(free)]) if len(free) > 2 else 2)
        gpus = sorted(gpu for one in chosen for gpu in roots[one])
        if len(gpus) == len(self.m["gpus"]) or len({self.m.node(gpu) for gpu in gpus}) > 1:
            return None
        entry = {"ports": chosen, "gbps": round(min(rate(self.m.possible(self.m.function(self.m["gpus"][gpu]["pci"]))) for gpu in gpus) * self.share(0.2, 0.6), 2)}
        pairs = [(a, b) for a in gpus for b in self.m.gpus() if a != b]
        codes = HOST | PEER | LOAD | {"staged-slow", "pcie-upstream-bottleneck", "hidden-hop-shared"}
        return Fault("hidden uplink slow", lambda m: m["uplinks"].append(copy.deepcopy(entry)), codes, gpus, pairs)

    def interconnect(self):
        m = self.m
        crossing = [(a, b) for a, b in self.every() if m.far(a, b) and m.direct(a, b) and not m.joined(a, b) and m.meeting(a, b) is None]
        if not crossing or self.taken:
            return None
        gbps = round(min(min(m.pcie_hops(a, b)[0]) for a, b in crossing) * self.share(0.2, 0.42), 2)
        gpus = {gpu for pair in crossing for gpu in pair}
        return Fault("link between the sockets slow", lambda m: m["speeds"].update(interconnect_gbps=gbps), PEER | LOAD, gpus, crossing, machine=True, loose=True)

    def collapse(self):
        m, r = self.m, self.r
        places = []
        if self.switched() and len(m["gpus"]) > 2:
            for gpu in m.gpus():
                top = m.nvlink_gbps(gpu, "switch") * m["speeds"]["nvlink"]["copy"]
                places.append(({"nvlinks": gpu}, {gpu}, top, set()))
        elif m.all_direct() and not any(m.joined(0, b) for b in m.gpus() if b):
            for gpu in m.gpus():
                if len(m["gpus"]) > 2 and m.trained(m.links(gpu)[0]):
                    places.append(({"pci": m.links(gpu)[0]["address"]}, {gpu}, m["speeds"]["pcie"]["copy"] * rate(m.trained(m.links(gpu)[0])), m.series(gpu)))
            for address in m.switches():
                below = m.below(address)
                if len(below) > 1 and len(m["gpus"]) - len(below) > 1:
                    same = {one["address"] for one in m.path(below[0]) if m.below(one["address"]) == below}
                    places += [({"pci": address}, set(below), m["speeds"]["cross_socket"]["copy"] * rate(m.trained(m.function(address))), same)] * 3
            crossing = [(a, b) for a, b in self.every() if m.far(a, b) and m.meeting(a, b) is None]
            if len({a for a, _ in crossing}) > 1 and len({b for _, b in crossing}) > 1 and not self.taken:
                places += [("interconnect", set(m.gpus()), m["speeds"]["cross_socket"]["copy"] * min(min(m.pcie_hops(a, b)[0]) for a, b in crossing), set())] * 3
        places = [place for place in places if not place[1] & self.taken]
        if not places:
            return None
        at, gpus, top, addresses = r.choice(places)
        kind = {"nvlinks": "NVLink port", "pci": "PCIe link"}.get(next(iter(at)) if isinstance(at, dict) else "", "link between the sockets")
        pairs = [(a, b) for a in gpus for b in m.gpus() if a != b]
        return Fault(f"{kind} collapses under load", self.put("collapses", {"at": at, "gbps": round(top * self.share(0.3, 0.7), 2)}), {"load-below-expected as error", "shared-hop-low"}, gpus, pairs, addresses, machine=at == "interconnect", shown="load")

    # Settings.

    def iommu(self):
        m = self.m
        if m["host"].get("virtual_machine"):
            return None
        over_pcie = [pair for pair in self.every() if m.direct(*pair) and not m.joined(*pair)]
        steps = [lambda m: m["host"].update(iommu_translating=True)]
        if over_pcie and not self.taken and self.r.random() < 0.5:
            factor = self.share(0.4, 0.6)

            def slower(m):
                for path in ("pcie", "cross_socket"):
                    for way in ("copy", "push", "pull"):
                        m["speeds"][path][way] = round(m["speeds"][path][way] * factor, 3)

            steps.append(slower)
        return Fault("IOMMU translates", lambda m: [step(m) for step in steps], {"iommu-translating"}, m.gpus(), self.every(), effects=EFFECTS if len(steps) > 1 else (), machine=True, register=True, shown=bool(over_pcie))

    def acs(self):
        m = self.m
        if m.kind == "NVSwitch" or not m.switches():
            return None
        places = [one for one in m.switches() if len(m.below(one)) > 1 and not set(m.below(one)) & self.taken]
        address = self.r.choice(places) if places else None
        below = m.below(address) if address else []
        if not any(m.direct(a, b) and not m.joined(a, b) for a in below for b in below if a < b):
            return None
        ports = [one["address"] for one in m["pci"] if one.get("parent") == address and one.get("kind") == "switch-downstream"]
        share = self.r.choice([1.0, self.share(0.4, 0.6)])

        def apply(m):
            for port in ports:
                m.function(port).update(acs_redirect=True, redirect_share=share)

        pairs = [(a, b) for a in below for b in m.gpus() if a != b]
        links = {one["address"] for gpu in below for one in m.path(gpu)}
        return Fault("access control redirects", apply, {"acs-redirect"}, below, pairs, links, machine=True, register=True)

    # What registers, errors and bytes show.
    FACTS = (
        "link_lanes link_generation uplink_lanes trains_down link_errors adapter_lanes links_down path_down links_unlisted nvlink_errors nvlink_uneven"
        " counted fabric lost unlisted memory_errors throttled one_engine prohibited mig no_context cuda_init busy busy_under_load access_missing"
        " access_one_way access_on_enabling data_pair data_gpu data_all data_under_load hang crash fails_under_load host_wrong host_hangs latency"
        " pinning calls kernels late_gate iommu acs"
    ).split()
    # What figures alone show; drawn twice as often.
    FIGURES = (
        "over_pcie local pair_slow pair_a_little_slow pair_slow_one_way gpu_slow gpu_itself gpu_slow_one_way gpu_a_little_slow switch_slow reads_slow"
        " reads_gpu kernels_slow kernels_pair both_ways_pair both_ways_gpu beside_third all_beside_third all_slow unstable outliers drift host_all"
        " host_gpu host_a_little_slow host_gpu_one_way host_switch pageable host_unstable node_memory host_node staged_gpu staged_pair hidden_uplink"
        " interconnect collapse"
    ).split()
    # Kinds that few machines have a place for; drawn three times as often.
    SELDOM = (
        "uplink_lanes links_down path_down links_unlisted nvlink_errors nvlink_uneven counted fabric mig busy_under_load acs over_pcie switch_slow"
        " gpu_a_little_slow hidden_uplink interconnect collapse host_switch drift gpu_slow_one_way"
    ).split()
    # Kinds that need no GPU without a fault.
    SHARED = {"memory_errors", "one_engine", "adapter_lanes", "unlisted"}

    def plant(self, count):
        r, names = self.r, set()
        kinds = self.FACTS + self.FIGURES
        weights = [(2 if kind in self.FIGURES else 1) * (3 if kind in self.SELDOM else 1) for kind in kinds]
        for _ in range(40):
            if len(self.planted) == count:
                break
            name = r.choices(kinds, weights)[0]
            if name in names or (self.one() is None and name not in self.SHARED):
                continue
            fault = getattr(self, name)()
            if fault is None or (fault.alone and self.planted):
                continue
            self.planted.append(fault)
            names.add(name)
            only_host = not fault.pairs and bool(fault.codes & HOST) and len(fault.gpus) == 1
            for gpu in fault.gpus:
                self.concerned[gpu].add("pair" if len(fault.pairs) == 1 and len(fault.gpus) == 2 else "host" if only_host else "more")
            if fault.alone:
                break
        return self.planted


# A kind that is in no list would never be drawn.
KINDS = {name for name, one in vars(Planter).items() if callable(one)} - {"plant"}
LISTED = {*Planter.FACTS, *Planter.FIGURES}
assert KINDS == LISTED, f"in one of kinds and lists alone: {sorted(KINDS ^ LISTED)}"
assert {*Planter.SELDOM, *Planter.SHARED} <= LISTED, "SELDOM or SHARED names no kind"
