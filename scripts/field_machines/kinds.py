"""Machines as they are built, each kind after public cases. Nothing here is a fault."""

from field_machines.description import Machine, gbps

GEFORCE = {"nvml": "CNS", "cuda": "refused"}  # shared/facts.md, section 6: GeForce, refused by the driver
GRANTED = {"nvml": "OK", "cuda": "granted"}
AMD, INTEL = ("AMD EPYC 7713 64-Core Processor", "AMD EPYC 9354 32-Core Processor"), ("Intel(R) Xeon(R) Gold 6430", "Intel(R) Xeon(R) Gold 6230R")


def desktop_intel(r):
    """The second slot hangs on the chipset, behind DMI that no file shows and that NVMe disks share.

    https://blog.nbdawn.com/posts/why-my-second-gpu-is-lazy-the-hidden-bottleneck-of-x86-io; docs/dev/facts.md: Gen4 x8 in a
    chipset slot, 6.5 GB/s. A post of May 2026 on reddit: 2 x RTX 5060 Ti, Gen5 x8 and Gen4 x4 by the chipset.
    """
    m = Machine("desktop-intel")
    name = r.choice(["NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 5060 Ti", "NVIDIA RTX A4000"])
    m.host["cpu"] = r.choice(["Intel Core i9-13900K", "Intel Core i7-12700K"])
    split = r.random() < 0.4  # x8/x8 of the processor, and the chipset's slot as the third
    for place in range(2 if split else 1):
        m.gpu(name, m.root("Gen4 x8" if split else "Gen4 x16", address=f"0000:00:01.{place}", identity="8086:a70d" if not place else "8086:a72d"))
    slot = m.root(r.choice(["Gen3 x4", "Gen4 x4", "Gen3 x4"]), address="0000:00:1b.0", identity="8086:7a44")
    m.gpu(name, slot)
    m.uplinks.append({"ports": [slot], "gbps": round(r.choice([3.94, 7.88, 15.75]) * r.uniform(0.8, 1), 2)})  # disks take a part
    consumer(r, m, name)
    return m


def desktop_amd(r):
    """X570 and X670: the chipset is a switch in the tree, Gen4 x4 to the processor. Ids: docs/rules/pcie-upstream-bottleneck.md."""
    m = Machine("desktop-amd")
    name = r.choice(["NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3060", "NVIDIA RTX A4000"])
    m.host["cpu"] = r.choice(["AMD Ryzen 9 5950X 16-Core Processor", "AMD Ryzen 9 7950X 16-Core Processor"])
    split = r.random() < 0.4
    for place in range(2 if split else 1):
        m.gpu(name, m.root("Gen4 x8" if split else "Gen4 x16", address=f"0000:00:01.{place + 1}"))
    up, down = r.choice([("1022:57ad", "1022:57a3"), ("1022:43f4", "1022:43f5")])
    upstream = m.switch(m.root("Gen4 x4", address="0000:00:02.1"), "Gen4 x4", up)
    m.gpu(name, m.port(upstream, r.choice(["Gen4 x4", "Gen3 x4"]), down))
    consumer(r, m, name)
    return m


def consumer(r, m, name):
    """Two memory channels, slow single threads, GeForce without peer access or with the patched driver."""
    m.nodes = [{"cpus": "0-15", "memory": "64GiB", "read_gbps": r.uniform(38, 60), "write_gbps": r.uniform(30, 50)}]
    m.speeds["host"] = {"pageable_up_gbps": r.uniform(4, 12), "pageable_down_gbps": r.uniform(4, 12)}
    if "GeForce" not in name:
        return
    if r.random() < 0.7:
        m.rule = GEFORCE
    else:
        patched(r, m)


def patched(r, m):
    """github.com/tinygrad/open-gpu-kernel-modules, issue 6: 25 to 26 GB/s one way, 41.4 both ways in all."""
    m.speeds["pcie"] = {"copy": r.uniform(0.79, 0.83), "both_ways": r.uniform(0.8, 0.95)}


def mining(r):
    """Risers of one lane, in slots of one lane or below a switch on a x1 card (ASM1184e): Gen1 to Gen3 x1 by design.

    shared/reviews/measuring.md, 1: "Gen1 x1 (mining risers)"; a card of 3.9 GB/s beside six of 50 in issue 6 of tinygrad's.
    """
    m = Machine("mining")
    m.host["cpu"] = r.choice(["Intel(R) Celeron(R) G3930", "AMD Ryzen 5 3600 6-Core Processor"])
    name = r.choice(["NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 3080"])
    m.rule = GEFORCE
    if r.random() < 0.5:
        for place in range(r.randint(3, 5)):
            m.gpu(name, m.root("Gen2 x1", address=f"0000:00:1c.{place}", identity=f"8086:a29{place}"))
    else:
        card = m.switch(m.root("Gen3 x1", address="0000:00:1c.0", identity="8086:a290"), "Gen2 x1", "1b21:1184")
        for _ in range(r.randint(2, 4)):
            m.gpu(name, m.port(card, "Gen2 x1", "1b21:1184"))
    m.nodes = [{"cpus": "0-3", "memory": "16GiB", "read_gbps": r.uniform(25, 38), "write_gbps": r.uniform(20, 30)}]
    m.speeds["host"] = {"pageable_up_gbps": r.uniform(3, 8), "pageable_down_gbps": r.uniform(3, 8)}
    return m


def workstation(r):
    """Four to seven GeForce cards on risers, a root complex each; some slots are x8 by the board.

    github.com/noonghunna/club-3090 issues 688, 1106, 1129 (WRX80, EPYC: buses 01, 41, 81, c5); tinygrad issues 6 and 26 (Intel:
    20 of 31.5 GB/s).
    """
    m = Machine("workstation")
    name = r.choice(["NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 5090"])
    intel = r.random() < 0.3
    m.host["cpu"] = r.choice(INTEL) if intel else r.choice(["AMD Ryzen Threadripper PRO 3955WX 16-Cores", "AMD EPYC 7302 16-Core Processor"])
    generation = 5 if "5090" in name and not intel and r.random() < 0.5 else 4
    narrow = r.choice([0, 0, 1, 2])
    count = r.choice([3, 4, 4, 5, 6])
    for place in range(count):
        m.gpu(name, m.root(f"Gen{generation} x{8 if place >= count - narrow else 16}", node=0))
    m.nodes = [{"cpus": "0-31", "memory": "256GiB", "read_gbps": r.uniform(80, 140), "write_gbps": r.uniform(60, 110)}]
    m.speeds["host"] = {"pageable_up_gbps": r.uniform(5, 12), "pageable_down_gbps": r.uniform(5, 14)}
    if r.random() < 0.45:
        m.rule = GEFORCE
    elif intel:
        low = r.uniform(0.63, 0.7)
        m.speeds["pcie"] = m.speeds["cross_socket"] = {"copy": low, "push": low, "pull": low * 0.85, "both_ways": r.uniform(0.8, 0.95)}
    else:
        patched(r, m)
        m.speeds["cross_socket"] = dict(m.speeds["pcie"])
    return m


def geforce_switch(r):
    """Cards without peer access below switches: copies through the host pass the shared uplink twice.

    https://github.com/NVIDIA/nccl/issues/1309: the pair below one switch is the slower one, because GeForce has no peer access.
    """
    m = Machine("geforce-switch")
    m.host["cpu"] = r.choice(AMD)
    sockets(r, m, 2)
    for node in range(2):
        switch = m.switch(m.root("Gen4 x16", node), "Gen4 x16")
        for _ in range(r.choice([2, 2, 4])):
            m.gpu("NVIDIA GeForce RTX 4090", m.port(switch, "Gen4 x16"))
    m.rule = GEFORCE
    return m


def sockets(r, m, count):
    for node in range(count):
        m.nodes.append({"cpus": f"{32 * node}-{32 * node + 31}", "memory": "256GiB", "read_gbps": r.uniform(100, 200), "write_gbps": r.uniform(80, 140)})


def bridges(r):
    """NVLink bridges between pairs; the rest over PCIe. 4 links on GA102, 12 on A100 and H100 NVL.

    docs/rules/nvlink-inactive.md; github.com/tinygrad/open-gpu-kernel-modules issue 3 (3090: 56 GB/s); azurehpc-health-checks issue
    162 (12 links: 257 of 300 GB/s); nccl issue 340.
    """
    m = Machine("bridges")
    name, count, version, each, share = r.choice([
        ("NVIDIA GeForce RTX 3090", 4, "3.1", 14.0625, 0.92), ("NVIDIA RTX A6000", 4, "3.1", 14.0625, 0.92), ("NVIDIA A40", 4, "3.1", 14.0625, 0.92),
        ("NVIDIA A100 80GB PCIe", 12, "3.0", None, 0.92), ("NVIDIA H100 NVL", 12, "4.0", None, 0.857)])
    m.host["cpu"] = r.choice(AMD)
    generation = 5 if "H100" in name else 4
    two = r.random() < 0.5
    cards = r.choice([2, 4, 4, 6, 8]) if "GeForce" not in name else r.choice([2, 4])
    sockets(r, m, 2 if two else 1)
    for gpu in range(cards):
        m.gpu(name, m.root(f"Gen{generation} x16", node=1 if two and gpu >= cards / 2 and cards > 2 else 0))
        group = {"count": count, "version": version, "remote": {"gpu": gpu ^ 1}} | ({"link_gbps": each} if each else {})
        m.gpus[gpu]["nvlinks"] = [group]
    m.speeds["nvlink"] = {"copy": share, "push": share - 0.07, "pull": share - 0.06}
    m.speeds["interconnect_gbps"] = r.uniform(60, 120)
    if "GeForce" in name:
        m.rule = GEFORCE
        m.exceptions = [{"pairs": {"both": [gpu, gpu + 1]}, "rule": GRANTED} for gpu in range(0, cards, 2)]
    return m


def unlike(r):
    """Unlike GPUs in one machine; peer access only between GPUs of one model.

    https://github.com/aikitoria/open-gpu-kernel-modules/pull/5: 2 x 4090, 2 x 5090, A6000, 2 x 3090 with the patched driver; issue 28
    of tinygrad's: 4090 and 4060 Ti.
    """
    m = Machine("unlike")
    first, other = r.choice([
        ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090"), ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 5090"), ("NVIDIA A100 80GB PCIe", "NVIDIA A40"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4060 Ti"), ("NVIDIA RTX A6000", "NVIDIA RTX 6000 Ada Generation")])
    m.host["cpu"] = r.choice(["AMD Ryzen Threadripper PRO 5975WX 32-Cores", *AMD])
    for name in [first] * r.choice([1, 2]) + [other] * r.choice([1, 2]):
        m.gpu(name, m.root(r.choice(["Gen4 x16", "Gen4 x16", "Gen4 x8"]), node=0))
    sockets(r, m, 1)
    m.rule = GEFORCE if "GeForce" in first + other else {"nvml": "NS", "cuda": "refused"}
    allowed = "GeForce" not in first or r.random() < 0.5
    if allowed:
        m.exceptions = [{"pairs": {"both": [a, b]}, "rule": GRANTED} for a in range(len(m)) for b in range(a + 1, len(m)) if m.gpus[a]["name"] == m.gpus[b]["name"]]
    return m


def guest(r):
    """A guest: a made-up tree, no node, no ACS; peer access refused by the emulated chipset, or passed through.

    shared/facts.md, sections 1 and 6: flat tree, link files empty or those of the GPU; "CNS in a virtual machine is the emulated
    chipset"; staged copies of 35 to 38 GB/s at Gen5. Pageable copies in two states: section 9.
    """
    m = Machine("guest")
    name = r.choice(["NVIDIA A10", "Tesla T4", "NVIDIA L40S", "NVIDIA A100 80GB PCIe", "NVIDIA H100 PCIe"])
    m.host |= {"virtual_machine": True, "cpu": r.choice(["AMD EPYC Processor", "Intel Xeon Processor (SapphireRapids)"])}
    empty = r.random() < 0.5
    from field_machines.description import LINKS
    for place in range(r.choice([2, 4, 4, 8])):
        address = m.function(f"0000:00:{5 + place:02x}.0", host_bridge="pci0000:00", max="none" if empty else LINKS[name])
        m.gpus.append({"name": name, "pci": address})
        m.uplinks.append({"ports": [address], "gbps": gbps(LINKS[name])})
    if r.random() < 0.5:
        m.rule = GEFORCE
        m.tolerated.add(("peer-access-missing", None))  # docs/machines.md has it on the healthy vm-flat
    m.nodes = [{"cpus": "0-47", "memory": "384GiB", "read_gbps": r.uniform(90, 160), "write_gbps": r.uniform(80, 120)}]
    m.speeds["host"] = {"pageable_up_gbps": r.uniform(5.5, 12), "pageable_down_gbps": r.uniform(8, 15)}
    return m


def chiplets(r):
    """An EPYC with four nodes in a socket (NPS4): pairs within a quadrant, beside, and across; 40 and 36 GB/s of 63.

    https://github.com/NVIDIA/nccl-tests/issues/74 (A40, EPYC 7302, NPS4), https://github.com/NVIDIA/nccl/issues/1285. The tiers are
    those of the brief that this generator is written after; the range, docs/rules/README.md: pcie-far-amd, 51 to 81%.
    """
    m = Machine("chiplets")
    name, link = r.choice([("NVIDIA H100 PCIe", "Gen5 x16"), ("NVIDIA L40S", "Gen4 x16"), ("NVIDIA A40", "Gen4 x16")])
    m.host["cpu"] = r.choice(AMD)
    for node in range(4):
        m.nodes.append({"cpus": f"{8 * node}-{8 * node + 7}", "memory": "96GiB", "read_gbps": r.uniform(64, 90), "write_gbps": r.uniform(62, 80)})
        for _ in range(r.choice([1, 1, 2])):
            m.gpu(name, m.root(link, node))
    far = r.uniform(0.62, 0.72)
    m.speeds |= {"cross_socket": {"copy": far, "push": far - 0.03, "pull": far - 0.1}, "interconnect_gbps": r.uniform(90, 150)}
    if r.random() < 0.7:  # quadrants across the die are a step slower than those beside each other, all of them alike
        tier = r.choice([0.9, 0.92])
        for a in range(len(m)):
            for b in range(a + 1, len(m)):
                if {m.node(a), m.node(b)} in ({0, 3}, {1, 2}):
                    m.tiers.append({"pairs": {"both": [a, b]}, "fault": {"slow": {"share": tier}}})
    return m


def switches(r):
    """Two sockets, one or two switches in each, two to four GPUs below each; the uplink is shared by all of them by design.

    docs/dev/facts.md; shared/facts.md, section 5: same socket 84 to 90%, other socket 62 to 81%; NCCL: 16 of 31.5 across AMD's sockets.
    """
    m = Machine("switches")
    name = r.choice(["NVIDIA L40S", "NVIDIA A40", "NVIDIA A100 80GB PCIe", "NVIDIA H100 PCIe", "NVIDIA RTX PRO 6000 Blackwell Server Edition"])
    generation = 5 if "H100" in name or "PRO" in name else 4
    intel = r.random() < 0.5
    m.host["cpu"] = r.choice(INTEL if intel else AMD)
    sockets(r, m, 2)
    number, below = r.choice([(1, 4), (2, 2), (1, 2), (2, 2)])
    near = r.random() < 0.6
    for node in range(2):
        for _ in range(number):
            switch = m.switch(m.root(f"Gen{generation} x16", node), f"Gen{generation} x16")
            for _ in range(below):
                m.gpu(name, m.port(switch, f"Gen{generation} x16"))
            if near:
                adapter(m, m.port(switch, f"Gen{generation} x16"), generation)
    share = r.uniform(0.82, 0.87)
    far = r.uniform(0.63, 0.74)
    m.speeds |= {"pcie": {"copy": share}, "cross_socket": {"copy": far, "push": far - 0.03, "pull": far - 0.12}}
    m.speeds |= {"interconnect_gbps": r.uniform(40, 120), "staged": {"copy": r.uniform(0.36, 0.55)}}
    return m


def adapter(m, port, generation):
    address = m.function(f"0000:{m.next_bus():02x}:00.0", parent=port, max=f"Gen{generation} x16")
    m.adapters.append({"name": f"mlx5_{len(m.adapters)}", "kind": "rdma", "pci": address, "rate_mbit": 400000 if generation == 5 else 200000})


def module(r):
    """HGX boards behind NVSwitch, on metal and in guests: shared/facts.md, sections 1, 5 and 7; azhpc-diagnostics issue 73."""
    m = Machine("module")
    name, count, version, share, generation = r.choice([
        ("NVIDIA H100 80GB HBM3", 18, "4.0", 0.88, 5), ("NVIDIA H200", 18, "4.0", 0.88, 5), ("NVIDIA A100-SXM4-80GB", 12, "3.0", 0.92, 4), ("NVIDIA B200", 18, "5.0", 0.86, 5)])
    cards = r.choice([4, 8, 8]) if "B200" not in name else 8
    m.speeds["nvlink"] = {"copy": share, "push": share - 0.07, "pull": share - 0.06}
    if r.random() < 0.35:
        m.host |= {"virtual_machine": True, "cpu": "Intel Xeon Processor"}
        m.nodes = [{"cpus": "0-127", "memory": "1536GiB", "read_gbps": r.uniform(140, 180), "write_gbps": r.uniform(85, 150)}]
        for place in range(cards):
            address = m.function(f"0000:00:{6 + place:02x}.0", max=f"Gen{generation} x16")
            m.gpus.append({"name": name, "pci": address})
    else:
        m.host |= {"cpu": r.choice(INTEL if generation == 5 else AMD), "fabric_manager_running": True}
        sockets(r, m, 2)
        for pair in range(cards // 2):
            switch = m.switch(m.root(f"Gen{generation} x16", node=int(pair >= cards / 4)), f"Gen{generation} x16")
            for _ in range(2):
                m.gpu(name, m.port(switch, f"Gen{generation} x16"))
            adapter(m, m.port(switch, f"Gen{generation} x16"), generation)
        for place in range(4):
            m.function(f"0000:f{place}:00.0", id="10de:1af1" if generation == 4 else "10de:22a3", **{"class": "068000"})
    for gpu in m.gpus:
        gpu["nvlinks"] = [{"count": count, "version": version, "remote": "switch"}]
        gpu["state"] = {"mig": False}
    return m


def mesh(r):
    """Four V100 SXM2, two links between each pair: Dell's figures (docs/rules/README.md); azhpc-diagnostics issue 73."""
    m = Machine("mesh")
    m.host["cpu"] = "Intel(R) Xeon(R) Gold 6230R"
    sockets(r, m, 2)
    for node in range(2):
        switch = m.switch(m.root("Gen3 x16", node), "Gen3 x16")
        for _ in range(2):
            m.gpu("Tesla V100-SXM2-32GB", m.port(switch, "Gen3 x16"))
    for gpu in range(4):
        m.gpus[gpu]["nvlinks"] = [{"count": 2, "version": "2.0", "remote": {"gpu": other}} for other in range(4) if other != gpu]
    m.speeds["nvlink"] = {"copy": 0.955, "push": 0.88, "pull": 0.89}
    return m


def split(r):
    """A bifurcated riser: one slot of 16 lanes as x8/x8 or x4/x4/x4/x4 by the BIOS, ports of eight or four lanes each."""
    m = Machine("split")
    name = r.choice(["NVIDIA GeForce RTX 3090", "NVIDIA RTX A4000", "NVIDIA RTX A6000", "NVIDIA L40S"])
    m.host["cpu"] = r.choice(["AMD EPYC 7302 16-Core Processor", "AMD Ryzen Threadripper PRO 5975WX 32-Cores"])
    lanes = r.choice([4, 8, 8])
    for place in range(r.choice([2, 4]) if lanes == 8 else 4):
        m.gpu(name, m.root(f"Gen4 x{lanes}", node=0, address=f"0000:{0x40 * (place // 2 if lanes == 8 else 0):02x}:03.{place + 1}"))
    sockets(r, m, 1)
    if "GeForce" in name:
        m.rule = GEFORCE
    return m


KINDS = [desktop_intel, desktop_amd, mining, workstation, geforce_switch, bridges, unlike, guest, chiplets, switches, module, mesh, split]


def build(r):
    m = r.choice(KINDS)(r)
    m.noise = {"percent": round(r.uniform(0, 3), 1), "seed": r.randrange(1 << 30)}  # brief: healthy figures vary by 0 to 3%
    if not m.guest() and r.random() < 0.6 and all("idle" not in one for one in m.pci):
        for gpu in m.gpus:  # shared/facts.md, section 6: idle GPUs drop their link to Gen1
            function = m.of(gpu["pci"])
            if function.get("max") != "none" and m.own_link(m.gpus.index(gpu)):
                function["idle"] = "Gen1 x" + m.own_link(m.gpus.index(gpu)).split("x")[1]
    if r.random() < 0.3:
        m.host["up_seconds"] = r.randrange(4000, 4000000)
    narrow_as_built(m)
    return m


def narrow_as_built(m):
    """docs/rules/pcie-narrow-by-design.md and pcie-upstream-bottleneck.md: a warning where others of the model sit wider, or shared links are too narrow."""
    for gpu in range(len(m)):
        own = m.own_link(gpu)
        if not own:
            continue
        if any(m.own_link(one) and gbps(m.own_link(one)) > gbps(own) for one in range(len(m)) if m.gpus[one]["name"] == m.gpus[gpu]["name"]):
            m.tolerated.add(("pcie-narrow-by-design", gpu))
        if m.way(gpu) < gbps(own) - 0.01 or m.uplink(gpu) or m.kind in ("mining", "desktop-intel", "desktop-amd"):
            m.tolerated.add(("pcie-upstream-bottleneck", gpu))
