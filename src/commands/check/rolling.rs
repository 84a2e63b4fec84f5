//! Runs within a budget: chooses the parts of the machine that were not covered for longest, and says what the verdict
//! stands on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use time::OffsetDateTime;

use super::ledger::{Addition, Covered, Ledger, Opened};
use crate::cli::CheckArgs;
use model::finding::{Finding, RuleId, Severity, Subject};
use model::flow::Endpoint;
use model::measurement::Measurements;
use model::report::Report;
use model::rolling::Rolling;
use model::snapshot::Snapshot;
use plan::{Action, Round};

/// Time that a round is expected to take if no run has ended yet, seconds. On 8 x H200 a round of the profile standard takes
/// a tenth of it.
const UNKNOWN_ROUND: f64 = 0.1;
/// Time from the last round to the report, seconds: last readings, judging, writing. Chosen.
const TAIL: f64 = 0.3;

/// A part of the machine that is covered as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Everything between two GPUs.
    Pair(u32, u32),
    /// Everything on one GPU, and between it and the host.
    Gpu(u32),
    /// Several GPUs at once.
    Several(Vec<u32>),
}

impl Part {
    /// Returns the part that a round belongs to, on a machine with these GPUs. Copies within a GPU say nothing about a path, so
    /// they belong to a pair of the GPU.
    fn of(round: &Round, machine: &[u32]) -> Self {
        if let (Action::Local { .. }, Self::Gpu(gpu)) = (round.task.action, Self::of_flows(round)) {
            let place = machine.iter().position(|index| *index == gpu);
            let next = place.and_then(|place| machine.get((place + 1) % machine.len()));
            if let Some(next) = next.filter(|next| **next != gpu) {
                return Self::Pair(gpu.min(*next), gpu.max(*next));
            }
        }
        Self::of_flows(round)
    }

    fn of_flows(round: &Round) -> Self {
        let ends = round.flows.iter().flat_map(|flow| flow.ends());
        let gpus: BTreeSet<u32> = ends.filter_map(Endpoint::gpu).collect();
        match gpus.into_iter().collect::<Vec<_>>().as_slice() {
            [one, other] => Self::Pair(*one, *other),
            [one] => Self::Gpu(*one),
            all => Self::Several(all.to_vec()),
        }
    }

    fn gpus(&self) -> Vec<u32> {
        match self {
            Self::Pair(one, other) => vec![*one, *other],
            Self::Gpu(one) => vec![*one],
            Self::Several(all) => all.clone(),
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Pair(one, other) => format!("GPU {one} and GPU {other}"),
            Self::Gpu(one) => format!("GPU {one}"),
            Self::Several(all) => format!("{} GPUs at once", all.len()),
        }
    }

    /// Returns its key in the ledger. It has the GPUs' identifiers, since indices change if a GPU falls off.
    fn key(&self, what: &str, snapshot: &Snapshot) -> String {
        let id = |index: u32| {
            let gpu = snapshot.gpu(index);
            let uuid = gpu.and_then(|gpu| gpu.uuid.known().cloned());
            uuid.or_else(|| Some(gpu?.pci.get()?.to_string()))
                .unwrap_or_else(|| format!("GPU {index}"))
        };
        let gpus: Vec<String> = self.gpus().into_iter().map(id).collect();
        format!("{what}: {}", gpus.join(" "))
    }
}

/// The parts of this run.
#[derive(Debug, Default)]
struct Chosen {
    /// Every part of the machine, with its key and its number of rounds.
    all: BTreeMap<Part, (String, usize)>,
    /// The parts that this run covers.
    now: BTreeSet<Part>,
    all_within_runs: u32,
    /// GPUs of the machine.
    gpus: Vec<u32>,
}

/// A run within a budget.
pub(super) struct Budget {
    seconds: f64,
    path: PathBuf,
    /// What is measured: other profiles and probe groups cover other things.
    what: String,
    machine: String,
    ledger: Ledger,
    problems: Vec<String>,
    chosen: Chosen,
    /// Rounds that ran.
    rounds: usize,
    /// Parts that were looked at twice, with the codes of findings that the second look did not confirm.
    not_confirmed: Vec<String>,
    /// Findings that follow from the facts, which every run reads: they are no reason to copy again.
    of_facts: BTreeSet<(RuleId, Subject)>,
}

impl Budget {
    /// Reads the ledger; `None` without `--ledger`.
    ///
    /// # Errors
    ///
    /// The file is no ledger of this machine.
    pub(super) fn open(args: &CheckArgs, machine: &str) -> Result<Option<Self>, String> {
        let (Some(budget), Some(path)) = (args.budget, &args.ledger) else {
            return Ok(None);
        };
        let Opened { ledger, problem } = Ledger::open(path, machine)?;
        let names = |list: &[plan::Group]| {
            let names: Vec<String> = list.iter().map(|group| format!("{group:?}")).collect();
            names.join(",").to_lowercase()
        };
        let chosen = match (args.only.as_slice(), args.skip.as_slice()) {
            ([], []) => String::new(),
            (only, []) => format!(" only {}", names(only)),
            (_, skip) => format!(" skip {}", names(skip)),
        };
        Ok(Some(Self {
            seconds: budget.as_secs_f64(),
            path: path.clone(),
            what: format!("{}{chosen}", args.profile.as_str()),
            machine: machine.to_owned(),
            ledger,
            problems: problem.into_iter().collect(),
            chosen: Chosen::default(),
            rounds: 0,
            not_confirmed: Vec::new(),
            of_facts: BTreeSet::new(),
        }))
    }

    /// Keeps the rounds of the parts that this run covers: those with findings, and of the others first those never covered,
    /// then those that were not covered for longest. `spent` is the time since the run began.
    pub(super) fn choose(
        &mut self,
        rounds: Vec<Round>,
        snapshot: &Snapshot,
        spent: f64,
    ) -> Vec<Round> {
        let gpus: Vec<u32> = snapshot.gpus.iter().map(|gpu| gpu.index).collect();
        let mut all: BTreeMap<Part, (String, usize)> = BTreeMap::new();
        for round in &rounds {
            let part = Part::of(round, &gpus);
            let key = || part.key(&self.what, snapshot);
            let known = all.entry(part.clone()).or_insert_with(|| (key(), 0));
            known.1 += 1;
        }
        let left = self.seconds - spent - TAIL;
        let each = match self.ledger.seconds_per_round {
            known if known > 0.0 => known,
            _ => UNKNOWN_ROUND,
        };
        let covered = |key: &String| self.ledger.parts.get(key);
        let mut order: Vec<(&Part, &(String, usize))> = all.iter().collect();
        order.sort_by_key(|(part, (key, _))| {
            (covered(key).map(|covered| covered.at), (*part).clone())
        });
        let is_suspected =
            |key: &String| covered(key).is_some_and(|covered| !covered.findings.is_empty());
        let (suspected, sound): (Vec<_>, Vec<_>) =
            order.into_iter().partition(|(_, (key, _))| is_suspected(key));
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 rounds")]
        let costs = |parts: &[(&Part, &(String, usize))]| -> Vec<f64> {
            let rounds = parts.iter().map(|(_, (_, rounds))| *rounds as f64);
            rounds.map(|rounds| rounds * each).collect()
        };
        // Whatever is suspected, every run covers another part too: else a standing fault would keep the rest from its turn.
        let (of_suspected, of_sound) = (costs(&suspected), costs(&sound));
        let for_one = of_sound.first().copied().unwrap_or(0.0);
        let suspected_runs = runs(&of_suspected, left - for_one);
        let again = suspected_runs.first().copied().unwrap_or(0);
        let spent: f64 = of_suspected.iter().take(again).sum();
        let sound_runs = runs(&of_sound, left - spent);
        let next = sound_runs.first().copied().unwrap_or(0);
        let chosen = suspected.iter().take(again).chain(sound.iter().take(next));
        let now: BTreeSet<Part> = chosen.map(|(part, _)| (*part).clone()).collect();
        let runs = suspected_runs.len().max(sound_runs.len());
        let kept: Vec<Round> =
            rounds.into_iter().filter(|round| now.contains(&Part::of(round, &gpus))).collect();
        self.rounds = kept.len();
        self.chosen =
            Chosen { all_within_runs: u32::try_from(runs).unwrap_or(u32::MAX), now, all, gpus };
        kept
    }

    /// Returns what this run leaves out, a sentence; none if it covers everything.
    pub(super) fn left_out(&self) -> Option<String> {
        let (now, all) = (self.chosen.now.len(), self.chosen.all.len());
        (now < all).then(|| {
            format!(
                "{now} of {all} parts of the machine (pairs of GPUs, single GPUs) were measured, within the budget of {} s; all \
                 of them are within {} runs",
                self.seconds, self.chosen.all_within_runs
            )
        })
    }

    /// Takes the findings that the facts alone give.
    pub(super) fn known(&mut self, findings: Vec<Finding>) {
        let keys = findings.into_iter().map(|finding| (finding.code, finding.subject));
        self.of_facts = keys.collect();
    }

    /// Returns the rounds of the parts that these findings are about, to be looked at once more.
    pub(super) fn suspects(&self, findings: &[Finding], rounds: &[Round]) -> Vec<Round> {
        let parts = self.found_on(findings);
        // Counters around patterns of several flows are read once.
        let is_suspect = |round: &&Round| match Part::of(round, &self.chosen.gpus) {
            Part::Several(_) => false,
            part => parts.contains_key(&part),
        };
        rounds.iter().filter(is_suspect).cloned().collect()
    }

    /// Notes the findings that a second look did not confirm.
    pub(super) fn looked_again(&mut self, first: &[Finding], second: &[Finding]) {
        let (first, second) = (self.found_on(first), self.found_on(second));
        for (part, codes) in first {
            let still = second.get(&part).cloned().unwrap_or_default();
            for code in codes.difference(&still) {
                self.not_confirmed.push(format!(
                    "{}: the first look found {code}, a second look at once did not",
                    part.words()
                ));
            }
        }
    }

    /// Returns the parts of this run that findings are about, with their codes. A finding on the machine is about none.
    fn found_on(&self, findings: &[Finding]) -> BTreeMap<Part, BTreeSet<String>> {
        let mut found: BTreeMap<Part, BTreeSet<String>> = BTreeMap::new();
        let worse = findings.iter().filter(|finding| {
            let key = (finding.code.clone(), finding.subject.clone());
            finding.severity >= Severity::Warning
                && !::diagnose::is_gap(&finding.code)
                && !self.of_facts.contains(&key)
        });
        for finding in worse {
            let scope = &finding.scope;
            for part in &self.chosen.now {
                let gpus = part.gpus();
                let of_pair = scope
                    .pairs
                    .iter()
                    .any(|pair| gpus.contains(&pair.source) && gpus.contains(&pair.destination));
                let of_gpu =
                    scope.pairs.is_empty() && scope.gpus.iter().any(|gpu| gpus.contains(gpu));
                if of_pair || of_gpu {
                    found.entry(part.clone()).or_default().insert(finding.code.to_string());
                }
            }
        }
        found
    }

    /// Adds this run to the ledger, and its coverage to the report.
    pub(super) fn end(&mut self, report: &mut Report) {
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let measured = report.measurements.as_ref();
        let is_whole = measured.is_some_and(|measured| !measured.interrupted);
        let found = self.found_on(&report.findings);
        let done = |part: &&Part| is_whole && has_figures(measured, part);
        let parts = self.chosen.now.iter().filter(done);
        let parts: BTreeMap<String, Covered> = parts
            .filter_map(|part| {
                let codes = found.get(part).into_iter().flatten().cloned();
                let covered = Covered { at: now, findings: codes.collect() };
                Some((self.chosen.all.get(part)?.0.clone(), covered))
            })
            .collect();
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52 rounds")]
        let each = report.timing.measure / self.rounds.max(1) as f64;
        let addition = Addition {
            seconds_per_round: (!parts.is_empty() && each > 0.0).then_some(each),
            parts,
        };
        let covered_now = u32::try_from(addition.parts.len()).unwrap_or(u32::MAX);
        match Ledger::add(&self.path, &self.machine, &addition) {
            Ok(ledger) => self.ledger = ledger,
            Err(why) => self.problems.push(why),
        }
        let problems = self.problems.iter().chain(&self.not_confirmed).cloned();
        let rolling = self.rolling(now, covered_now, problems.collect());
        report.rolling = Some(rolling);
    }

    fn rolling(&self, now: i64, covered_now: u32, problems: Vec<String>) -> Rolling {
        let all = self.chosen.all.iter();
        let known: Vec<(&Part, Option<&Covered>)> =
            all.map(|(part, (key, _))| (part, self.ledger.parts.get(key))).collect();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let never = known.iter().filter(|(_, covered)| covered.is_none()).count();
        let oldest = known.iter().min_by_key(|(_, covered)| covered.map(|covered| covered.at));
        let age = |covered: &Covered| {
            #[allow(clippy::cast_precision_loss, reason = "ages are far below 2^52 s")]
            let age = now.saturating_sub(covered.at).max(0) as f64;
            age
        };
        let suspected = known.iter().filter_map(|(part, covered)| {
            let codes = &(*covered)?.findings;
            (!codes.is_empty()).then(|| format!("{}: {}", part.words(), codes.join(", ")))
        });
        Rolling {
            ledger: self.path.display().to_string(),
            budget_seconds: self.seconds,
            runs: self.ledger.runs,
            parts: count(known.len()),
            covered_now,
            never_covered: count(never),
            oldest_seconds: oldest.and_then(|(_, covered)| covered.map(age)),
            oldest: oldest.map(|(part, _)| part.words()),
            all_within_runs: self.chosen.all_within_runs,
            suspected: suspected.collect(),
            problems,
        }
    }
}

/// Returns true if the report has a measured figure of this part.
fn has_figures(measured: Option<&Measurements>, part: &Part) -> bool {
    let gpus = part.gpus();
    let is_of_part = |cell: &model::measurement::Cell<'_>| {
        let ends: BTreeSet<u32> = cell.flow.ends().into_iter().filter_map(Endpoint::gpu).collect();
        match part {
            Part::Several(_) => ends.iter().all(|end| gpus.contains(end)),
            _ => ends.into_iter().eq(gpus.iter().copied()),
        }
    };
    let cells = measured.into_iter().flat_map(Measurements::cells);
    let mut of_part = cells.filter(is_of_part);
    of_part.any(|cell| cell.status != model::measurement::Status::Skipped)
}

/// Returns how many parts of these costs fit into each run, in their order: one at least.
fn runs(costs: &[f64], left: f64) -> Vec<usize> {
    let mut runs = Vec::new();
    let mut spent = f64::INFINITY;
    for cost in costs {
        if spent + cost > left {
            runs.push(0);
            spent = 0.0;
        }
        spent += cost;
        if let Some(last) = runs.last_mut() {
            *last += 1;
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;
    use model::flow::{Flow, Setup};
    use model::placement::Pair;
    use model::testing::h200_vm;
    use plan::Task;

    #[test]
    fn parts_fit_into_runs_one_at_least() {
        assert_eq!(runs(&[1.0, 1.0, 1.0, 2.0, 0.5], 2.5), [2, 1, 2]);
        assert_eq!(runs(&[3.0, 3.0], 1.0), [1, 1]);
        assert_eq!(runs(&[1.0, 1.0], -1.0), [1, 1]);
        assert_eq!(runs(&[], 1.0), [0; 0]);
    }

    /// Returns two rounds for each unordered pair of four GPUs.
    fn rounds() -> Vec<Round> {
        let pairs = Pair::ordered(&[0, 1, 2, 3]);
        let round = |(id, pair): (u32, Pair)| Round {
            id,
            slot: id,
            flows: vec![Flow::from(pair)],
            task: Task { setup: Setup::REFERENCE, action: Action::Verify },
            deadline: Duration::from_secs(1),
            timeline: false,
            name: String::new(),
        };
        (0..).zip(pairs).map(round).collect()
    }

    fn budget(parts: BTreeMap<String, Covered>) -> Budget {
        let folder = Path::new("/nowhere");
        let mut ledger = Ledger::open(folder, "live").unwrap().ledger;
        (ledger.seconds_per_round, ledger.parts) = (0.1, parts);
        Budget {
            seconds: 1.0,
            path: folder.into(),
            what: "quick".into(),
            machine: "live".into(),
            ledger,
            problems: Vec::new(),
            chosen: Chosen::default(),
            rounds: 0,
            not_confirmed: Vec::new(),
            of_facts: BTreeSet::new(),
        }
    }

    fn pairs(rounds: &[Round]) -> BTreeSet<Vec<u32>> {
        let part = |round: &Round| Part::of(round, &[0, 1, 2, 3]);
        rounds.iter().map(|round| part(round).gpus()).collect()
    }

    #[test]
    fn findings_come_first_then_what_was_never_covered_then_the_oldest() {
        let machine = h200_vm(4);
        let covered = |at, findings: &[&str]| Covered {
            at,
            findings: findings.iter().map(|code| (*code).to_owned()).collect(),
        };
        let key = |one, other| Part::Pair(one, other).key("quick", &machine);
        let parts = BTreeMap::from([
            (key(0, 1), covered(50, &[])),
            (key(0, 2), covered(40, &[])),
            (key(0, 3), covered(90, &["peer-bandwidth-low"])),
            (key(1, 2), covered(60, &[])),
            (key(1, 3), covered(70, &[])),
        ]);
        // 0.1 s for a round: a pair takes 0.2 s, and 0.7 s are left beside the tail.
        let mut run = budget(parts);
        let kept = run.choose(rounds(), &machine, 0.0);
        let wanted = [vec![0, 2], vec![0, 3], vec![2, 3]];
        assert_eq!(pairs(&kept), BTreeSet::from(wanted));
        // The other five take three runs, beside the one with a finding.
        assert_eq!((kept.len(), run.chosen.all_within_runs), (6, 3));
        assert!(run.left_out().unwrap().starts_with("3 of 6 parts"), "{:?}", run.left_out());
    }

    #[test]
    fn standing_faults_do_not_keep_other_parts_from_their_turn() {
        let machine = h200_vm(4);
        let key = |one, other| Part::Pair(one, other).key("quick", &machine);
        let faulty = |at| Covered { at, findings: vec!["peer-bandwidth-low".into()] };
        let parts = BTreeMap::from([
            (key(0, 1), faulty(50)),
            (key(0, 2), faulty(40)),
            (key(0, 3), faulty(90)),
        ]);
        // The start of the driver took all of the budget: one part of either kind.
        let mut run = budget(parts);
        let kept = run.choose(rounds(), &machine, 5.0);
        assert_eq!(pairs(&kept), BTreeSet::from([vec![0, 2], vec![1, 2]]));
        assert_eq!(run.chosen.all_within_runs, 3);
    }

    #[test]
    fn a_finding_is_looked_at_again_and_one_that_is_gone_is_named() {
        let mut run = budget(BTreeMap::new());
        run.seconds = 60.0;
        let kept = run.choose(rounds(), &h200_vm(4), 0.0);
        assert_eq!((kept.len(), run.left_out()), (12, None));
        let pair = Pair { source: 1, destination: 3 };
        let found = |severity| {
            let code = "peer-bandwidth-low".to_owned().into();
            vec![Finding::new(code, severity, Subject::Pair(pair), "slow", Vec::new())]
        };
        let suspects = run.suspects(&found(Severity::Error), &kept);
        assert_eq!(pairs(&suspects), BTreeSet::from([vec![1, 3]]));
        assert_eq!(suspects.len(), 2);
        assert_eq!(run.suspects(&found(Severity::Info), &kept), []);
        run.looked_again(&found(Severity::Error), &found(Severity::Error));
        assert_eq!(run.not_confirmed, [""; 0]);
        run.looked_again(&found(Severity::Error), &[]);
        // What the facts show is no reason to copy again.
        run.known(found(Severity::Error));
        assert_eq!(run.suspects(&found(Severity::Error), &kept), []);
        let said = "GPU 1 and GPU 3: the first look found peer-bandwidth-low, a second look at once did not";
        assert_eq!(run.not_confirmed, [said]);
    }
}
