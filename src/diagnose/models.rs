//! Rates of healthy GPUs of one model, if recorded or published. They are known more closely than those of their kind
//! of link, so a machine that is uniformly slow shows. A model that is not listed here is judged by the table of links.

use model::placement::Pair;
use model::snapshot::Snapshot;
use model::units::{GbPerSecond, PcieLink};

/// Share of the theoretical rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Rate that healthy machines reach, per cent of theoretical.
    pub percent: f64,
    /// Margin below that which is still healthy, per cent of it.
    pub margin_percent: f64,
}

impl Share {
    /// Returns what is left of it: this per cent, with this margin at least.
    pub(crate) fn left(self, percent: f64, margin_percent: f64) -> Self {
        Self {
            percent: self.percent * percent / 100.0,
            margin_percent: self.margin_percent.max(margin_percent),
        }
    }

    /// Returns the lowest share that is still healthy, per cent of theoretical.
    pub(crate) fn floor_percent(self) -> f64 {
        self.percent * (1.0 - self.margin_percent / 100.0)
    }
}

/// A class of copies and the share that they reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// Its name in `--config`.
    pub key: &'static str,
    /// The class of links that it replaces; its own key if it is a class of links itself.
    pub general: &'static str,
    pub share: Share,
    /// The lowest and the highest share that healthy machines are known to have reached, per cent of theoretical.
    /// `None` if no figure is known.
    pub reached: Option<[f64; 2]>,
}

/// Returns the row of a class of links.
pub(super) const fn row(
    key: &'static str,
    percent: f64,
    margin_percent: f64,
    reached: Option<[f64; 2]>,
) -> Expected {
    Expected { key, general: key, share: Share { percent, margin_percent }, reached }
}

/// Returns the row of one model, from figures in GB/s of its theoretical rate: the lowest and the highest known rates
/// of healthy ones, the expected rate, and the floor.
const fn of_model(
    (key, general): (&'static str, &'static str),
    theoretical: f64,
    [low, high]: [f64; 2],
    (expected, floor): (f64, f64),
) -> Expected {
    let share = Share {
        percent: 100.0 * expected / theoretical,
        margin_percent: 100.0 * (1.0 - floor / expected),
    };
    let reached = Some([100.0 * low / theoretical, 100.0 * high / theoretical]);
    Expected { key, general, share, reached }
}

/// Copies between two GPUs of one model over this many NVLinks.
struct Model {
    /// Words that the product name contains.
    words: &'static [&'static str],
    /// Words that only other products contain.
    without: &'static [&'static str],
    /// NVLinks of the route.
    links: u8,
    row: Expected,
}

/// Figures in GB/s. The floors lie some 5 to 9% below the expected rate. Repeats spread by as much elsewhere
/// (cuda-samples issue 449), and other machines of the same model are not known to differ by more. They lie above the
/// limits by which others drain nodes (Azure: 335 for H100 and H200, 235 for A100).
const NVLINKS: &[Model] = &[
    Model {
        words: &["H200"],
        // The PCIe card has bridges, whose figures are not known.
        without: &["NVL"],
        links: 18,
        row: of_model(
            // 2, 4 and 8 x H200: 393 to 397 of 450 GB/s, 390 where a GPU sends and receives (measured)
            ("h200", "nvlink-4"),
            450.0,
            [390.0, 397.0],
            (396.0, 370.0),
        ),
    },
    Model {
        words: &["H100"],
        without: &["NVL"],
        links: 18,
        row: of_model(
            // 2 and 4 x H100: 394 to 397.5 of 450 GB/s (measured); p2pBandwidthLatencyTest shows 362 to 394 on the
            // same machine, as in what was published of 8 x H100 (371 to 380: nccl issues 1264 and 1442)
            ("h100", "nvlink-4"),
            450.0,
            [390.0, 398.0],
            (396.0, 340.0),
        ),
    },
    Model {
        words: &["H100"],
        without: &[],
        links: 12,
        row: of_model(
            // H100 with 12 links: 256.6 of 300 GB/s (published: azurehpc-health-checks issue 162)
            ("h100-12-links", "nvlink-4"),
            300.0,
            [256.0, 261.0],
            (257.0, 244.0),
        ),
    },
    Model {
        words: &["GH200"],
        without: &[],
        links: 6,
        row: of_model(
            // 4 x GH200: 133.2 of 150 GB/s written, 127 to 133 read (published: nvbandwidth 0.9)
            ("gh200-6-links", "nvlink-4"),
            150.0,
            [127.0, 133.5],
            (133.0, 124.0),
        ),
    },
    Model {
        words: &["A100"],
        without: &[],
        links: 12,
        row: of_model(
            // A100 with 12 links: 276 of 300 GB/s (published); repeats spread by 5% and more (cuda-samples issue
            // 449)
            ("a100-12-links", "nvlink-3"),
            300.0,
            [263.0, 279.0],
            (276.0, 250.0),
        ),
    },
    Model {
        words: &["B300"],
        without: &[],
        links: 18,
        row: of_model(
            // 7 x B300: 774 to 775 of 900 GB/s written, 764 to 766 read with nvbandwidth, 594 to 748 with
            // p2pBandwidthLatencyTest on the same machine (published: BAEYUNSEON/XE9780_Performance_Test)
            ("b300", "nvlink-5"),
            900.0,
            [764.0, 775.0],
            (774.0, 590.0),
        ),
    },
    Model {
        words: &["H800"],
        without: &[],
        links: 8,
        row: of_model(
            // 8 x H800: 176 of 200 GB/s written, 172 read (published: liguodongiot/llm-action, nvbandwidth); 160 by another
            // program (published by DeepSeek)
            ("h800", "nvlink-4"),
            200.0,
            [157.0, 177.0],
            (172.0, 144.0),
        ),
    },
    Model {
        words: &["V100", "SXM3"],
        without: &[],
        links: 6,
        row: of_model(
            // 16 x V100 in a DGX-2: 145.6 of 150 GB/s (published: wohlbier/gpu-micro)
            ("v100-sxm3", "nvlink-2"),
            150.0,
            [145.0, 146.0],
            (145.5, 132.0),
        ),
    },
    Model { words: &["GB200"], without: &[], links: 18, row: GRACE_BLACKWELL },
    Model { words: &["GB300"], without: &[], links: 18, row: GRACE_BLACKWELL },
];

const GRACE_BLACKWELL: Expected = of_model(
    // 4 x GB200 and 4 x GB300: 775 and 776 of 900 GB/s written, 768 read (published: nvbandwidth, Oracle's
    // guides)
    ("gb200", "nvlink-5"),
    900.0,
    [768.0, 776.0],
    (775.0, 730.0),
);

/// Returns the keys of these rows in `--config`, each once.
pub(crate) fn rows() -> impl Iterator<Item = Expected> {
    let first =
        |at: &usize| NVLINKS[..*at].iter().all(|other| other.row.key != NVLINKS[*at].row.key);
    (0..NVLINKS.len()).filter(first).map(|at| NVLINKS[at].row)
}

/// NVLinks of a module that NVSwitches connect, by words of its product name. All boards with NVSwitches connect all of
/// them. A800 and H800 were made with fewer for export; bridges and boards without switches are not meant.
const SWITCHED: [(u8, &[&str]); 4] = [
    // NVIDIA V100 data sheet: 300 GB/s both ways; HGX-2. Boards of V100-SXM2 have no switches.
    (6, &["SXM3"]),
    // NVIDIA A800 data sheet and H800: 400 GB/s both ways.
    (8, &["A800", "H800"]),
    // NVIDIA A100 data sheet: 600 GB/s both ways.
    (12, &["A100"]),
    // NVIDIA H100 and H200 data sheets, H20: 900 GB/s both ways; read on 8 x H200. NVIDIA HGX B100, B200 and B300, GB200 and
    // GB300 NVL72: 1.8 TB/s both ways.
    (18, &["H100", "H20", "H200", "B100", "B200", "B300", "GB200", "GB300"]),
];

/// Returns the number of NVLinks that NVSwitches connect on a module of this name, if its boards are all made alike.
pub(crate) fn switched_links(name: &str) -> Option<u8> {
    let (links, _) = SWITCHED.iter().find(|(_, words)| has_any(name, words))?;
    (!has_any(name, &["NVL"])).then_some(*links)
}

/// Returns the expected rate of copies between these two GPUs over this many NVLinks, if both are of one known model.
pub(crate) fn over_nvlink(snapshot: &Snapshot, pair: Pair, links: u8) -> Option<Expected> {
    let name = |gpu: u32| snapshot.gpu(gpu).and_then(|gpu| gpu.name.known());
    row_of(&[name(pair.source)?, name(pair.destination)?], links)
}

/// Returns the expected rate of copies between GPUs of these names over this many NVLinks, if they are of one known model.
fn row_of(names: &[&String], links: u8) -> Option<Expected> {
    let is_it =
        |model: &Model, name: &String| is_of(name, model.words) && !has_any(name, model.without);
    let fits = |model: &&Model| model.links == links && names.iter().all(|name| is_it(model, name));
    NVLINKS.iter().find(fits).map(|model| model.row)
}

/// Returns the rate of a healthy pair of modules of this name over all their NVLinks, GB/s.
pub(crate) fn joined_gbps(name: &String) -> Option<f64> {
    let links = switched_links(name).filter(|_| is_sxm(name))?;
    let row = row_of(&[name], links)?;
    let version = row.general.strip_prefix("nvlink-")?;
    let each = topology::capacity::nvlink(&format!("{version}.0"), None)?.gbps;
    Some(f64::from(links) * each * row.share.percent / 100.0)
}

/// Words of the product name, and the lowest known rate of a copy within a healthy GPU, GB/s: bytes copied, not read plus
/// written. If p2pBandwidthLatencyTest is the source, they are half of the figure it
/// shows, since it counts both bytes read and bytes written.
const LOCAL: &[(&[&str], f64)] = &[
    // H200: 2094 GB/s (measured, nvbandwidth); 4010 read and written (published by Azure).
    (&["H200"], 2005.0),
    // 8 x H100: 2475 to 2578 GB/s read and written (nccl issue 1264).
    (&["H100", "HBM3", "80GB"], 1237.0),
    // 4 x GH200 120GB: 1799 to 1801 GB/s (published, nvbandwidth).
    (&["GH200", "120GB"], 1799.0),
    // 4 x GB200: 13094 GB/s in all (published by Oracle, nvbandwidth).
    (&["GB200"], 3274.0),
    // 4 x GB300: 13250 GB/s in all (published by Oracle, nvbandwidth).
    (&["GB300"], 3312.0),
    // 8 x A100 80GB: 1561 to 1608 GB/s read and written (nccl-tests issue 100).
    (&["A100", "80GB", "SXM4"], 780.0),
];

/// Names of parts that exist for SXM sockets only, without the manufacturer.
const SXM_ONLY: [&str; 8] =
    ["H100 80GB HBM3", "H200", "H20", "H20-3e", "H800", "B100", "B200", "B300"];

/// Returns true if a GPU of this name is one for an SXM socket.
pub(crate) fn is_sxm(name: &str) -> bool {
    let name = name.trim();
    let part = name.strip_prefix("NVIDIA ").unwrap_or(name);
    part.split([' ', '-']).any(|word| word.starts_with("SXM")) || SXM_ONLY.contains(&part)
}

/// PCIe generation of boards with 16 lanes, by a word of the product name: NVIDIA's data sheets. Names that boards with
/// fewer lanes share are left out.
const SLOTS: [(&str, &[&str]); 3] = [
    ("Gen3 x16", &["P100", "P40", "V100", "T4", "2080"]),
    (
        "Gen4 x16",
        &[
            "A100", "A800", "A40", "A30", "A10", "A6000", "A5000", "L4", "L40", "L40S", "3080",
            "3090", "4080", "4090",
        ],
    ),
    ("Gen5 x16", &["H100", "H800", "H20", "H200", "B100", "B200", "B300", "5080", "5090"]),
];

/// Returns the PCIe link that boards of this name have, if it is known.
pub(crate) fn slot(name: &str) -> Option<PcieLink> {
    SLOTS.iter().find(|(_, words)| has_any(name, words))?.0.parse().ok()
}

/// Returns the rate of copies within a GPU of this name, if it is known.
pub(crate) fn local(name: &str) -> Option<GbPerSecond> {
    let fits = |words: &[&str]| is_of(name, words) && !has_any(name, &["NVL"]);
    LOCAL.iter().find(|(words, _)| fits(words)).map(|(_, lowest)| GbPerSecond(*lowest))
}

/// Returns true if a product name contains all of these words as words: `GH200` is no `H200`.
fn is_of(name: &str, words: &[&str]) -> bool {
    words.iter().all(|word| has_any(name, &[word]))
}

fn has_any(name: &str, words: &[&str]) -> bool {
    let mut of_name = name.split(|c: char| !c.is_ascii_alphanumeric());
    of_name.any(|part| words.iter().any(|word| part.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::reading::Reading;
    use model::testing::h200_vm;

    const PAIR: Pair = Pair { source: 0, destination: 1 };

    fn key(names: [&str; 2], links: u8) -> Option<&'static str> {
        let mut machine = h200_vm(2);
        for (gpu, name) in machine.gpus.iter_mut().zip(names) {
            gpu.name = Reading::Known(name.into());
        }
        over_nvlink(&machine, PAIR, links).map(|row| row.key)
    }

    #[test]
    fn a_model_is_known_by_whole_words_of_its_name_and_by_its_links() {
        assert_eq!(key(["NVIDIA H200"; 2], 18), Some("h200"));
        assert_eq!(
            key(["NVIDIA H200"; 2], 16),
            None,
            "some are down, which the table of links judges"
        );
        assert_eq!(key(["NVIDIA H200 NVL"; 2], 18), None);
        assert_eq!(key(["NVIDIA GH200 120GB"; 2], 18), None);
        assert_eq!(key(["NVIDIA GH200 120GB"; 2], 6), Some("gh200-6-links"));
        assert_eq!(key(["NVIDIA H100 80GB HBM3"; 2], 18), Some("h100"));
        assert_eq!(key(["NVIDIA H100 NVL"; 2], 12), Some("h100-12-links"));
        assert_eq!(key(["NVIDIA A100-SXM4-80GB"; 2], 12), Some("a100-12-links"));
        assert_eq!(key(["NVIDIA H200", "NVIDIA H100 80GB HBM3"], 18), None);
        assert_eq!(key(["NVIDIA H20-3e"; 2], 18), None);
    }

    /// Healthy figures and known slow ones, GB/s, by model and links.
    #[test]
    fn healthy_figures_lie_above_the_floor_and_slow_ones_below() {
        for (name, links, healthy, slow) in [
            ("NVIDIA H200", 18, &[388.0, 393.3, 396.4][..], &[345.0, 365.0][..]),
            ("NVIDIA H100 80GB HBM3", 18, &[370.0, 371.0, 375.0, 397.0], &[335.0]),
            ("NVIDIA H100 NVL", 12, &[256.6, 257.0], &[240.0]),
            ("NVIDIA GH200 120GB", 6, &[127.0, 133.2], &[120.0]),
            ("NVIDIA A100-SXM4-80GB", 12, &[263.0, 276.0], &[235.0]),
            ("NVIDIA GB200", 18, &[768.0, 775.0], &[700.0]),
            ("NVIDIA B300 SXM6 AC", 18, &[594.4, 774.6], &[560.0]),
            ("NVIDIA H800", 8, &[157.0, 176.2], &[140.0]),
            ("Tesla V100-SXM3-32GB", 6, &[145.5, 145.6], &[125.0]),
        ] {
            let mut machine = h200_vm(2);
            machine.gpus.iter_mut().for_each(|gpu| gpu.name = Reading::Known(name.into()));
            let row = over_nvlink(&machine, PAIR, links).unwrap();
            let per_link =
                if ["GB200", "B300"].iter().any(|new| name.contains(new)) { 50.0 } else { 25.0 };
            let floor = per_link * f64::from(links) * row.share.floor_percent() / 100.0;
            assert!(healthy.iter().all(|rate| *rate > floor), "{name}: {floor}");
            assert!(slow.iter().all(|rate| *rate < floor), "{name}: {floor}");
        }
    }

    #[test]
    fn rows_have_keys_of_their_own_and_ranges_that_hold_what_is_expected() {
        let keys: Vec<_> = rows().map(|row| row.key).collect();
        assert_eq!(keys.len(), 9, "{keys:?}");
        for row in rows() {
            let [low, high] = row.reached.unwrap();
            assert!(low <= row.share.percent && row.share.percent <= high, "{}", row.key);
            assert!(row.share.floor_percent() < low && high < 100.0, "{}", row.key);
        }
    }

    #[test]
    fn copies_within_a_gpu_are_known_of_some_models() {
        assert_eq!(local("NVIDIA H200").unwrap(), GbPerSecond(2005.0));
        assert!(local("NVIDIA GH200 480GB").is_none() && local("NVIDIA H200 NVL").is_none());
        assert!(local("NVIDIA A100-SXM4-40GB").is_none() && local("NVIDIA L40S").is_none());
    }
}
