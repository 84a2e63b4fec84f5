//! Generality: healthy machines with one fault at a random place. Exactly one finding at warning or above must name the
//! fault, whatever the machine, the kind, the place and the noise.
//!
//! The number in a test's name is the seed of everything random in it. `scripts/injected-faults` runs a thousand and
//! more.

mod faults;
mod machine;

use libtest_mimic::Trial;
use sim::spec::MachineSpec;

use self::faults::{FAULTS, Fault};
use self::machine::{Machine, healthy};
use crate::cases::{Score, count, names};
use crate::common::{finish, list, peerscope, write};
use crate::trial;

/// Number of runs, each with one fault. PEERSCOPE_INJECTED overrides it.
const RUNS: usize = 110;

/// Most GPUs of a machine that gets every fault. Larger machines take seconds each and get only one fault in `SELDOM`.
const FEW_GPUS: usize = 16;
const SELDOM: usize = 12;

/// Returns the machines that have a place for their fault, in an order that has every machine and fault early.
pub(crate) fn trials() -> Vec<Trial> {
    let runs =
        std::env::var("PEERSCOPE_INJECTED").ok().and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let machines = healthy();
    (0..)
        .filter_map(|number| Injected::new(number, &machines))
        .take(runs)
        .map(|injected| trial(injected.name(), move || injected.check()))
        .collect()
}

/// A machine with one fault, and the expected finding.
struct Injected {
    number: usize,
    base: String,
    fault: &'static Fault,
    spec: MachineSpec,
    code: &'static str,
    subject: String,
}

impl Injected {
    /// Puts one fault into one machine. Returns `None` if the machine has no place for it. Both lists advance together,
    /// with one more step after each round, so that every fault meets every machine.
    fn new(number: usize, machines: &[(String, MachineSpec)]) -> Option<Self> {
        let (base, spec) = &machines[number % machines.len()];
        let fault = &FAULTS[(number + number / machines.len()) % FAULTS.len()];
        if spec.gpus.len() > FEW_GPUS && !(number / machines.len()).is_multiple_of(SELDOM) {
            return None;
        }
        // If another program may move data invisibly, a slow copy proves nothing about the machine.
        if spec.faults.others.iter().any(|others| others.unread) {
            return None;
        }
        let mut machine = Machine::of(spec, number);
        // Lanes that no copy tests are a warning by themselves, and direct copies over NVLink test none.
        if fault.profile == "quick" && machine.has_nvlinks() && machine.shows_too_few_lanes() {
            return None;
        }
        let (one, other) = machine.two();
        let (code, subject) = (fault.inject)(&mut machine, one, other)?;
        Some(Self { number, base: base.clone(), fault, spec: machine.spec, code, subject })
    }

    /// Returns true if a finding whose code names several kinds is of the injected one: copies that are wrong or fail alone,
    /// and access in one direction if one is named.
    fn is_of_place(&self, finding: &serde_json::Value) -> bool {
        match finding["code"].as_str().unwrap() {
            "data-wrong" | "copy-failed" => finding["evidence"]["pattern"].is_null(),
            "peer-access-missing" => {
                let one_way =
                    finding["message"].as_str().unwrap().contains("the other direction has it");
                one_way == self.subject.contains("->")
            }
            _ => true,
        }
    }

    fn name(&self) -> String {
        format!("injected::{:04}_{}_{}", self.number, self.fault.name, self.base)
    }

    fn check(&self) {
        let folder = tempfile::tempdir().unwrap();
        let description = toml::to_string(&self.spec).unwrap();
        let file = write(folder.path(), "machine.toml", &description);
        let profile = self.fault.profile;
        let mut args = vec![
            "check",
            "--machine",
            &file,
            "--profile",
            profile,
            "--journal=none",
            "--format",
            "json",
        ];
        // Only a copy that never ends reaches this deadline.
        if self.code == "peer-copy-hung" {
            args.extend(["--deadline", "2"]);
        }
        let report = finish(&mut peerscope(&args)).json();
        let findings: Vec<_> =
            list(&report["findings"]).iter().filter(|it| it["severity"] != "info").collect();
        let right = |it: &serde_json::Value| {
            self.code.split('|').any(|code| it["code"] == code)
                && names(&it["subject"]).contains(&self.subject)
                && self.is_of_place(it)
        };
        for finding in &findings {
            let of = |score: &mut Score| {
                *(if right(finding) { &mut score.right } else { &mut score.wrong }) += 1
            };
            count(finding["code"].as_str().unwrap(), of);
        }
        let named = findings.iter().filter(|it| right(it)).count();
        if named == 0 {
            count(self.code, |score| score.missing += 1);
        }
        if findings.len() != 1 || named != 1 {
            let found = |it: &&serde_json::Value| {
                format!("{}@{}: {}", it["code"], names(&it["subject"])[0], it["message"])
            };
            let kept =
                std::env::temp_dir().join(format!("peerscope-injected-{}.toml", self.number));
            std::fs::write(&kept, &description).unwrap();
            let findings: Vec<_> = findings.iter().map(found).collect();
            let (kept, code, subject) = (kept.display(), self.code, &self.subject);
            panic!("{kept}: wanted {code}@{subject} alone, found {findings:#?}");
        }
    }
}
