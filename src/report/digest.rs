//! The content that all formats share, computed once, so that no two formats disagree: the caveats, the headline, the
//! findings by severity, and the figures that pairs are judged by.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::figures::{Figures, by_key, count};
use super::paint::Paint;
use super::partial;
use model::cell::Measurement;
use model::finding::{Finding, Severity};
use model::flow::Setup;
use model::measurement::{Measurements, PeerBandwidth, Status};
use model::pasted::Pasted;
use model::placement::{Pair, Path};
use model::report::{Conclusion, Report};
use model::timeline::Timeline;
use model::topology::LinkClass;

/// All severities, worst first.
pub(super) const SEVERITIES: [Severity; 3] = [Severity::Error, Severity::Warning, Severity::Info];

/// A fact that a reader must know before anything else in a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Caveat {
    /// The machine is simulated.
    Simulated,
    /// The run was interrupted.
    Interrupted,
    /// The run was cut off (killed, for example), and the report was made from its journal.
    Recovered,
    /// Part of the machine or of the profile was left out on purpose.
    Partial,
    /// Rules were switched off or lowered.
    Silenced,
    /// Everything was read from the output of other tools.
    Pasted,
}

impl Caveat {
    pub(super) const ALL: [Self; 6] = [
        Self::Simulated,
        Self::Interrupted,
        Self::Recovered,
        Self::Partial,
        Self::Silenced,
        Self::Pasted,
    ];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Simulated => "simulated",
            Self::Interrupted => "interrupted",
            Self::Recovered => "recovered",
            Self::Partial => "partial",
            Self::Silenced => "silenced",
            Self::Pasted => "pasted",
        }
    }

    /// Returns the caveat, a sentence without its full stop or one for each thing that was left out; none if it does
    /// not apply to this report.
    pub(super) fn parts(self, report: &Report) -> Vec<String> {
        let measured = report.measurements.as_ref();
        let only = match self {
            Self::Simulated => report
                .is_simulated()
                .then(|| format!("SIMULATED machine {}: no figure below comes from real hardware", report.machine)),
            Self::Interrupted => measured.filter(|measured| measured.interrupted).map(|_| {
                "INTERRUPTED: this report is partial and has what was measured before the interruption".to_owned()
            }),
            Self::Recovered => measured.filter(|measured| measured.cut_off).map(|measured| {
                let held = held(measured);
                format!("RECOVERED: the run was cut off, and this report was made from its journal, which holds {held}")
            }),
            Self::Partial => {
                let mut parts = partial::left_out(report);
                if let Some(first) = parts.first_mut() {
                    first.insert_str(0, "PARTIAL: ");
                }
                return parts;
            }
            Self::Silenced => partial::silenced(&report.request).map(|rules| {
                format!("SILENCED by {}: {rules}", report.request.config.as_deref().unwrap_or("a configuration"))
            }),
            Self::Pasted => report.read_from.as_ref().map(read_from),
        };
        only.into_iter().collect()
    }
}

/// Names the tools whose output was read, with their versions.
fn read_from(pasted: &Pasted) -> String {
    let sections = pasted.inputs.iter().flat_map(|input| &input.sections);
    let tools = by_key(sections.map(|section| {
        let version = section.version.iter().map(|version| format!(" {version}"));
        (format!("{}{}", section.tool, version.collect::<String>()), ())
    }));
    let tools: Vec<String> = tools.into_iter().map(|(tool, _)| tool).collect();
    let tools = match tools.is_empty() {
        true => "no tool that is known".to_owned(),
        false => tools.join(", "),
    };
    format!("READ FROM OUTPUT of {tools}: peerscope measured nothing itself")
}

/// Returns how many of the planned measurements were recorded: `20 of 96 measurements`.
pub fn held(measurements: &Measurements) -> String {
    match diagnose::outcomes(measurements) {
        (0, _) => "no measurement".to_owned(),
        (held, planned) if held == planned => format!("all {planned} measurements"),
        (held, planned) => format!("{held} of {planned} measurements"),
    }
}

/// A report with the content that all formats share.
pub(super) struct Digest<'a> {
    pub report: &'a Report,
    /// A sentence for each caveat that applies.
    pub caveats: BTreeMap<Caveat, String>,
    /// Findings, worst first; within a severity, in the report's order.
    pub findings: Vec<&'a Finding>,
    /// The cell shown for each pair. It is the direct copy in the reference setup, or the staged copy if a direct one
    /// was not possible. A direct copy that failed stays visible.
    pub pairs: BTreeMap<Pair, &'a PeerBandwidth>,
    /// Events of the rounds that were followed; empty if it followed none.
    pub timelines: &'a [Timeline],
}

impl<'a> Digest<'a> {
    pub(super) fn of(report: &'a Report) -> Self {
        let caveats = Caveat::ALL.map(|caveat| (caveat, caveat.parts(report).join("; ")));
        let caveats = caveats.into_iter().filter(|(_, sentence)| !sentence.is_empty());
        let mut findings: Vec<_> = report.findings.iter().collect();
        findings.sort_by_key(|finding| Reverse(finding.severity));
        let pairs = report.measurements.as_ref().map(pairs).unwrap_or_default();
        Self { report, caveats: caveats.collect(), findings, pairs, timelines: &[] }
    }

    /// Returns true if this caveat applies to the report.
    pub(super) fn is(&self, caveat: Caveat) -> bool {
        self.caveats.contains_key(&caveat)
    }

    /// Counts the findings of this severity.
    pub(super) fn count_of(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// Returns the name of the machine for people.
    pub(super) fn host(&self) -> &'a str {
        let known = self.report.snapshot.host.hostname.known();
        known.map_or("a machine without a known name", String::as_str)
    }

    /// Returns the verdict's word for people, and its paint.
    pub(super) const fn conclusion(&self) -> (&'static str, Paint) {
        match self.report.verdict.verdict {
            Conclusion::Healthy => ("healthy", Paint::Good),
            Conclusion::Faulty => ("FAULTY", Paint::Error),
            Conclusion::Inconclusive => ("inconclusive", Paint::Warning),
        }
    }

    /// Counts the errors and warnings: `2 errors, 1 warning`. `None` if there are none.
    pub(super) fn found(&self) -> Option<String> {
        let found = SEVERITIES[..2].iter().map(|severity| (self.count_of(*severity), severity));
        let found = found.filter(|(number, _)| *number > 0);
        let found: Vec<_> = found.map(|(number, name)| count(number, &name.to_string())).collect();
        (!found.is_empty()).then(|| found.join(", "))
    }

    /// Returns the sentence that stands for the verdict of facts without a fault; `None` for any other report. Facts alone
    /// say nothing about speed, so no machine is healthy by them.
    pub(super) fn of_facts(&self) -> Option<String> {
        let is_it = self.report.measurements.is_none()
            && self.report.verdict.verdict == Conclusion::Healthy;
        let found = self.found().map(|found| format!("; {found}")).unwrap_or_default();
        let seen = if self.report.watched.is_some() { " and in what was watched" } else { "" };
        let speed = "speed was not measured ('peerscope check' does)";
        is_it.then(|| format!("No fault among the facts{seen}{found}; {speed}"))
    }

    /// Returns the reason for the verdict: `2 errors, 1 warning; all 448 measurements made`.
    pub(super) fn headline(&self) -> String {
        let verdict = &self.report.verdict;
        let less = self.less();
        let found = match (self.found(), verdict.verdict, verdict.tested) {
            (Some(found), ..) => found + "; ",
            (None, Conclusion::Healthy, _) if !less.is_empty() => {
                "nothing is at fault in what was judged; ".to_owned()
            }
            (None, Conclusion::Healthy, _) => "nothing is at fault; ".to_owned(),
            (None, ..) if self.report.read_from.is_some() => "no fault is shown; ".to_owned(),
            (None, Conclusion::Inconclusive, 1..) => {
                "no fault was found, but not everything was tested; ".to_owned()
            }
            _ => String::new(),
        };
        let hours = self.report.measurements.as_ref().and_then(|all| all.soak.as_ref());
        let hours = hours.map(|soak| format!("{} under load; ", super::duration(soak.seconds)));
        found + &hours.unwrap_or_default() + &self.tested() + &self.without_load() + &less
    }

    /// Returns what was left out or silenced by choice, as a suffix of what was tested. Empty if nothing was.
    pub(super) fn less(&self) -> String {
        let mut less = String::new();
        let options = partial::options(&self.report.request);
        if !options.is_empty() {
            less += &format!("; PARTIAL: {options}");
        }
        if self.is(Caveat::Silenced) {
            less += &format!("; {} SILENCED", count(self.report.request.silenced.len(), "rule"));
        }
        less
    }

    /// Returns true if the machine is healthy, no finding is a warning or worse, and nothing was left out: no GPU, no
    /// probe, no rule, and no flows under load.
    pub(super) fn is_fine(&self) -> bool {
        self.report.verdict.verdict == Conclusion::Healthy
            && self.found().is_none()
            && !self.is(Caveat::Partial)
            && !self.is(Caveat::Silenced)
            && self.no_load().is_none()
            && self.gpus().len() > 1
    }

    /// Returns a suffix of what was tested if the load of several flows was not measured, else an empty text.
    pub(super) fn without_load(&self) -> String {
        self.no_load().map_or_else(String::new, |why| format!("; load not measured{why}"))
    }

    /// Returns why the load of several flows was not measured, worded to follow that; it may be empty. `None` if it was
    /// measured, or nothing was.
    pub(super) fn no_load(&self) -> Option<&'static str> {
        let (report, gpus) = (self.report, self.gpus().len());
        let measured = report.measurements.as_ref()?;
        // Other tools have no such measurement, and the missing parts of their output are named elsewhere.
        let is_expected = report.verdict.tested > 0 && report.read_from.is_none() && gpus > 1;
        if !is_expected || measured.has_load() {
            return None;
        }
        let said = &measured.driver.peer_access;
        let possible = said.iter().filter(|said| said.possible == Some(true));
        let pairs: BTreeSet<_> = possible.map(|said| said.pair.unordered()).collect();
        Some(match pairs.len() {
            // The line names what the command line left out.
            _ if report.request.probes_left_out.iter().any(|group| group == "load") => "",
            _ if measured.profile == "quick" => " by the profile quick",
            _ if measured.interrupted || measured.cut_off => "",
            0 if !said.is_empty() => ", since no two GPUs have peer access",
            1 if gpus > 2 => ", since only one pair has peer access",
            _ => "",
        })
    }

    /// Returns how many of the requested measurements were made.
    pub(super) fn tested(&self) -> String {
        let verdict = &self.report.verdict;
        let read = self.report.read_from.is_some();
        match (&self.report.measurements, verdict.tested, verdict.untested) {
            (_, 0, 0) | (None, ..) if read => "facts only, no figures in the input".to_owned(),
            (_, figures, 0) if read => count(figures as usize, "figure") + " read",
            (None, ..) => "facts only, no measurements requested".to_owned(),
            (_, 0, 0) => "nothing was measured".to_owned(),
            (_, 0, missing) => {
                format!("nothing was measured, {} missing", count(missing as usize, "measurement"))
            }
            (_, tested, 0) => format!("all {tested} measurements made"),
            (_, tested, missing) => format!("{tested} measurements made, {missing} missing"),
        }
    }

    /// Returns the link class of an ordered pair.
    pub(super) fn class(&self, pair: Pair) -> LinkClass {
        self.report.topology.route(pair).map_or(LinkClass::Unknown, |route| route.class)
    }

    /// Returns the figures that pairs are judged by, direct before staged. Copies with wrong bytes have none.
    pub(super) fn reference(&self) -> Vec<&'a PeerBandwidth> {
        let measured = self.report.measurements.iter();
        let cells = measured.flat_map(|measurements| {
            [Path::Direct, Path::Staged].map(|path| measurements.reference(path).into_values())
        });
        cells.flatten().filter(|cell| cell.is_sound()).collect()
    }

    /// Returns the cells of [`Self::pairs`] that have a figure.
    pub(super) fn figures(&self) -> impl Iterator<Item = &'a PeerBandwidth> {
        self.pairs.values().copied().filter(|cell| cell.is_sound())
    }

    /// Returns the rates of each link class on each path.
    pub(super) fn by_class(&self) -> Vec<((LinkClass, Path), Figures)> {
        let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for cell in self.reference() {
            groups.entry((self.class(cell.pair), cell.setup.path)).or_default().push(cell);
        }
        groups.into_iter().map(|(kind, cells)| (kind, Figures::of(cells))).collect()
    }

    /// Returns the GPUs of this run: those requested from CUDA and those measured. Returns all GPUs of the machine if
    /// neither is known.
    pub(super) fn gpus(&self) -> Vec<u32> {
        let mut gpus = BTreeSet::new();
        if let Some(measurements) = &self.report.measurements {
            gpus.extend(measurements.driver.devices.iter().map(|device| device.index));
            gpus.extend(measurements.peer.iter().flat_map(|peer| peer.pair.gpus()));
        }
        if gpus.is_empty() {
            gpus.extend(self.report.snapshot.gpus.iter().map(|gpu| gpu.index));
        }
        gpus.into_iter().collect()
    }
}

fn pairs(measurements: &Measurements) -> BTreeMap<Pair, &PeerBandwidth> {
    let [mut pairs, staged] = [Path::Direct, Path::Staged]
        .map(|path| measurements.in_setup(Setup::REFERENCE.with_path(path)));
    for (pair, cell) in staged {
        let shown = pairs.entry(pair).or_insert(cell);
        if shown.ending.status == Status::Skipped {
            *shown = cell;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::measurement::Verified;

    #[test]
    fn figures_are_those_of_their_class() {
        let report = sample::healthy(8);
        let figures = Digest::of(&report).by_class();
        let [direct, staged] = figures.as_slice() else { panic!("{figures:#?}") };
        assert_eq!(direct.0, (LinkClass::NvLink(18), Path::Direct));
        assert_eq!(direct.1.rates.unwrap().count, 56);
        assert_eq!(staged.0, (LinkClass::NvLink(18), Path::Staged));
        assert!(Digest::of(&sample::nothing_measured()).by_class().is_empty());
        assert!(Digest::of(&sample::pcie_box()).by_class().len() > 3, "classes are kept apart");
    }

    #[test]
    fn a_copy_of_wrong_bytes_has_no_figure() {
        let mut report = sample::healthy(2);
        let cell = Digest::of(&report).reference()[0].clone();
        let cells = &mut report.measurements.as_mut().unwrap().peer;
        cells.iter_mut().find(|other| **other == cell).unwrap().verified = Verified::Corrupt;
        let digest = Digest::of(&report);
        assert_eq!(
            (digest.reference().len(), digest.figures().count(), digest.pairs.len()),
            (3, 1, 2)
        );
    }

    #[test]
    fn a_pair_without_a_direct_copy_is_shown_with_its_staged_one_and_one_that_hung_is_not() {
        let report = sample::pcie_box();
        let shown = Digest::of(&report).pairs;
        let of = |source, destination| shown[&Pair { source, destination }];
        assert_eq!((of(2, 5).setup.path, of(2, 5).ending.status), (Path::Staged, Status::Measured));
        assert_eq!((of(4, 6).setup.path, of(4, 6).ending.status), (Path::Direct, Status::Hung));
    }
}
