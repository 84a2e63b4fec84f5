//! The data that a GPU has moved, for all programs.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::PcieUtilCounter;

use super::raw::{Answers, Field, Raw};
use super::{Opened, error, nvlink};
use hardware::{Counts, LinkBytes, Moved};
use model::reading::Unknown;
use model::units::GbPerSecond;

/// `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX` and `…_RX`, KiB. The scope is the link, or [`ALL_LINKS`].
const NVLINK_DATA: [u32; 2] = [138, 139];
/// `NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES` and `…_RCV_BYTES` of NVLink 5 and later, bytes, with the same scopes. nvml.h does not
/// say if heads of packets count.
const NVLINK_PACKETS: [u32; 2] = [202, 204];
/// Scope for all links together.
const ALL_LINKS: u32 = u32::MAX;
/// `NVML_FI_DEV_PCIE_COUNT_TX_BYTES` and `…_RX_BYTES`. Bytes: modulo 2^32 on H200, in 64 bits elsewhere.
const PCIE_BYTES: [Field; 2] = [Field { id: 197, scope: 0 }, Field { id: 198, scope: 0 }];

/// What links, and other fields, have counted.
struct Counted {
    /// Bytes sent and received, by scope.
    nvlink: Vec<Result<[u64; 2], Unknown>>,
    /// The other fields.
    others: Answers,
    /// True if heads of packets may be among the bytes.
    with_heads: bool,
}

/// Reads the counters of links with these scopes, and other fields, in one call; in two where links have only the counters of
/// NVLink 5.
fn counted(ask: impl Fn(&[Field]) -> Answers, scopes: &[u32], others: &[Field]) -> Counted {
    let of = |ids: [u32; 2], scope: u32| ids.map(|id| Field { id, scope });
    let mut fields: Vec<Field> = scopes.iter().flat_map(|scope| of(NVLINK_DATA, *scope)).collect();
    fields.extend_from_slice(others);
    let answers = if fields.is_empty() { Ok(Vec::new()) } else { ask(&fields) };
    let mut nvlink: Vec<_> =
        (0..scopes.len()).map(|place| both(&answers, 2 * place).map(bytes)).collect();
    let others = answers.map(|mut answers| answers.split_off(2 * scopes.len()));
    let lacking: Vec<usize> =
        (0..scopes.len()).filter(|place| nvlink[*place] == Err(Unknown::Unsupported)).collect();
    let mut with_heads = false;
    if !lacking.is_empty() {
        let newer = |place: &usize| of(NVLINK_PACKETS, scopes[*place]);
        let answers = ask(&lacking.iter().flat_map(newer).collect::<Vec<_>>());
        for (at, place) in lacking.into_iter().enumerate() {
            // Whatever a driver without them says, they are not supported.
            if let Ok(counted) = both(&answers, 2 * at) {
                nvlink[place] = Ok(counted);
                with_heads = true;
            }
        }
    }
    Counted { nvlink, others, with_heads }
}

/// Returns the data that a GPU has moved up to now; the caller fills in the time. Takes 2 to 3 ms on H200, and 40 ms if
/// PCIe bytes are not counted.
pub(super) fn read(device: &Opened) -> Moved {
    let fields = |fields: &[Field]| ask(device, |device| Raw::new(device).fields(fields));
    let Counted { mut nvlink, others, .. } = counted(fields, &[ALL_LINKS], &PCIE_BYTES);
    let pcie = both(&others, 0);
    let pcie_rates = match pcie {
        Err(Unknown::Unsupported) => pcie_rates(device),
        _ => Err(Unknown::Unsupported),
    };
    let share = ask(device, |device| device.utilization_rates().map_err(error::unknown));
    let mut failure = None;
    Moved {
        nvlink: nvlink.pop().and_then(|counted| kept(counted, &mut failure)),
        pcie: kept(pcie, &mut failure),
        pcie_rates: kept(pcie_rates, &mut failure),
        utilization_percent: kept(share, &mut failure)
            .and_then(|share| u8::try_from(share.gpu).ok()),
        failure,
        ..Moved::default()
    }
}

/// Returns the counters; the caller fills in the time. NVML takes 0.2 ms per link and field on H200.
pub(super) fn counts(device: &Opened, links: &[u8]) -> Counts {
    let fields = |fields: &[Field]| ask(device, |device| Raw::new(device).fields(fields));
    let scopes: Vec<u32> =
        [ALL_LINKS].into_iter().chain(links.iter().map(|link| u32::from(*link))).collect();
    let Counted { nvlink, others, with_heads } = counted(fields, &scopes, &PCIE_BYTES);
    let mut failure = None;
    let mut nvlink = nvlink.into_iter().map(|counted| kept(counted, &mut failure));
    let all = nvlink.next().flatten();
    let each = links.iter().zip(nvlink);
    let links = each.filter_map(|(link, counted)| Some((*link, counted?))).collect();
    let pcie = kept(both(&others, 0), &mut failure);
    Counts { nvlink: all, links, pcie, failure, with_heads, ..Counts::default() }
}

/// Returns the counters of the NVLinks of a GPU, those that it has.
pub(super) fn link_bytes(device: Raw) -> Result<Vec<LinkBytes>, Unknown> {
    let scopes: Vec<u32> = (0..u32::from(nvlink::count(device)?)).collect();
    let counted = counted(|fields| device.fields(fields), &scopes, &[]).nvlink;
    let links = (0..).zip(counted);
    let links = links
        .map(|(link, counted)| counted.map(|[sent, received]| LinkBytes { link, sent, received }));
    // A link that lacks them, or is down, is left out.
    let (mut read, mut failure) = (Vec::new(), None);
    for link in links {
        match link {
            Ok(link) => read.push(link),
            Err(why) => drop(failure.get_or_insert(why)),
        }
    }
    match failure {
        Some(why) if read.is_empty() => Err(why),
        _ => Ok(read),
    }
}

/// Returns the two fields from this index on.
fn both(counts: &Answers, at: usize) -> Result<[u64; 2], Unknown> {
    match counts.as_ref().map_err(Clone::clone)?.get(at..at + 2) {
        Some([Ok(sent), Ok(received)]) => Ok([*sent, *received]),
        Some([Err(why), _] | [_, Err(why)]) => Err(why.clone()),
        _ => Err(Unknown::Unsupported),
    }
}

const fn bytes([sent, received]: [u64; 2]) -> [u64; 2] {
    [sent.saturating_mul(1024), received.saturating_mul(1024)]
}

fn ask<T>(
    device: &Opened,
    call: impl FnOnce(&Device<'static>) -> Result<T, Unknown>,
) -> Result<T, Unknown> {
    device.0.as_ref().map_err(Clone::clone).and_then(call)
}

/// Returns the value that was read. Records the first failure; a value that this GPU or driver lacks is no failure.
fn kept<T>(reading: Result<T, Unknown>, failure: &mut Option<String>) -> Option<T> {
    match reading {
        Ok(value) => Some(value),
        Err(Unknown::Unsupported) => None,
        Err(why) => {
            failure.get_or_insert_with(|| why.to_string());
            None
        }
    }
}

/// Returns the rates, each of which NVML measures over 20 ms.
fn pcie_rates(device: &Opened) -> Result<[GbPerSecond; 2], Unknown> {
    let rate = |device: &Device<'static>, counter| {
        let kb = device.pcie_throughput(counter).map_err(error::unknown)?;
        Ok::<_, Unknown>(GbPerSecond(f64::from(kb) / 1e6))
    };
    ask(device, |device| {
        Ok([rate(device, PcieUtilCounter::Send)?, rate(device, PcieUtilCounter::Receive)?])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Returns what a driver with these fields is asked for, and what comes of it.
    fn read_by(known: &[u32], scopes: &[u32]) -> (Vec<Vec<(u32, u32)>>, Counted) {
        let calls = RefCell::new(Vec::new());
        let ask = |fields: &[Field]| {
            calls.borrow_mut().push(fields.iter().map(|field| (field.id, field.scope)).collect());
            let answer = |field: &Field| match known.contains(&field.id) {
                true => Ok(u64::from(field.id)),
                false => Err(Unknown::Unsupported),
            };
            Ok(fields.iter().map(answer).collect())
        };
        let counted = counted(ask, scopes, &PCIE_BYTES);
        (calls.into_inner(), counted)
    }

    #[test]
    fn links_that_count_data_are_read_in_one_call() {
        let (calls, counted) = read_by(&[138, 139, 197, 198, 202, 204], &[ALL_LINKS, 3]);
        let all = ALL_LINKS;
        assert_eq!(calls, [[(138, all), (139, all), (138, 3), (139, 3), (197, 0), (198, 0)]]);
        assert_eq!(counted.nvlink, [Ok([138 << 10, 139 << 10]), Ok([138 << 10, 139 << 10])]);
        assert_eq!(counted.others, Ok(vec![Ok(197), Ok(198)]));
        assert!(!counted.with_heads);
    }

    #[test]
    fn links_that_count_packets_alone_are_asked_for_those() {
        let (calls, counted) = read_by(&[197, 198, 202, 204], &[ALL_LINKS, 3]);
        assert_eq!(calls[1], [(202, ALL_LINKS), (204, ALL_LINKS), (202, 3), (204, 3)]);
        assert_eq!(counted.nvlink, [Ok([202, 204]), Ok([202, 204])]);
        assert_eq!(counted.others, Ok(vec![Ok(197), Ok(198)]));
        assert!(counted.with_heads);
    }

    #[test]
    fn a_gpu_that_counts_nothing_has_no_counters() {
        let (_, counted) = read_by(&[], &[ALL_LINKS]);
        assert_eq!(counted.nvlink, [Err(Unknown::Unsupported)]);
        let failed = Unknown::Failed("NVML: no data (21)".into());
        let of_failed = super::counted(|_| Err(failed.clone()), &[0], &[]);
        assert_eq!(of_failed.nvlink, [Err(failed)]);
    }
}
