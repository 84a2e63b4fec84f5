//! Expectations of the buyer on a machine: the file of `--expect`, and how `peerscope expect` makes one from a machine
//! that is known to be good. A bound has the name of the figure that it bounds.

mod from_report;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::figures::{self, Compared, Ends, Figure, Identity, Table};
use super::kind::Kind;
use super::words;
use model::measurement::{Measurements, Probe};
use model::nearest::did_you_mean;
use model::node::NodeId;
use model::placement::Path;
use model::topology::{LinkClass, Topology};

/// Requirements on a machine. Missing entries are not checked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expectations {
    /// The profile of the report that it was made from; not given if it was written by hand. Measurements that another
    /// profile leaves out are then not asked for.
    pub(crate) profile: Option<String>,
    pub(crate) machine: Machine,
    /// Least rate (GB/s) or longest time of figures, by probe and name.
    pub(crate) figures: Bounds,
}

/// Bounds by the name of the figure, by the word of its probe.
pub(crate) type Bounds = BTreeMap<String, BTreeMap<String, f64>>;

/// Facts of the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Machine {
    /// Number of GPUs.
    pub gpus: Option<u32>,
    /// Product name of each GPU, as NVML gives it.
    pub model: Option<String>,
    /// Lowest accepted generation of the PCIe link of each GPU, under load.
    pub pcie_generation: Option<u32>,
    /// Fewest accepted lanes of that link.
    pub pcie_width: Option<u32>,
    /// Fewest accepted active NVLinks of each GPU.
    pub nvlinks: Option<u32>,
    /// True if every pair must have peer access.
    pub peer_access: Option<bool>,
}

/// The figures of a run beside the bound that is required of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Check<'a> {
    /// Word of the probe.
    pub probe: &'a str,
    /// Name of the figures within it.
    pub name: &'a str,
    /// The figures, each with the bound as its earlier value.
    pub figures: Vec<Compared<Ends>>,
    /// Reference figures of pairs that the run did not plan.
    pub unplanned: Vec<Identity>,
}

/// The part of a machine that the name of a figure ends with.
#[derive(Debug, Clone, PartialEq)]
enum Place {
    Class(LinkClass),
    Gpus(Vec<u32>),
}

impl Check<'_> {
    /// Returns true if this machine has the part that the name ends with.
    pub(crate) fn is_here(&self, topology: &Topology) -> bool {
        match parts(self.name).1 {
            Some(Place::Class(class)) => topology.pairs.iter().any(|route| route.class == class),
            Some(Place::Gpus(gpus)) => {
                gpus.iter().all(|gpu| topology.node(NodeId::Gpu(*gpu)).is_some())
            }
            None => true,
        }
    }
}

/// Returns a name without its place, and the place: `direct of NV18`, `pinned, to device of GPU 1`.
fn parts(name: &str) -> (&str, Option<Place>) {
    let place = |text: &str| {
        let gpus = text.starts_with("GPU").then(|| {
            text.split(|letter: char| !letter.is_ascii_digit())
                .filter_map(|number| number.parse().ok())
                .collect()
        });
        gpus.map(Place::Gpus).or_else(|| text.parse().ok().map(Place::Class))
    };
    let split = name.rsplit_once(" of ");
    split.and_then(|(what, text)| Some((what, Some(place(text)?)))).unwrap_or((name, None))
}

/// Returns the names of a figure: of all like it, for bandwidth of those between GPUs connected like these, and of it
/// alone.
fn names((ends, kind): &Identity, topology: &Topology) -> Vec<String> {
    let pair = ends.pair().filter(|_| kind.is_of_pairs());
    let route = pair.and_then(|pair| topology.route(pair));
    let class = route.map(|route| format!("{kind} of {}", route.class));
    let all = [Some(kind.to_string()), class, Some(format!("{kind} of {ends}"))];
    all.into_iter().flatten().collect()
}

/// Returns the table with the reference figures of every pair. A pair without one was not measured.
fn of_every_pair(mut table: Table, topology: &Topology) -> Table {
    for (route, path) in topology
        .pairs
        .iter()
        .flat_map(|route| [Path::Direct, Path::Staged].map(|path| (route, path)))
    {
        let kind = Kind::reference(path);
        table.entry((route.pair.into(), kind)).or_default();
    }
    table
}

impl Expectations {
    /// Reads a file of expectations.
    ///
    /// # Errors
    ///
    /// Describes the error, with the line or the key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut read: Self =
            toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        if (Self { profile: None, ..read.clone() }) == Self::default() {
            return Err(
                "it expects nothing: give a fact in [machine], or a bound in [figures.PROBE]"
                    .into(),
            );
        }
        for (probe, bounds) in &mut read.figures {
            let by_hand = |(name, bound): (String, f64)| (name.replace("->", "→"), bound);
            *bounds = std::mem::take(bounds).into_iter().map(by_hand).collect();
            let bounded = Probe::ALL.iter().filter(|probe| Kind::bounds(**probe));
            let probes: Vec<String> = bounded.map(Probe::to_string).collect();
            if !probes.contains(probe) {
                let meant = did_you_mean(probe, probes.iter().map(String::as_str));
                return Err(format!(
                    "figures.{probe}: no probe of this name has rates or times{meant}; those that have are {}",
                    probes.join(", ")
                ));
            }
            for (name, bound) in bounds {
                if !(*bound > 0.0 && bound.is_finite()) {
                    return Err(format!(
                        "figures.{probe}, \"{name}\" = {bound}: it is no rate and no time"
                    ));
                }
                if let Some(near) = unknown(probe, name) {
                    return Err(format!(
                        "figures.{probe}: no figure has the name \"{name}\" ('peerscope expect REPORT' writes those of \
                         a report){near}"
                    ));
                }
            }
        }
        Ok(read)
    }

    /// Returns the figures of a run with every bound that is required of them.
    pub(crate) fn checks<'s>(
        &'s self,
        measurements: Option<&Measurements>,
        topology: &Topology,
    ) -> Vec<Check<'s>> {
        let planned = figures::table_of(measurements);
        let all = of_every_pair(planned.clone(), topology);
        let named = all.keys().flat_map(|identity| {
            let names = names(identity, topology).into_iter();
            names.map(move |name| ((identity.1.probe.to_string(), name), identity))
        });
        let is_bounded =
            |probe: &String, name: &String| Some(self.figures.get(probe)?.contains_key(name));
        let named = named.filter(|((probe, name), _)| is_bounded(probe, name) == Some(true));
        let named = words::grouped(named);
        let bounds = self.figures.iter().flat_map(|(probe, bounds)| {
            bounds.iter().map(move |(name, bound)| {
                (probe, name, Figure { value: *bound, spread_percent: 0.0, bytes: 0 })
            })
        });
        let check = |(probe, name, then): (&'s String, &'s String, Figure)| {
            let mut check = Check { probe, name, figures: Vec::new(), unplanned: Vec::new() };
            for identity in named.get(&(probe.clone(), name.clone())).into_iter().flatten() {
                let (ends, kind) = (*identity).clone();
                match planned.get(*identity) {
                    Some(now) => {
                        check.figures.push(Compared { identity: ends, kind, then, now: *now })
                    }
                    None => check.unplanned.push((ends, kind)),
                }
            }
            check
        };
        bounds.map(check).collect()
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

/// Returns the nearest name if no run has a figure of this name. Other probes than these have too many to list.
fn unknown(probe: &str, name: &str) -> Option<String> {
    let (what, _) = parts(name);
    let all = Kind::known().into_iter().filter(|kind| kind.probe.to_string() == probe);
    let known: Vec<String> = all.map(|kind| kind.name).collect();
    let numbers =
        what.split(|letter: char| letter.is_ascii_digit()).filter(|part| !part.is_empty());
    let what = numbers.collect::<Vec<_>>().join("2");
    let near = did_you_mean(&what, known.iter().map(String::as_str));
    (!known.is_empty() && !known.contains(&what)).then_some(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_file_is_read_and_survives_its_text() {
        let text = "[machine]\ngpus = 8\nmodel = \"NVIDIA H200\"\npcie_generation = 5\npcie_width = 16\nnvlinks = 18\n\
                    peer_access = true\n[figures.bandwidth]\n\"direct of NV18\" = 380\n\
                    \"staged of GPU 0 -> GPU 1\" = 30.5\n";
        let read = Expectations::parse(text).unwrap();
        let Machine { gpus, nvlinks, peer_access, .. } = read.machine;
        assert_eq!((gpus, nvlinks, peer_access), (Some(8), Some(18), Some(true)));
        let names: Vec<_> = read.figures["bandwidth"].keys().map(|name| parts(name)).collect();
        let wanted = [
            ("direct", Some(Place::Class(LinkClass::NvLink(18)))),
            ("staged", Some(Place::Gpus(vec![0, 1]))),
        ];
        assert_eq!(names, wanted);
        assert_eq!(Expectations::parse(&read.to_toml().unwrap()).unwrap(), read);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, named) in [
            ("", "expects nothing"),
            ("profile = \"quick\"\n", "expects nothing"),
            ("[gpu]\ncount = 8\n", "gpu"),
            ("[machine]\ngpus = -8\n", "gpus"),
            ("[machine]\ngpu = 8\n", "gpu"),
            ("[figures.bandwith]\ndirect = 3\n", "did you mean 'bandwidth'?"),
            ("[figures.bandwidth]\n\"direct of NVX\" = 3\n", "NVX"),
            ("[figures.bandwidth]\n\"direct of NV18\" = 0\n", "NV18"),
            ("[figures.bandwidth]\n\"direct of NV18\" = nan\n", "NV18"),
            ("[figures.bandwidth]\n\"stagd of NV18\" = 3\n", "did you mean 'staged'?"),
            ("[figures.host]\npinned = 3\n", "did you mean 'pinned, to"),
            (
                "[figures.host]\n\"pined, to host of GPU 1\" = 3\n",
                "did you mean 'pinned, to host'?",
            ),
        ] {
            let error = Expectations::parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
