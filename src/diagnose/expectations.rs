//! Expectations of the buyer on a machine: the file of `--expect`, and how `peerscope expect` makes one from a machine
//! that is known to be good.

mod from_report;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::expectations_host::{Bound, CallLimit, HostFloor, OfHost, PipelineFloor, TurnLimit};
use super::figures::{self, Ends, Identity, Kind};
use super::host_figures::What;
use model::flow::Setup;
use model::measurement::Measurements;
use model::placement::{Pair, Path};
use model::topology::{LinkClass, Topology};

/// Requirements on a machine. Missing entries are not checked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expectations {
    /// The profile of the report that it was made from; not given if it was written by hand. Measurements that another
    /// profile leaves out are then not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    pub gpus: Gpus,
    /// Requirements on the PCIe link of every GPU.
    pub pcie: Pcie,
    /// Requirements on the NVLinks of every GPU.
    pub nvlink: NvLink,
    pub peer: Peer,
    /// Least bandwidth of every pair of a class, or of one pair.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub floor: Vec<Floor>,
    /// Least rate of copies between host and GPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostFloor>,
    /// Least rate of pipelines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pipeline: Vec<PipelineFloor>,
    /// Longest time of calls that need not wait.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallLimit>,
    /// Longest time of a turn of the loop of launches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub launch_loop: Vec<TurnLimit>,
    /// Least rate or longest time of every other figure, by probe and setup.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, BTreeMap<String, f64>>,
}

/// The GPUs that must be there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gpus {
    pub count: Option<u32>,
    /// Product name of each GPU, as NVML gives it.
    pub model: Option<String>,
}

/// Requirements on the PCIe link of every GPU under load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pcie {
    /// Lowest accepted generation.
    pub generation: Option<u8>,
    /// Fewest accepted lanes.
    pub width: Option<u8>,
}

/// The NVLinks that every GPU must have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NvLink {
    /// Fewest accepted active links.
    pub links: Option<u32>,
}

/// Peer access.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Peer {
    /// True if every pair must have it.
    pub access: Option<bool>,
}

/// Least bandwidth of the reference measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floor {
    /// Applies to every pair of this class, in nvidia-smi's word (`NV18`, `PIX`, `SYS`). Applies to every pair if
    /// neither class nor pair is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<LinkClass>,
    /// Applies to this ordered pair alone, source first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<(u32, u32)>,
    /// The path: copies through the host, without peer access, or direct ones (the default).
    #[serde(default = "direct", skip_serializing_if = "is_direct")]
    pub path: Path,
    /// Lowest accepted rate, decimal GB/s in one direction.
    pub gbps: f64,
}

const fn direct() -> Path {
    Path::Direct
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_direct(path: &Path) -> bool {
    *path == Path::Direct
}

impl Floor {
    /// Returns true if it applies to this pair.
    pub(crate) fn holds_for(&self, pair: Pair, class: LinkClass) -> bool {
        self.class.is_none_or(|meant| meant == class)
            && self.pair.is_none_or(|meant| meant == (pair.source, pair.destination))
    }

    /// Returns words for people: `NV18`, `GPU 0 → GPU 1`, `every pair`.
    pub fn of(&self) -> String {
        match (self.class, self.pair) {
            (_, Some((source, destination))) => Pair { source, destination }.to_string(),
            (Some(class), None) => class.to_string(),
            (None, None) => "every pair".into(),
        }
    }
}

/// A figure that a file of expectations requires.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Required<'a> {
    Floor(&'a Floor),
    /// A figure of copies with the host; if a GPU is given, of that GPU alone.
    Host(What, Option<u32>),
    /// A figure of another probe, with its setup in words.
    Other(String, String),
}

impl Required<'_> {
    fn is_on(&self, ends: &Ends, topology: &Topology) -> bool {
        match self {
            Self::Floor(floor) => {
                let route = ends.pair().and_then(|pair| topology.route(pair));
                route.is_some_and(|route| floor.holds_for(route.pair, route.class))
            }
            Self::Host(_, gpu) => gpu.is_none_or(|gpu| ends.gpus() == [gpu]),
            Self::Other(..) => true,
        }
    }
}

/// Returns the probe and the setup of a figure in words, for pairs with the class of their connection.
fn in_words((ends, kind): &Identity, topology: &Topology) -> (String, String) {
    let route = ends.pair().and_then(|pair| topology.route(pair));
    let what = match (kind, route) {
        (Kind::Pair(_), Some(route)) => format!("{} {kind}", route.class),
        _ => kind.to_string(),
    };
    (kind.probe(), what)
}

/// The figures of a run beside what is required of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Check<'a> {
    pub required: Required<'a>,
    /// The lowest accepted rate, or the highest accepted time.
    pub bound: f64,
    /// The kind of figures that it means, if any were to be measured.
    pub kind: Option<Kind>,
    pub found: Vec<(Ends, f64)>,
    /// The figures without a result.
    pub lacking: Vec<Ends>,
}

impl Check<'_> {
    /// Returns the figures on the wrong side of the bound.
    pub(crate) fn crossed(&self) -> impl Iterator<Item = &(Ends, f64)> {
        let is_worse = |value: f64| {
            self.kind.as_ref().is_some_and(|kind| kind.percent_worse(self.bound, value) > 0.0)
        };
        self.found.iter().filter(move |(_, value)| is_worse(*value))
    }
}

impl Expectations {
    /// Reads a file of expectations.
    ///
    /// # Errors
    ///
    /// Describes the error, with the line or the key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read: Self =
            toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        if (Self { profile: None, ..read.clone() }) == Self::default() {
            let keys =
                "gpus, pcie, nvlink, peer, floor, host, pipeline, calls, launch_loop and figures";
            return Err(format!("it expects nothing: give at least one of {keys}"));
        }
        for floor in &read.floor {
            if !(floor.gbps > 0.0 && floor.gbps.is_finite()) {
                return Err(format!(
                    "floor of {}: gbps = {} is not a rate",
                    floor.of(),
                    floor.gbps
                ));
            }
        }
        for (probe, bounds) in &read.figures {
            for (what, bound) in bounds {
                if !(*bound > 0.0 && bound.is_finite()) {
                    return Err(format!("figures.{probe}, {what}: {bound} is no rate or time"));
                }
            }
        }
        match read.of_host().objection() {
            Some(objection) => Err(objection),
            None => Ok(read),
        }
    }

    /// Compares the figures of a run with everything that is required of them.
    pub(crate) fn checks(
        &self,
        measurements: Option<&Measurements>,
        topology: &Topology,
    ) -> Vec<Check<'_>> {
        let table = figures::table_of(measurements);
        let mut of_kind: BTreeMap<&Kind, Vec<&Identity>> = BTreeMap::new();
        let mut of_words: BTreeMap<(String, String), Vec<&Identity>> = BTreeMap::new();
        for identity in table.keys() {
            of_kind.entry(&identity.1).or_default().push(identity);
            let words = in_words(identity, topology);
            of_words.entry(words).or_default().push(identity);
        }
        let floors = self.floor.iter().map(|floor| (Required::Floor(floor), floor.gbps));
        let of_host = self.of_host().bounds().into_iter();
        let of_host = of_host.map(|Bound { what, gpu, value }| (Required::Host(what, gpu), value));
        let of_probe = |(probe, bounds): (&String, &BTreeMap<String, f64>)| {
            let required = |(what, bound): (&String, &f64)| {
                (Required::Other(probe.clone(), what.clone()), *bound)
            };
            bounds.iter().map(required).collect::<Vec<_>>()
        };
        let others = self.figures.iter().flat_map(of_probe);
        let all = floors.chain(of_host).chain(others);
        all.map(|(required, bound)| {
            let meant = match &required {
                Required::Floor(floor) => {
                    of_kind.get(&Kind::Pair(Setup::REFERENCE.with_path(floor.path)))
                }
                Required::Host(what, _) => of_kind.get(&Kind::Host(*what)),
                Required::Other(probe, what) => of_words.get(&(probe.clone(), what.clone())),
            };
            let (mut found, mut lacking, mut of) = (Vec::new(), Vec::new(), None);
            let meant = meant.into_iter().flatten();
            for identity in meant.filter(|(ends, _)| required.is_on(ends, topology)) {
                let (ends, kind) = (*identity).clone();
                match table.get(*identity).copied().flatten() {
                    Some(figure) => found.push((ends, figure.value)),
                    None => lacking.push(ends),
                }
                of = Some(kind);
            }
            Check { required, bound, kind: of, found, lacking }
        })
        .collect()
    }

    fn of_host(&self) -> OfHost {
        let Self { host, pipeline, calls, launch_loop, .. } = self.clone();
        OfHost { host, pipeline, calls, launch_loop }
    }

    /// Returns the file's text.
    ///
    /// # Errors
    ///
    /// It cannot be written as TOML.
    pub fn to_toml(&self) -> Result<String, String> {
        toml::to_string(self).map_err(|error| format!("cannot write the expectations: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_file_is_read_and_survives_its_text() {
        let text = "[gpus]\ncount = 8\nmodel = \"NVIDIA H200\"\n[pcie]\ngeneration = 5\nwidth = 16\n[nvlink]\nlinks = 18\n\
                    [peer]\naccess = true\n[[floor]]\nclass = \"NV18\"\ngbps = 380\n[[floor]]\npair = [0, 1]\n\
                    path = \"staged\"\ngbps = 30.5\n";
        let read = Expectations::parse(text).unwrap();
        assert_eq!(
            (read.gpus.count, read.nvlink.links, read.peer.access),
            (Some(8), Some(18), Some(true))
        );
        assert!(read.floor[0].holds_for(Pair { source: 3, destination: 2 }, LinkClass::NvLink(18)));
        assert!(
            !read.floor[0].holds_for(Pair { source: 3, destination: 2 }, LinkClass::NvLink(12))
        );
        assert!(
            !read.floor[1].holds_for(Pair { source: 1, destination: 0 }, LinkClass::NvLink(12))
        );
        assert_eq!(Expectations::parse(&read.to_toml().unwrap()).unwrap(), read);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("", "expects nothing"),
            ("profile = \"quick\"\n", "expects nothing"),
            ("[gpu]\ncount = 8\n", "gpu"),
            ("[gpus]\ncount = -8\n", "count"),
            ("[[floor]]\nclass = \"NVX\"\ngbps = 3\n", "NVX"),
            ("[[floor]]\nclass = \"NV18\"\ngbps = 0\n", "NV18"),
            ("[[floor]]\nclass = \"NV18\"\ngbps = nan\n", "NV18"),
            ("[[floor]]\nclass = \"NV18\"\n", "gbps"),
        ] {
            let error = Expectations::parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
