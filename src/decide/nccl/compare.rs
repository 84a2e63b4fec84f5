//! A file of NCCL beside the machine: what it says that is not true, and what that costs.

use std::collections::BTreeSet;

use diagnose::Settings;
use model::against::{Against, AgainstKind, Difference};
use model::node::NodeId;
use model::report::Report;
use model::rounding::rate as words;
use model::snapshot::{Gpu, PciKind};
use model::topology::LinkClass;
use model::units::PciAddress;
use topology::pcie::{Connection, chain};

use super::super::outlook::{Outlook, between, causes};
use super::super::ring::{Between, NOISE, Shape};
use super::write::{HIDDEN, NVSWITCH, VERSION, nvlinks, speed};
use super::xml::{Element, parse};

/// Part by which NCCL's plan may exceed what a ring gets. NCCL plans with rounded rates of links (src/graph/topo.h).
const PLANNED_ABOVE: f64 = 1.25;
/// NCCL's number of the pattern of a ring.
const RING: &str = "4";

/// A file of NCCL.
#[derive(Debug, Clone)]
pub struct File {
    root: Element,
    kind: AgainstKind,
}

/// Reads a topology or graphs.
///
/// # Errors
///
/// A sentence that says what it is instead.
pub fn read(text: &str) -> Result<File, String> {
    let root = parse(text)?;
    let kind = match root.name.as_str() {
        "system" => AgainstKind::Topology,
        "graphs" => AgainstKind::Graphs,
        other => {
            return Err(format!(
                "its first element is '{other}', where NCCL's is 'system' or 'graphs'"
            ));
        }
    };
    match root.get("version") {
        Some(VERSION) => Ok(File { root, kind }),
        Some(other) => Err(format!("its version is {other}, where NCCL's is {VERSION}")),
        None => Err("it has no version".into()),
    }
}

/// Compares a file with the machine of a report.
pub fn compare(name: &str, file: &File, report: &Report, settings: &Settings) -> Against {
    let causes = causes(report, settings);
    let mut found = Found {
        report,
        outlook: Outlook::of(report, &causes, settings),
        compared: 0,
        differences: Vec::new(),
    };
    match file.kind {
        AgainstKind::Topology => found.topology(&file.root),
        AgainstKind::Graphs => found.graphs(&file.root),
    }
    Against {
        file: name.to_owned(),
        kind: file.kind,
        compared: found.compared,
        differences: found.differences,
    }
}

struct Found<'a> {
    report: &'a Report,
    outlook: Option<Outlook<'a>>,
    compared: u32,
    differences: Vec<Difference>,
}

impl File {
    #[cfg(test)]
    pub(super) const fn kind(&self) -> AgainstKind {
        self.kind
    }
}

impl Found<'_> {
    /// Counts a statement, and keeps it if the machine has something else.
    fn state(&mut self, of: &str, file: &str, machine: &str, costs: Option<String>) {
        self.compared += 1;
        if file != machine {
            self.differences.push(Difference {
                of: of.to_owned(),
                file: file.to_owned(),
                machine: machine.to_owned(),
                costs,
            });
        }
    }

    fn topology(&mut self, root: &Element) {
        let mut there = BTreeSet::new();
        let mut devices: Vec<(&Element, Vec<&Element>)> = Vec::new();
        root.walk(&mut Vec::new(), &mut |element, above| {
            if element.name == "pci" {
                devices.push((element, above.to_vec()));
            }
        });
        for (element, above) in devices {
            let Some(address) = element.get("busid").and_then(|busid| busid.parse().ok()) else {
                continue;
            };
            let gpus = self.report.snapshot.gpus.iter();
            let gpu = gpus.into_iter().find(|gpu| gpu.pci.get() == Some(address));
            match (gpu, element.all("gpu").next()) {
                (Some(gpu), of_file) => {
                    there.insert(gpu.index);
                    self.gpu(gpu, address, of_file, &above);
                    self.link(
                        element,
                        NodeId::Gpu(gpu.index),
                        &format!("GPU {} ({address})", gpu.index),
                    );
                }
                (None, Some(_)) => {
                    let lost = "NCCL fails or leaves it out".to_owned();
                    self.state(&address.to_string(), "a GPU", "no GPU that NVML lists", Some(lost));
                }
                (None, None) => {
                    let is_switch = self.report.topology.link_above(NodeId::Pci(address)).is_some();
                    if is_switch {
                        self.link(element, NodeId::Pci(address), &address.to_string());
                    }
                }
            }
        }
        for gpu in &self.report.snapshot.gpus {
            if !there.contains(&gpu.index) {
                let of = format!("GPU {}", gpu.index);
                self.state(
                    &of,
                    "not in the file",
                    "there",
                    Some("NCCL reads it from the machine".into()),
                );
            }
        }
    }

    /// Compares what a link carries.
    fn link(&mut self, element: &Element, lower: NodeId, of: &str) {
        let link = self.report.topology.link_above(lower).and_then(|link| link.pcie.as_ref());
        let Some(now) = link.and_then(|link: &Connection| link.now.link()) else {
            return;
        };
        let machine = payload(speed(now.generation), f64::from(now.width.number()));
        let said = element.get("link_speed").zip(element.number("link_width"));
        let Some((said_speed, width)) = said else {
            return;
        };
        let planned = payload(said_speed, width);
        let file = format!("{} x{width}", generation(said_speed).unwrap_or(said_speed));
        let (file, machine_words) = match planned == machine {
            true => (String::new(), String::new()),
            false => (file, now.to_string()),
        };
        let costs = planned.zip(machine).map(|(planned, machine)| {
            if planned > machine {
                let measured = self.measured(lower);
                let reached = measured.map_or(String::new(), |rate| {
                    format!(", of which copies reach {}", words(rate))
                });
                format!(
                    "NCCL plans with {} GB/s where the link carries {}{reached}",
                    words(planned),
                    words(machine)
                )
            } else {
                format!(
                    "NCCL plans with {} GB/s where the link carries {}, and may avoid it",
                    words(planned),
                    words(machine)
                )
            }
        });
        self.state(&format!("link above {of}"), &file, &machine_words, costs);
    }

    /// Returns the fastest copy of the GPU above which a link lies.
    fn measured(&self, lower: NodeId) -> Option<f64> {
        let NodeId::Gpu(gpu) = lower else {
            return None;
        };
        self.outlook.as_ref()?.with_host(gpu)
    }

    fn gpu(
        &mut self,
        gpu: &Gpu,
        address: PciAddress,
        of_file: Option<&Element>,
        above: &[&Element],
    ) {
        let of = format!("GPU {} ({address})", gpu.index);
        let Some(of_file) = of_file else {
            self.state(&of, "no GPU", "a GPU", Some("NCCL reads it from the machine".into()));
            return;
        };
        if let Some(dev) = of_file.get("dev") {
            let costs = "the graphs that NCCL dumps name another GPU".to_owned();
            self.state(
                &of,
                &format!("number {dev}"),
                &format!("number {}", gpu.index),
                Some(costs),
            );
        }
        let snapshot = &self.report.snapshot;
        let way = chain(snapshot, address);
        let switches = way.iter().rev().filter(|function| function.kind == PciKind::SwitchUpstream);
        let switches: Vec<String> = switches.map(|function| function.address.to_string()).collect();
        let in_file = above.iter().filter(|element| element.name == "pci");
        let in_file = in_file.filter_map(|element| element.get("busid"));
        let in_file: Vec<String> = in_file
            .map(|busid| {
                busid.parse::<PciAddress>().map_or(busid.to_owned(), |address| address.to_string())
            })
            .collect();
        let below = |switches: &[String]| match switches.is_empty() {
            true => "below no switch".to_owned(),
            false => format!("below {}", switches.join(", ")),
        };
        let costs = "NCCL takes the wrong GPUs and adapters for near ones".to_owned();
        if !way.is_empty() {
            self.state(&of, &below(&in_file), &below(&switches), Some(costs.clone()));
        }
        let cpu = above.iter().find(|element| element.name == "cpu");
        let node = self.outlook.as_ref().and_then(|outlook| outlook.node(gpu.index));
        if let (Some(node), Some(said)) = (node, cpu.and_then(|cpu| cpu.get("numaid"))) {
            self.state(
                &of,
                &format!("NUMA node {said}"),
                &format!("NUMA node {node}"),
                Some(costs),
            );
        }
        self.nvlinks(&of, gpu, of_file);
    }

    fn nvlinks(&mut self, of: &str, gpu: &Gpu, of_file: &Element) {
        let known = gpu.nvlinks.known().is_some();
        let partners = |target: &str| {
            let address = target.parse::<PciAddress>().ok();
            let gpus = self.report.snapshot.gpus.iter();
            let gpu = gpus.into_iter().find(|gpu| address.is_some() && gpu.pci.get() == address);
            gpu.map_or("NVSwitches".to_owned(), |gpu| format!("GPU {}", gpu.index))
        };
        let counted = |all: &mut dyn Iterator<Item = (String, f64)>| {
            let mut by = std::collections::BTreeMap::<String, f64>::new();
            all.for_each(|(target, count)| *by.entry(partners(&target)).or_default() += count);
            let words = by.iter().map(|(to, count)| format!("{count} to {to}"));
            let words: Vec<String> = words.collect();
            if words.is_empty() {
                "no NVLinks".to_owned()
            } else {
                format!("NVLinks: {}", words.join(", "))
            }
        };
        let in_file = of_file.all("nvlink").map(|link| {
            let hidden = link.get("tclass") == Some(NVSWITCH);
            let target = link.get("target").filter(|_| !hidden).unwrap_or(HIDDEN);
            (target.to_owned(), link.number("count").unwrap_or(1.0))
        });
        let mut in_file: Vec<(String, f64)> = in_file.collect();
        let mut here =
            nvlinks(self.report, gpu).into_iter().map(|(to, count)| (to, f64::from(count)));
        let (file, machine) = (counted(&mut in_file.drain(..)), counted(&mut here));
        if known {
            let costs = "NCCL plans its rings over links that are not there, or leaves links out"
                .to_owned();
            self.state(of, &file, &machine, Some(costs));
        }
    }

    fn graphs(&mut self, root: &Element) {
        for graph in root.all("graph") {
            let number = graph.get("id").unwrap_or("?");
            if graph.get("pattern") == Some(RING) {
                self.ring(graph, &format!("graph {number}, a ring"));
            }
        }
    }

    fn ring(&mut self, graph: &Element, of: &str) {
        let all: BTreeSet<u32> = self.report.snapshot.gpus.iter().map(|gpu| gpu.index).collect();
        let mut slowest: Option<(f64, Vec<u32>)> = None;
        let mut seen = BTreeSet::new();
        for channel in graph.all("channel") {
            let order: Vec<u32> =
                channel.all("gpu").filter_map(|gpu| gpu.get("dev")?.parse().ok()).collect();
            if order.len() < 2 || !seen.insert(order.clone()) {
                continue;
            }
            let distinct: BTreeSet<u32> = order.iter().copied().collect();
            if !distinct.is_subset(&all) || distinct.len() < order.len() {
                self.state(
                    of,
                    &format!("GPUs {}", list(&order)),
                    &format!("GPUs {}", list(&Vec::from_iter(all.clone()))),
                    None,
                );
                continue;
            }
            self.compared += 1;
            let Some(outlook) = &self.outlook else {
                continue;
            };
            let table = Between::of(outlook, &order);
            let rate = table.rate(&table.places(&order), Shape::Ring);
            let best = table.best(&table.places(&order), Shape::Ring, 0.0);
            if best.gbps > rate * NOISE {
                self.differences.push(Difference {
                    of: of.to_owned(),
                    file: format!("the order {}", list(&order)),
                    machine: format!("the order {} is faster", list(&table.gpus(&best.order))),
                    costs: Some(format!(
                        "bus bandwidth of at most {} GB/s instead of {} (predicted)",
                        words(rate),
                        words(best.gbps)
                    )),
                });
            }
            if slowest.as_ref().is_none_or(|(known, _)| rate < *known) {
                slowest = Some((rate, order));
            }
        }
        let Some((rate, order)) = slowest else {
            return;
        };
        let planned = graph.number("speedintra").zip(graph.number("nchannels"));
        if let Some(planned) = planned.map(|(speed, channels)| speed * channels) {
            self.compared += 1;
            if planned > rate * PLANNED_ABOVE {
                self.differences.push(Difference {
                    of: of.to_owned(),
                    file: format!("{} GB/s planned", words(planned)),
                    machine: format!("at most {} by measured rates", words(rate)),
                    costs: Some(
                        "NCCL may choose this algorithm and these channels where others are faster"
                            .into(),
                    ),
                });
            }
        }
        let class = self.farthest(&order);
        if let (Some(said), Some(class)) = (graph.get("typeintra"), class) {
            let costs = "NCCL takes its GPUs for nearer or farther than they are".to_owned();
            // NVLink through another GPU is no class of nvidia-smi.
            let same = said == class || (said == "NVB" && class == "NVL");
            self.state(of, said, if same { said } else { class }, Some(costs));
        }
    }

    /// Returns the farthest class between neighbours of this ring, in NCCL's words.
    fn farthest(&self, order: &[u32]) -> Option<&'static str> {
        let next = order.iter().skip(1).chain(order.first());
        let routes = order.iter().zip(next).map(|(from, to)| {
            let pair = between(*from, *to).pair()?;
            Some(self.report.topology.route(pair)?.class)
        });
        let classes: Option<Vec<LinkClass>> = routes.collect();
        let nearest_last = |class: &LinkClass| match class {
            LinkClass::NvLink(_) => (0, "NVL"),
            LinkClass::Pix => (1, "PIX"),
            LinkClass::Pxb => (2, "PXB"),
            LinkClass::Phb | LinkClass::Node => (3, "PHB"),
            LinkClass::Sys => (4, "SYS"),
            LinkClass::Unknown => (5, "?"),
        };
        let farthest = classes?.iter().map(nearest_last).max()?;
        (farthest.0 < 5).then_some(farthest.1)
    }
}

fn list(gpus: &[u32]) -> String {
    let gpus: Vec<String> = gpus.iter().map(u32::to_string).collect();
    gpus.join(" ")
}

/// Returns the generation of a speed as the kernel writes it: `16 GT/s`, `16.0 GT/s PCIe`.
fn generation(speed: &str) -> Option<&'static str> {
    Some(match transfers(speed)? {
        2.5 => "Gen1",
        5.0 => "Gen2",
        8.0 => "Gen3",
        16.0 => "Gen4",
        32.0 => "Gen5",
        64.0 => "Gen6",
        _ => return None,
    })
}

fn transfers(speed: &str) -> Option<f64> {
    speed.split_whitespace().next()?.parse().ok()
}

/// Returns the payload rate of a link, GB/s; `None` if its speed is not one.
fn payload(speed: &str, width: f64) -> Option<f64> {
    let code = |transfers: f64| if transfers < 8.0 { 0.8 } else { 128.0 / 130.0 };
    let transfers = transfers(speed)?;
    generation(speed).map(|_| transfers * code(transfers) / 8.0 * width)
}
