//! The facts of a report that programs decide by, for a pair of GPUs.

use std::collections::{BTreeMap, HashMap};

use model::measurement::{Measurements, Status, Verified};
use model::placement::{Pair, Path};
use model::report::Report;
use model::snapshot::{AdapterKind, Gpu, GpuPair, Host, P2pStatus};
use model::topology::LinkClass;

use super::variables::{Level, Variables};

/// The facts of a machine.
pub(crate) struct Machine<'a> {
    pub report: &'a Report,
    pub host: &'a Host,
    pub variables: Variables<'a>,
    pub gpus: Vec<&'a Gpu>,
    classes: HashMap<Pair, LinkClass>,
    said: HashMap<Pair, &'a GpuPair>,
    possible: HashMap<Pair, Option<bool>>,
    arrived: HashMap<Pair, bool>,
}

/// The two orders of a pair.
fn both((one, other): (u32, u32)) -> [Pair; 2] {
    let pair = Pair { source: one, destination: other };
    [pair, pair.reversed()]
}

impl<'a> Machine<'a> {
    pub(crate) fn of(report: &'a Report) -> Self {
        let driver = report.measurements.as_ref().map(|all| &all.driver);
        let said = report.snapshot.pairs.iter().map(|said| {
            let pair = Pair { source: said.source, destination: said.destination };
            (pair, said)
        });
        let access = driver.map(|driver| driver.peer_access.as_slice());
        let possible = access.unwrap_or_default().iter();
        Self {
            report,
            host: &report.snapshot.host,
            variables: Variables(report.snapshot.host.nccl_variables.known().map(Vec::as_slice)),
            gpus: report.snapshot.gpus.iter().collect(),
            classes: report.topology.pairs.iter().map(|route| (route.pair, route.class)).collect(),
            said: said.collect(),
            possible: possible.map(|said| (said.pair, said.possible)).collect(),
            arrived: report.measurements.as_ref().map_or_else(HashMap::new, arrived),
        }
    }

    /// Returns every pair of GPUs once, the lower index first.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut indices: Vec<u32> = self.gpus.iter().map(|gpu| gpu.index).collect();
        indices.sort_unstable();
        indices.dedup();
        let others = indices.clone();
        indices.into_iter().flat_map(move |one| {
            let after: Vec<u32> = others.iter().copied().filter(|other| *other > one).collect();
            after.into_iter().map(move |other| (one, other))
        })
    }

    pub(crate) fn gpu(&self, index: u32) -> Option<&'a Gpu> {
        self.gpus.iter().copied().find(|gpu| gpu.index == index)
    }

    /// Returns the class of the connection of two GPUs, `None` if it is not known.
    pub(crate) fn class(&self, pair: (u32, u32)) -> Option<LinkClass> {
        let [there, back] = both(pair);
        let class = self.classes.get(&there).or_else(|| self.classes.get(&back))?;
        (*class != LinkClass::Unknown).then_some(*class)
    }

    /// Returns NCCL's kind of path between two GPUs, and the GPU that it leads through.
    pub(crate) fn path(&self, pair: (u32, u32)) -> Option<(Level, Option<u32>)> {
        let class = self.class(pair)?;
        if matches!(class, LinkClass::NvLink(_)) {
            return Some((Level::NvLink, None));
        }
        let is_bridged = |middle: u32| {
            let joined = |gpu: u32| {
                let class = self.class((gpu.min(middle), gpu.max(middle)));
                matches!(class, Some(LinkClass::NvLink(_)))
            };
            middle != pair.0 && middle != pair.1 && joined(pair.0) && joined(pair.1)
        };
        let bridges = self.variables.number("NCCL_NVB_DISABLE").unwrap_or(0) == 0;
        let middle = self.gpus.iter().map(|gpu| gpu.index).find(|gpu| is_bridged(*gpu));
        if let Some(middle) = middle.filter(|_| bridges) {
            return Some((Level::Bridged, Some(middle)));
        }
        Some(match class {
            LinkClass::Pix => (Level::Pix, None),
            LinkClass::Pxb => (Level::Pxb, None),
            // NCCL's processors are NUMA nodes.
            LinkClass::Phb | LinkClass::Node => (Level::Phb, None),
            _ => (Level::Sys, None),
        })
    }

    /// Returns true if NVML grants reading and writing both ways.
    pub(crate) fn nvml_grants(&self, pair: (u32, u32)) -> Option<bool> {
        let of = |pair: &Pair| {
            let said = self.said.get(pair)?;
            all([&said.p2p_read, &said.p2p_write].map(|status| is_ok(status.get())))
        };
        all(both(pair).each_ref().map(of))
    }

    /// Returns NVML's words for what it does not grant.
    pub(crate) fn nvml_words(&self, pair: (u32, u32)) -> String {
        let said = both(pair).into_iter().find_map(|pair| {
            let said = self.said.get(&pair)?;
            let refused =
                |status: Option<P2pStatus>| status.filter(|status| *status != P2pStatus::Ok);
            let read = refused(said.p2p_read.get()).map(|status| ("reading", status));
            read.or_else(|| refused(said.p2p_write.get()).map(|status| ("writing", status)))
        });
        said.map_or_else(String::new, |(what, status)| {
            format!("NVML says {status} for {what} ({})", status.meaning())
        })
    }

    /// Returns true if NVML says that the two reach each other over NVLink.
    pub(crate) fn nvml_has_nvlink(&self, pair: (u32, u32)) -> Option<bool> {
        all(both(pair).each_ref().map(|pair| is_ok(self.said.get(pair)?.p2p_nvlink.get())))
    }

    /// Returns true if CUDA grants access both ways.
    pub(crate) fn cuda_grants(&self, pair: (u32, u32)) -> Option<bool> {
        all(both(pair).map(|pair| self.possible.get(&pair).copied().flatten()))
    }

    /// Returns true if bytes that were written by peer access arrived, both ways; false if any did not.
    pub(crate) fn bytes_arrive(&self, pair: (u32, u32)) -> Option<bool> {
        all(both(pair).map(|pair| self.arrived.get(&pair).copied()))
    }

    /// Returns true if both GPUs have this attribute of CUDA.
    pub(crate) fn attribute(
        &self,
        pair: (u32, u32),
        of: fn(&model::cuda::CudaAttributes) -> Option<bool>,
    ) -> Option<bool> {
        let driver = self.report.measurements.as_ref().map(|all| &all.driver)?;
        all([pair.0, pair.1].map(|gpu| driver.attributes_of(gpu).and_then(of)))
    }

    /// Returns CUDA's version that the driver has, as major and minor.
    pub(crate) fn cuda_version(&self) -> Option<(u32, u32)> {
        let (major, minor) = self.host.cuda_version.known()?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    /// Returns the name of an RDMA adapter near one GPU, if both have one so near that NCCL compares its rate with that of
    /// the path between them.
    pub(crate) fn adapters_near_both(&self, pair: (u32, u32)) -> Option<&str> {
        let is_rdma = |name: &str| {
            let mut all = self.report.snapshot.adapters.iter();
            all.any(|adapter| adapter.name == name && adapter.kind == AdapterKind::Rdma)
        };
        let near = |gpu: u32| {
            let mut all = self.report.topology.adapter_paths.iter();
            let found = all.find(|adapter| {
                let mut paths = adapter.gpus.iter();
                is_rdma(&adapter.adapter)
                    && paths.any(|path| {
                        path.gpu == gpu && matches!(path.class, LinkClass::Pix | LinkClass::Pxb)
                    })
            });
            found.map(|adapter| adapter.adapter.as_str())
        };
        near(pair.0).filter(|_| near(pair.1).is_some())
    }
}

fn is_ok(status: Option<P2pStatus>) -> Option<bool> {
    match status? {
        P2pStatus::Unknown => None,
        status => Some(status == P2pStatus::Ok),
    }
}

/// Returns false if one is false, true if all are true, `None` otherwise.
pub(crate) fn all(of: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let mut result = Some(true);
    for one in of {
        match one {
            Some(false) => return Some(false),
            None => result = None,
            Some(true) => {}
        }
    }
    result
}

/// Returns for each ordered pair whether bytes that were copied by peer access arrived.
fn arrived(measurements: &Measurements) -> HashMap<Pair, bool> {
    let mut arrived = BTreeMap::new();
    for cell in &measurements.peer {
        if cell.setup.path != Path::Direct {
            continue;
        }
        let ok = match (cell.ending.status, cell.verified) {
            (_, Verified::Dropped | Verified::Stale | Verified::Corrupt) | (Status::Hung, _) => {
                false
            }
            (Status::Measured, Verified::Ok) => true,
            _ => continue,
        };
        let entry = arrived.entry((cell.pair.source, cell.pair.destination)).or_insert(true);
        *entry &= ok;
    }
    let pair = |((source, destination), ok)| (Pair { source, destination }, ok);
    arrived.into_iter().map(pair).collect()
}
