//! Payload rates that links can carry per direction, each with its source.
//!
//! These rates are the denominators of every "per cent of theoretical". They are therefore the most data that a link
//! can carry: after the line code, but before packet headers. The share of the headers depends on the payload size
//! that host and device negotiated.

use model::units::PcieLink;

/// A payload rate per direction and its source.
#[derive(Debug, Clone, PartialEq)]
pub struct Capacity {
    /// Decimal GB/s in one direction.
    pub gbps: f64,
    /// The source, for people.
    pub source: String,
}

/// Transfer rate of a lane, and the share of it after the line code, by PCIe generation.
///
/// Source: PCI Express Base Specification 2.1 (2.5 and 5 GT/s, 8b/10b) and 3.1 to 5.0 (8, 16 and 32 GT/s, 128b/130b).
const PCIE_LANES: [(f64, f64, &str); 5] = [
    (2.5, 8.0 / 10.0, "8b/10b"),
    (5.0, 8.0 / 10.0, "8b/10b"),
    (8.0, 128.0 / 130.0, "128b/130b"),
    (16.0, 128.0 / 130.0, "128b/130b"),
    (32.0, 128.0 / 130.0, "128b/130b"),
];

/// Transfer rate of a Gen6 lane: 64 GT/s, PAM4.
const GEN6_LANE_GTS: f64 = 64.0;

/// Share of a Gen6 flit that carries packets: 236 of 256 bytes. The rest is data link payload, CRC and forward error
/// correction.
///
/// Source: PCI Express Base Specification 6.0, from memory. It was not checked against the text; the displayed source
/// notes this.
const GEN6_FLIT_SHARE: f64 = 236.0 / 256.0;

/// Returns the payload rate of a PCIe link after its line code.
pub fn pcie(link: PcieLink) -> Capacity {
    let (gts, share, code) = match PCIE_LANES.get(usize::from(link.generation.number()) - 1) {
        Some(&lane) => lane,
        None => (
            GEN6_LANE_GTS,
            GEN6_FLIT_SHARE,
            "236 of 256 bytes of each flit; this share is not verified",
        ),
    };
    Capacity {
        gbps: gts * share / 8.0 * f64::from(link.width.number()),
        source: format!("PCIe {link}: {gts} GT/s x {} lanes after line code ({code})", link.width),
    }
}

/// Payload of an NVLink 1 per direction, GB/s. Source: NVIDIA Tesla P100 white paper, 4 links with a total of 160
/// GB/s in both directions.
const NVLINK_1_GBPS: f64 = 20.0;
/// Payload of an NVLink 2 per direction, GB/s. Source: NVIDIA Tesla V100 white paper, 6 links with a total of 300
/// GB/s in both directions.
const NVLINK_2_GBPS: f64 = 25.0;
/// Payload of an NVLink 3 per direction, GB/s. Source: NVIDIA A100 white paper, 12 links with a total of 600 GB/s in
/// both directions.
const NVLINK_3_GBPS: f64 = 25.0;
/// Payload of an NVLink 4 per direction, GB/s. Source: NVIDIA H100 white paper, 18 links with a total of 900 GB/s in
/// both directions.
const NVLINK_4_GBPS: f64 = 25.0;
/// Payload of an NVLink 5 per direction, GB/s. Source: NVIDIA Blackwell data sheet, 18 links with a total of 1800
/// GB/s in both directions.
const NVLINK_5_GBPS: f64 = 50.0;
/// Payload of an NVLink 6 per direction, GB/s. Source: NVIDIA's NVLink page, Rubin, 3600 GB/s in both directions; 36 links.
const NVLINK_6_GBPS: f64 = 50.0;

/// NVML speed, MB/s, below which an NVLink 3 is not the A100's (25000 or 25781) but the slower one of GA102 boards
/// (14062). Source: NVIDIA GA102 white paper, 4 links with a total of 112.5 GB/s in both directions. The bound lies
/// between the two.
const NVLINK_3_SLOW_BELOW_MBPS: u32 = 20_000;

/// Returns the payload rate of one NVLink by its version (`4.0`).
///
/// NVML's speed is the raw rate of the wire, 6.25% above payload on versions 4 and 5, so it is not used as the rate.
/// It matters only for version 3, where it tells apart two kinds of link with the same version.
pub fn nvlink(version: &str, speed_mbps: Option<u32>) -> Option<Capacity> {
    let (gbps, source) = match version.split('.').next()? {
        "1" => (NVLINK_1_GBPS, "Tesla P100 white paper"),
        "2" => (NVLINK_2_GBPS, "Tesla V100 white paper"),
        "3" => match speed_mbps {
            Some(speed) if (1..NVLINK_3_SLOW_BELOW_MBPS).contains(&speed) => {
                (f64::from(speed) / 1000.0, "as NVML reads it; GA102 white paper")
            }
            _ => (NVLINK_3_GBPS, "A100 white paper"),
        },
        "4" => (NVLINK_4_GBPS, "H100 white paper"),
        "5" => (NVLINK_5_GBPS, "Blackwell data sheet"),
        "6" => (NVLINK_6_GBPS, "Rubin: 3.6 TB/s both ways over 36 links, published by NVIDIA"),
        _ => return None,
    };
    Some(Capacity {
        gbps,
        source: format!("NVLink {version}: {gbps} GB/s of payload per link ({source})"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use model::testing::pcie_link;

    #[test]
    fn pcie_rates_are_those_of_the_table() {
        for (generation, width, rate) in [
            (1, 16, 4.0),
            (2, 16, 8.0),
            (3, 16, 15.75),
            (4, 16, 31.5),
            (5, 16, 63.0),
            (4, 4, 7.88),
            (6, 16, 118.0),
        ] {
            assert!(
                (pcie(pcie_link(generation, width)).gbps - rate).abs() < 0.02,
                "Gen{generation} x{width}"
            );
        }
    }

    #[test]
    fn nvlink_rates_are_payload_and_not_the_raw_speed() {
        for (version, speed, rate) in [
            ("2.2", Some(25781), 25.0),
            ("3.0", Some(25781), 25.0),
            ("3.1", None, 25.0),
            ("3.1", Some(14062), 14.062),
            ("3.1", Some(0), 25.0),
            ("4.0", Some(26562), 25.0),
            ("5.0", Some(53125), 50.0),
            ("6.0", None, 50.0),
        ] {
            assert!((nvlink(version, speed).unwrap().gbps - rate).abs() < 1e-9, "{version}");
        }
        assert_eq!(nvlink("7.0", Some(100_000)), None);
        assert_eq!(nvlink("", None), None);
    }

    #[test]
    fn every_rate_names_its_source() {
        assert!(pcie(pcie_link(6, 16)).source.contains("not verified"));
        assert!(nvlink("4.0", None).unwrap().source.contains("H100 white paper"));
    }
}
