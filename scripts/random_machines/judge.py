"""The judge: which faults are visible, from the description alone, and what became of each fault and finding."""

import copy
import re
import statistics
from collections import defaultdict

from .codes import GAPS, LOAD, code_of

# A loss that counts: more than repeats of healthy machines are known to differ.
LOSS = 0.10
# The same of a flow beside others. Ports that take turns give one flow of several little more than half of its fair share.
LOAD_LOSS = 0.40


def decide(base, faults):
    """Sets which faults are visible in the machine that has all of them."""

    def with_faults(some):
        m = copy.deepcopy(base)
        for fault in some:
            fault.apply(m)
        return m

    m = with_faults(faults)
    healthy, now = base.figures(), m.figures()
    sound = defaultdict(list)
    for key, (value, alike, _, _) in now.items():
        if value > 0.97 * healthy.get(key, (value,))[0]:
            sound[key[0], alike].append((frozenset(key[1:]), value))
    loaded = m.load() if any(fault.shown == "load" for fault in faults) else {}
    for fault in faults:
        if fault.shown == "load":
            without = with_faults([one for one in faults if one is not fault]).load()
            fault.visible = any(value < (1 - LOAD_LOSS) * without[flow] for flow, value in loaded.items())
            continue
        if fault.shown is not None:
            fault.visible = fault.shown
            continue
        if fault.register:
            fault.visible = True
            continue
        without = with_faults([one for one in faults if one is not fault]).figures()
        fault.visible = False
        for key, (value, alike, share, theory) in now.items():
            before = without.get(key, (value,))[0]
            if value > (1 - LOSS) * before:
                continue
            others = sound[key[0], alike]
            below_others = len({ends for ends, _ in others}) > 1 and value < (1 - LOSS) * statistics.median(one for _, one in others)
            below_known = share is not None and value < (1 - LOSS) * share * theory
            # A way of copying shows itself beside another way of the same pair.
            beside = key[0] in ("read", "kernel", "both") and value < {"read": 0.7, "kernel": 0.5, "both": 0.55}[key[0]] * now["peer", key[1], key[2]][0]
            if below_others or below_known or beside:
                fault.visible = True
                # What another fault makes low as well does not show this one.
                if len(key) == 3 and before >= (1 - LOSS) * healthy.get(key, (before,))[0]:
                    fault.seen.add(frozenset(key[1:]))
    m.low = {frozenset(key[1:]) for key, one in healthy.items() if key[0] == "peer" and (key not in now or now[key][0] < (1 - LOSS) * one[0])}
    return m


class Finding:
    def __init__(self, m, row):
        self.code, self.severity, self.message = code_of(row), row["severity"], row["message"]
        self.subject, evidence = row["subject"], row.get("evidence", {})
        self.kind, self.address = self.subject["kind"], self.subject.get("address")
        listed = lambda key, kind: [one for one in (evidence.get(key) if isinstance(evidence.get(key), list) else []) if isinstance(one, kind)]
        self.pairs = {frozenset(int(word) for word in one.split() if word.isdigit()) for one in listed("pairs", str)}
        self.gpus = set(listed("gpus", int) + listed("gpus_behind", int))
        if not self.pairs and not self.gpus:
            self.pairs = {frozenset(map(int, one)) for one in re.findall(r"GPU (\d+) → GPU (\d+)", self.message)}
        if self.kind in ("gpu", "link"):
            self.gpus = {self.subject["index"]}
        elif self.kind == "pair":
            self.gpus = {self.subject["source"], self.subject["destination"]}
            self.pairs.add(frozenset(self.gpus))
        elif self.address:
            self.gpus = set(m.below(self.address))

    def where(self):
        words = {"machine": "machine", "gpu": f"gpu{self.subject.get('index')}", "link": f"link{self.subject.get('index')}.{self.subject.get('link')}", "pair": f"{self.subject.get('source')}->{self.subject.get('destination')}"}
        return words.get(self.kind, self.address)


def is_lone(gpus, fault, m):
    """Whether no other pair of a GPU shows that a pair is slow and not the GPU: all that are connected alike are low too."""
    (gpu,) = gpus
    (pair,) = fault.pairs
    (other,) = pair - gpus
    alike = [one for one in m.gpus() if one not in pair and m.direct(gpu, one) and bool(m.joined(gpu, one)) == bool(m.joined(gpu, other))]
    return all(frozenset((gpu, one)) in m.low for one in alike)


def is_part(fault, finding, faults, m):
    """Whether what a finding accuses is what a fault changed, or that together with faults that the code names as well."""
    # A finding on ways of copying lists the pairs of the whole machine.
    return is_at(fault, finding, [one for one in faults if finding.code in one.codes or (finding.code == "peer-copy-uneven" and finding.code in one.effects)], m)


def is_at(fault, finding, alike, m):
    """The same by the place alone; the faults `alike` may share one accusation."""
    gpus = set().union(*(one.gpus for one in alike))
    pairs = set().union(*(one.pairs for one in alike))
    alone = len(m["gpus"]) == 2
    if finding.kind in ("gpu", "link"):
        of_pair = len(fault.pairs) == 1 and len(fault.gpus) == 2
        return finding.gpus <= fault.gpus and (not of_pair or fault.loose or alone or is_lone(finding.gpus, fault, m))
    if finding.kind == "pair":
        one = frozenset(finding.gpus)
        return one in fault.pairs and (len(fault.pairs) == 1 or finding.pairs >= fault.pairs or fault.loose or fault.seen == {one})
    if finding.address:
        return finding.address in fault.addresses or (len(fault.gpus) == 1 and finding.gpus == fault.gpus)
    # The subject is the machine; what it lists counts.
    if fault.machine:
        return True
    if fault.loose:
        return bool(finding.pairs & fault.pairs) or bool(finding.gpus & fault.gpus)
    if finding.pairs and fault.pairs:
        return finding.pairs <= pairs and bool(finding.pairs & fault.pairs)
    if finding.gpus:
        return finding.gpus <= gpus and bool(finding.gpus & fault.gpus)
    return alone or len(fault.gpus) == len(m["gpus"])


def is_effect(fault, finding, m):
    """Whether a finding is another effect of a fault, on its parts."""
    if finding.code not in fault.effects and finding.code not in fault.codes:
        return False
    if finding.code in GAPS or (fault.machine and len(fault.gpus) in (0, len(m["gpus"]))):
        return True
    if finding.kind == "machine" and finding.code in LOAD and finding.pairs & fault.pairs:
        return True
    if finding.pairs and fault.pairs:
        return finding.pairs <= fault.pairs and (finding.kind != "gpu" or finding.gpus <= fault.gpus)
    if finding.address and finding.address in fault.addresses:
        return True
    return bool(finding.gpus) and finding.gpus <= fault.gpus


class Judgement:
    """What became of each fault and each finding of one machine."""

    def __init__(self, seed, m, faults, rows):
        self.seed, self.m, self.faults = seed, m, faults
        self.findings = [Finding(m, row) for row in rows if row["severity"] != "info"]
        self.of, self.named = {}, defaultdict(list)
        for finding in self.findings:
            named = [fault for fault in faults if finding.code in fault.codes and is_part(fault, finding, faults, m)]
            for fault in named:
                self.named[fault].append(finding)
            if named:
                self.of[finding] = "right"
            elif any(is_effect(fault, finding, m) for fault in faults):
                self.of[finding] = "repeated"
            elif any(finding.code in codes and finding.kind in kinds for codes, kinds in m.tolerated):
                self.of[finding] = "tolerated"
            else:
                self.of[finding] = "invented"
        self.missed = [fault for fault in faults if fault.visible and not self.named[fault]]
        self.invented = [finding for finding in self.findings if self.of[finding] == "invented"]
        self.right = not self.missed and not self.invented
        extra = [one for one in self.findings if self.of[one] == "repeated"]
        self.exact = self.right and not extra and all(len(found) <= 1 for found in self.named.values())

    def line(self):
        words = [f"{'missed' if fault in self.missed else 'found' if self.named[fault] else 'not visible'}: {fault.kind} {parts(fault)}" for fault in self.faults]
        words += [f"{self.of[one]}: {one.code}@{one.where()}" for one in self.findings if self.of[one] in ("invented", "repeated")]
        return f"{self.seed} ({self.m.kind}, {len(self.m['gpus'])} GPUs): " + "; ".join(words)


def parts(fault):
    gpus = ",".join(map(str, sorted(fault.gpus)))
    return f"[{gpus}]" if gpus else f"[{', '.join(sorted(fault.addresses)) or 'machine'}]"
