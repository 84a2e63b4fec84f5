//! Repairs what findings report.

use std::collections::BTreeSet;

use model::finding::{Finding, Subject};
use model::placement::Pair;
use topology::pcie::{self, Connection};

use super::Changed;

impl Changed {
    /// Repairs what a finding reports. Returns false if nothing of it takes a rate.
    pub(in super::super) fn repair(&mut self, finding: &Finding) -> bool {
        let gpus: Vec<u32> = match finding.subject {
            Subject::Gpu { index } | Subject::Link { index, .. } => vec![index],
            _ => finding.scope.gpus.clone(),
        };
        let mut links: Vec<Connection> = Vec::new();
        let known = self.report.topology.pcie_links();
        links.extend(known.filter(|link| is_of(link, finding, &gpus)).cloned());
        let mut repaired = false;
        // The repair of a slot that limits its card is another slot.
        let by_design = *finding.code == *"pcie-narrow-by-design";
        for link in links {
            let possible = match by_design {
                true => link.device_possible,
                false => link.possible,
            };
            if let (Some(lower), Some(to)) = (link.lower(), possible.link()) {
                repaired |= link.now != possible;
                self.set_link(lower, to);
            }
        }
        if *finding.code == *"pcie-upstream-bottleneck" {
            repaired |= self.widen_above(&gpus);
        }
        if finding.code.starts_with("nvlink") {
            repaired |= self.bridge_again(&gpus);
            for gpu in &gpus {
                repaired |= self.activate(*gpu);
            }
        }
        let of_subject = match finding.subject {
            Subject::Pair(pair) => vec![pair],
            _ => Vec::new(),
        };
        let pairs = finding.scope.pairs.iter().copied().chain(of_subject);
        let pairs: BTreeSet<Pair> = pairs.flat_map(|pair| [pair, pair.reversed()]).collect();
        let refused = pairs.iter().filter(|pair| {
            let route = self.report.topology.route(**pair);
            route.is_some_and(|route| route.peer_access.cuda == Some(false))
        });
        let refused: Vec<Pair> = refused.copied().collect();
        for pair in &refused {
            self.grant(*pair);
            repaired = true;
        }
        if !finding.scope.causes.is_empty() {
            let causes = std::mem::take(&mut self.causes).into_iter().enumerate();
            let (gone, left): (Vec<_>, Vec<_>) =
                causes.partition(|(at, _)| finding.scope.causes.contains(at));
            self.causes = left.into_iter().map(|(_, cause)| cause).collect();
            repaired |= !gone.is_empty();
        }
        let is_of_figures = !finding.scope.causes.is_empty() || finding.scope.rate.is_some();
        if is_of_figures && !repaired_by_link(finding) {
            self.healed_pairs.extend(&pairs);
            self.healed_gpus.extend(&gpus);
            repaired |= !pairs.is_empty() || !gpus.is_empty();
        }
        repaired
    }

    /// Lets the links above these GPUs carry what the link of one of them does, as in slots with links of their own. Returns
    /// false if no link is known to carry less: no file shows the uplink of a chipset.
    fn widen_above(&mut self, gpus: &[u32]) -> bool {
        let topology = &self.report.topology;
        let own = gpus.iter().filter_map(|gpu| topology.pcie_link_of(*gpu));
        let own = own.filter_map(|link| Some((link.now.link()?, pcie::rate(link.now)?)));
        let Some((to, widest)) = own.max_by(|(_, one), (_, other)| one.total_cmp(other)) else {
            return false;
        };
        let above = topology
            .pcie_links()
            .filter(|link| link.gpu.is_none() && gpus.iter().all(|gpu| link.gpus.contains(gpu)));
        let narrow = above.filter(|link| pcie::rate(link.now).is_some_and(|rate| rate < widest));
        let narrow: Vec<_> = narrow.filter_map(Connection::lower).collect();
        for lower in &narrow {
            self.set_link(*lower, to);
        }
        !narrow.is_empty()
    }

    pub(super) fn fix(&mut self, wanted: &str) -> Result<(), String> {
        let (code, gpu) = match wanted.split_once(':') {
            Some((code, gpu)) => {
                let number = gpu.trim().parse::<u32>();
                let gpu = number.map_err(|_| {
                    format!(
                        "--fix {wanted}: behind the colon stands the index of a GPU, as in {code}:5"
                    )
                })?;
                (code, Some(gpu))
            }
            None => (wanted, None),
        };
        let findings: Vec<Finding> = self.report.findings.clone();
        let of_code = findings.iter().filter(|finding| *finding.code == *code);
        let is_meant = |finding: &&Finding| gpu.is_none_or(|gpu| concerns(finding, gpu));
        let meant: Vec<&Finding> = of_code.filter(is_meant).collect();
        if meant.is_empty() {
            let mut codes: Vec<&str> = findings.iter().map(|finding| &*finding.code).collect();
            codes.dedup();
            return Err(format!(
                "--fix {wanted}: the report has no such finding; it has {}",
                match codes.is_empty() {
                    true => "none".to_owned(),
                    false => codes.join(", "),
                }
            ));
        }
        let mut repaired = false;
        for finding in meant {
            repaired |= self.repair(finding);
        }
        if repaired {
            Ok(())
        } else {
            Err(format!(
                "--fix {wanted}: this finding takes no rate that could be computed; 'peerscope explain {code}' says what \
                 it means"
            ))
        }
    }
}

/// Returns true if a finding is about this link.
fn is_of(link: &Connection, finding: &Finding, gpus: &[u32]) -> bool {
    let own = link.gpu.is_some_and(|gpu| gpus.contains(&gpu));
    match finding.subject {
        Subject::PcieLink { address } => link.below == Some(address),
        _ => own && (finding.scope.own_links || finding.code.starts_with("pcie")),
    }
}

/// Returns true if the shape of a link is what a finding reports: the figures follow from that.
fn repaired_by_link(finding: &Finding) -> bool {
    finding.scope.own_links || finding.code.starts_with("pcie")
}

/// Returns true if a finding is about this GPU.
fn concerns(finding: &Finding, gpu: u32) -> bool {
    let of_subject = match finding.subject {
        Subject::Gpu { index } | Subject::Link { index, .. } => index == gpu,
        Subject::Pair(pair) => pair.touches(gpu),
        _ => false,
    };
    let scope = &finding.scope;
    of_subject || scope.gpus.contains(&gpu) || scope.pairs.iter().any(|pair| pair.touches(gpu))
}
