//! NVLinks of GPUs from what tools say: links by number, counts between GPUs, names of models.

use std::collections::BTreeMap;

use model::reading::Reading;
use model::snapshot::{Gpu, NvLink, NvLinkBond, NvLinkRemote};

/// Most NVLinks of a GPU: 18 on H100, H200, B200 and GB200. More links to all others together than that cannot be direct ones.
const MOST_LINKS: usize = 18;

/// NVLink version of models, by a word of their name. Source: the white papers of each (P100, V100, A100, GA102, H100,
/// Blackwell).
const VERSIONS: &[(&str, &str)] = &[
    ("P100", "1.0"),
    ("V100", "2.0"),
    ("TITAN RTX", "2.0"),
    ("RTX 2080", "2.0"),
    ("Quadro RTX", "2.0"),
    ("A100", "3.0"),
    ("A800", "3.0"),
    ("RTX 3090", "3.0"),
    ("A6000", "3.0"),
    ("A40", "3.0"),
    ("A30", "3.0"),
    ("H100", "4.0"),
    ("H800", "4.0"),
    ("H20", "4.0"),
    ("B100", "5.0"),
    ("B200", "5.0"),
    ("B300", "5.0"),
];

/// Returns the NVLink version of a GPU, by its name or by the raw rate of a link where only one version has it.
fn version(name: Option<&str>, speed: Option<u32>) -> Option<String> {
    let by_name = name.and_then(|name| VERSIONS.iter().find(|(word, _)| name.contains(word)));
    let by_speed = match speed {
        Some(26_000..=27_000) => Some("4.0"),
        Some(53_000..=54_000) => Some("5.0"),
        Some(14_000..=15_000) => Some("3.0"),
        _ => None,
    };
    by_name.map(|(_, version)| *version).or(by_speed).map(str::to_owned)
}

/// Numbers of links by source and destination.
pub(super) type Bonds = BTreeMap<(u32, u32), u8>;

/// Sets the links of all GPUs. Returns the numbers of links of the matrix, as they stand there.
pub(super) fn settle(
    gpus: &mut [Gpu],
    mut links: BTreeMap<u32, BTreeMap<u8, NvLink>>,
    bonds: &Bonds,
) -> Vec<NvLinkBond> {
    let switched = gpus.iter().any(|gpu| {
        let own = bonds.iter().filter(|((source, _), _)| *source == gpu.index);
        let own = own.map(|(_, links)| usize::from(*links)).filter(|links| *links <= MOST_LINKS);
        own.sum::<usize>() > links.get(&gpu.index).map_or(MOST_LINKS, BTreeMap::len)
    });
    for gpu in gpus.iter_mut() {
        let mut own = links.remove(&gpu.index).unwrap_or_default();
        if own.is_empty() {
            continue;
        }
        let name = gpu.name.known().map(String::as_str);
        for link in own.values_mut() {
            if switched && link.active.get() == Some(true) && link.remote.known().is_none() {
                link.remote = Reading::Known(NvLinkRemote::Switch);
            }
            if link.version.known().is_none()
                && let Some(version) = version(name, link.speed_mbps.get())
            {
                link.version = Reading::Known(version);
            }
        }
        gpu.nvlinks = Reading::Known(own.into_values().collect());
    }
    let bond = |((source, destination), links): (&(u32, u32), &u8)| {
        let gpu = gpus.iter().find(|gpu| gpu.index == *source)?;
        let can_be = usize::from(*links) <= MOST_LINKS;
        let speed =
            gpu.nvlinks.known().into_iter().flatten().find_map(|link| link.speed_mbps.get());
        Some(NvLinkBond {
            source: *source,
            destination: *destination,
            links: *links,
            version: version(gpu.name.known().map(String::as_str), speed).filter(|_| can_be),
            speed_mbps: speed,
            over_switches: switched,
        })
    };
    bonds.iter().filter_map(bond).collect()
}
