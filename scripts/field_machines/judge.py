"""Each finding is right, repeated, tolerated or invented; each visible fault is found or missed."""

import re


class Finding:
    def __init__(self, raw):
        self.code, self.severity, self.message = raw["code"], raw["severity"], raw["message"]
        subject, evidence = raw["subject"], raw.get("evidence", {})
        self.kind = subject["kind"]
        self.gpu = subject.get("index", subject.get("gpu") if self.kind != "machine" else None)
        self.pair = frozenset((subject["source"], subject["destination"])) if "source" in subject and "destination" in subject else None
        self.address = subject.get("address")
        named = [frozenset(map(int, re.findall(r"GPU (\d+)", text))) for text in evidence.get("pairs", []) if isinstance(text, str)]
        self.named_pairs = [pair for pair in named if pair]
        self.named_gpus = set(evidence.get("gpus_behind", [])) | set(one for one in evidence.get("gpus", []) if isinstance(one, int))
        if self.kind == "machine" and not self.named_pairs and not self.named_gpus:
            self.named_gpus = set(map(int, re.findall(r"GPU (\d+)", raw["message"])))

    def where(self):
        if self.pair:
            return "pair " + "-".join(map(str, sorted(self.pair)))
        return f"GPU {self.gpu}" if self.gpu is not None else self.address or self.kind


def names(fault, finding):
    """The finding's subject is a part of the fault."""
    if finding.pair is not None:
        return finding.pair in fault.pairs or (len(finding.pair & fault.gpus) == 2 and not fault.pairs)
    if finding.gpu is not None:
        return finding.gpu in fault.gpus
    if finding.address:
        return finding.address in fault.addresses
    if fault.whole:
        return True
    if finding.named_pairs:
        return all(pair in fault.pairs or pair & fault.gpus for pair in finding.named_pairs)
    return bool(finding.named_gpus) and finding.named_gpus <= (fault.gpus | {one for pair in fault.pairs for one in pair})


def touches(fault, finding):
    """What the finding is about is slowed or disturbed by the fault."""
    if names(fault, finding):
        return True
    if finding.pair is not None:
        return bool(finding.pair & fault.reach)
    if finding.address:
        return bool(finding.named_gpus) and finding.named_gpus <= fault.reach
    if finding.gpu is not None:
        return finding.gpu in fault.reach
    return bool(finding.named_pairs) and all(pair & fault.reach or pair in fault.pairs for pair in finding.named_pairs)


class Judgement:
    def __init__(self, seed, m, faults, findings):
        self.seed, self.m, self.faults = seed, m, faults
        self.findings = [one for one in map(Finding, findings) if one.severity in ("warning", "error")]
        self.of, named = {}, {fault: [] for fault in faults}
        for finding in self.findings:
            right = [fault for fault in faults if finding.code in fault.codes and names(fault, finding)]
            beside = [fault for fault in faults if finding.code in fault.effects and touches(fault, finding)]
            for fault in right:
                named[fault].append(finding)
            if right:
                self.of[finding] = "right"
            elif beside or self.excused(finding):
                self.of[finding] = "repeated"
            elif self.tolerated(finding):
                self.of[finding] = "tolerated"
            else:
                self.of[finding] = "invented"
        self.named = named
        self.missed = [fault for fault in faults if fault.state == "visible" and not named[fault]]
        self.invented = [finding for finding in self.findings if self.of[finding] == "invented"]
        self.right = not self.missed and not self.invented

    def excused(self, finding):
        """Gaps that slow copies leave, and the copies of another node's GPUs with a node that lacks memory modules: no part is accused."""
        if finding.code == "host-memory-far":
            return any(fault.kind == "few-modules" for fault in self.faults)
        return finding.code == "not-tested" and any("not-tested" in fault.effects for fault in self.faults)

    def tolerated(self, finding):
        gpus = {finding.gpu} if finding.gpu is not None else finding.pair or finding.named_gpus
        if finding.address:
            gpus = {gpu for gpu in range(len(self.m)) if finding.address in self.m.addresses(gpu)}
        return any(code == finding.code and (gpu is None or gpu in gpus) for code, gpu in self.m.tolerated)
