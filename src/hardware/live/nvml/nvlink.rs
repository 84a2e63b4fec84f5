//! The NVLinks of a GPU.
//!
//! All links are read in one call to NVML, through its per-link fields. Drivers without those fields are asked link by
//! link.

use std::collections::HashMap;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::error::NvmlError;

use super::raw::{Field, Raw};
use super::{decode, error};
use model::reading::{Reading, Unknown};
use model::snapshot::{NvLink, NvLinkPacketErrors, SlowFact};

/// Most NVLinks of any GPU. Only drivers that cannot count are asked for every link.
const MOST_LINKS: u32 = 36;

/// `NVML_FI_DEV_NVLINK_LINK_COUNT`.
const COUNT: u32 = 91;
/// `NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON`: one figure for all links, for drivers without [`SPEED`].
const COMMON_SPEED: u32 = 90;
/// `NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY`, per link.
const REPLAY: u32 = 161;
/// `NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY`, per link.
const RECOVERY: u32 = 162;
/// `NVML_FI_DEV_NVLINK_ERROR_DL_CRC`, per link.
const CRC: u32 = 163;
/// `NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS`, per link: recoveries of NVLink 5 and later, whatever their result.
/// nvml.h says of the three fields above "unsupported for Blackwell+", and names this family instead. Those links count
/// no flits and no replays. Their count of symbol errors (field 221) rises on sound links too and is not read.
const RECOVERY_EVENTS: u32 = 215;
/// `…_LINK_RECOVERY_FAILED_EVENTS`: the link went down.
const FAILED_RECOVERIES: u32 = 214;
/// `…_MALFORMED_PACKET_ERRORS`, `…_BUFFER_OVERRUN_ERRORS`, `…_XMIT_DISCARDS`.
const PACKETS: [u32; 3] = [206, 207, 212];
/// `…_EFFECTIVE_ERRORS`: those that forward error correction left.
const EFFECTIVE_ERRORS: u32 = 219;
/// `…_EFFECTIVE_BER`.
const EFFECTIVE_BER: u32 = 220;
/// `NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_0` to `…_15`, per link: codewords by the number of symbols corrected in them.
const FEC_HISTORY: std::ops::RangeInclusive<u32> = 235..=250;
/// `NVML_FI_DEV_NVLINK_GET_SPEED`, per link, MB/s.
const SPEED: u32 = 164;
/// `NVML_FI_DEV_NVLINK_GET_STATE`, per link.
const STATE: u32 = 165;
/// `NVML_FI_DEV_NVLINK_GET_VERSION`, per link.
const VERSION: u32 = 166;

const PER_LINK: [u32; 3] = [STATE, VERSION, SPEED];
/// Error fields per link. Each takes about a millisecond on H200, while the others take almost no time.
const ERRORS_PER_LINK: [u32; 3] = [REPLAY, RECOVERY, CRC];
/// The same of GPUs that lack those.
const EVENTS_PER_LINK: [u32; 7] = [
    RECOVERY_EVENTS,
    FAILED_RECOVERIES,
    PACKETS[0],
    PACKETS[1],
    PACKETS[2],
    EFFECTIVE_ERRORS,
    EFFECTIVE_BER,
];

/// Returns every NVLink of a GPU; empty for a GPU without NVLinks.
pub(super) fn read(device: &Device<'static>) -> Result<Vec<NvLink>, Unknown> {
    let raw = Raw::new(device);
    let count = match count(raw) {
        Err(Unknown::Unsupported) => {
            count_by_asking(|link| device.link_wrapper_for(link).is_active().map(drop))?
        }
        count => u32::from(count?),
    };
    let values = Values::read(raw, 0..count, &PER_LINK);
    Ok((0..count).map(|link| read_link(device, raw, link, &values)).collect())
}

/// Returns the number of NVLinks, if the driver counts them.
pub(super) fn count(raw: Raw) -> Result<u8, Unknown> {
    let count = raw.fields(&[Field { id: COUNT, scope: 0 }]).and_then(|mut all| only(&mut all))?;
    let known = u8::try_from(count).ok().filter(|count| u32::from(*count) <= MOST_LINKS);
    known.ok_or_else(|| decode::unlisted("count of NVLinks", count))
}

fn only(values: &mut Vec<Result<u64, Unknown>>) -> Result<u64, Unknown> {
    values.pop().unwrap_or(Err(Unknown::Unsupported))
}

/// Counts the links whose state can be read, from 0 on. After the last one NVML reports that there is no such link. Any
/// other error is returned, and does not lower the count. For a GPU without links NVML reports that it does not support
/// them, so "no such link" for the first one is an error too.
fn count_by_asking(state: impl Fn(u32) -> Result<(), NvmlError>) -> Result<u32, Unknown> {
    for link in 0..MOST_LINKS {
        match state(link) {
            Ok(()) => {}
            Err(NvmlError::InvalidArg) if link > 0 => return Ok(link),
            Err(error) => match error::unknown(error) {
                Unknown::Unsupported => return Ok(link),
                unknown => return Err(unknown),
            },
        }
    }
    Ok(MOST_LINKS)
}

/// Values of the per-link fields, by field and link.
struct Values {
    values: HashMap<(u32, u32), Result<u64, Unknown>>,
    common_speed: Result<u64, Unknown>,
}

impl Values {
    fn read(raw: Raw, links: impl Iterator<Item = u32> + Clone, per_link: &[u32]) -> Self {
        let fields: Vec<_> = links
            .clone()
            .flat_map(|link| per_link.iter().map(move |&id| Field { id, scope: link }))
            .collect();
        let answers = if fields.is_empty() { Ok(Vec::new()) } else { raw.fields(&fields) };
        let values: HashMap<_, _> = match answers {
            Ok(answers) => {
                fields.iter().map(|field| (field.id, field.scope)).zip(answers).collect()
            }
            Err(unknown) => {
                fields.iter().map(|field| ((field.id, field.scope), Err(unknown.clone()))).collect()
            }
        };
        let mut common_speed = Err(Unknown::Unsupported);
        if per_link.contains(&SPEED)
            && links
                .clone()
                .any(|link| values.get(&(SPEED, link)) == Some(&Err(Unknown::Unsupported)))
        {
            common_speed = raw
                .fields(&[Field { id: COMMON_SPEED, scope: 0 }])
                .and_then(|mut values| only(&mut values));
        }
        Self { values, common_speed }
    }

    /// Returns a field of a link. If the driver lacks the field, asks an older call.
    fn get(
        &self,
        id: u32,
        link: u32,
        older: impl FnOnce() -> Result<u64, Unknown>,
    ) -> Result<u64, Unknown> {
        match self.values.get(&(id, link)) {
            Some(Err(Unknown::Unsupported)) | None => older(),
            Some(answer) => answer.clone(),
        }
    }
}

fn read_link(device: &Device<'static>, raw: Raw, number: u32, values: &Values) -> NvLink {
    let link = device.link_wrapper_for(number);
    let older = |answer: Result<u64, NvmlError>| answer.map_err(error::unknown);
    let active =
        values.get(STATE, number, || older(link.is_active().map(u64::from))).and_then(decode::on);
    let speed = values.get(SPEED, number, || values.common_speed.clone());
    NvLink {
        #[allow(clippy::cast_possible_truncation, reason = "at most 36 links")]
        link: number as u8,
        version: values
            .get(VERSION, number, || older(link.version().map(u64::from)))
            .and_then(decode::nvlink_version)
            .into(),
        speed_mbps: speed.and_then(|speed| speed_mbps(speed, &active)).into(),
        active: active.into(),
        remote: raw.nvlink_remote(number).and_then(decode::nvlink_remote).into(),
        remote_pci: link
            .remote_pci_info()
            .map_err(error::unknown)
            // An NVSwitch that a virtual machine cannot see has an address of all ones.
            .and_then(|pci| pci.bus_id.parse().map_err(|_| Unknown::Unsupported))
            .into(),
        crc_errors: errors_later(),
        replay_errors: errors_later(),
        recovery_errors: errors_later(),
        packet_errors: errors_later(),
        fec_histogram: errors_later(),
    }
}

fn errors_later<T>() -> Reading<T> {
    Reading::Unknown(SlowFact::NvLinkErrors.not_read())
}

/// Fills in the error counters of links that were read before.
pub(super) fn read_errors(device: &Device<'static>, links: &mut [NvLink]) {
    let numbers: Vec<_> = links.iter().map(|link| u32::from(link.link)).collect();
    let raw = Raw::new(device);
    let values = Values::read(raw, numbers.iter().copied(), &ERRORS_PER_LINK);
    let (mut events, mut corrected) = (None, None);
    for link in links {
        let number = u32::from(link.link);
        let wrapper = device.link_wrapper_for(number);
        let errors = |id, counter| {
            let older = || wrapper.error_counter(counter).map_err(error::unknown);
            Reading::from(values.get(id, number, older))
        };
        link.crc_errors = errors(CRC, ErrorCounter::DlCrcFlit);
        link.replay_errors = errors(REPLAY, ErrorCounter::DlReplay);
        link.recovery_errors = errors(RECOVERY, ErrorCounter::DlRecovery);
        if link.recovery_errors != Reading::unsupported() {
            link.packet_errors = Reading::unsupported();
            link.fec_histogram = Reading::unsupported();
            continue;
        }
        let read = || Values::read(raw, numbers.iter().copied(), &EVENTS_PER_LINK);
        let events = events.get_or_insert_with(read);
        let of = |id| events.get(id, number, || Err(Unknown::Unsupported));
        link.recovery_errors = of(RECOVERY_EVENTS).into();
        link.packet_errors = packet_errors(of).into();
        let read = || {
            let history: Vec<u32> = FEC_HISTORY.collect();
            Values::read(raw, numbers.iter().copied(), &history)
        };
        let corrected = corrected.get_or_insert_with(read);
        let of = |id| corrected.get(id, number, || Err(Unknown::Unsupported));
        link.fec_histogram = fec_histogram(of).into();
    }
}

/// Returns the codewords by the number of corrected symbols. A driver may have fewer fields; earlier ones have none.
fn fec_histogram(of: impl Fn(u32) -> Result<u64, Unknown>) -> Result<Vec<u64>, Unknown> {
    let mut codewords = Vec::new();
    for id in FEC_HISTORY {
        match of(id) {
            Ok(count) => codewords.push(count),
            Err(Unknown::Unsupported) => break,
            Err(unknown) => return Err(unknown),
        }
    }
    match codewords.is_empty() {
        true => Err(Unknown::Unsupported),
        false => Ok(codewords),
    }
}

/// Returns the errors that NVLink 5 and later count beside recoveries.
fn packet_errors(of: impl Fn(u32) -> Result<u64, Unknown>) -> Result<NvLinkPacketErrors, Unknown> {
    let optional = |counter| match counter {
        Ok(count) => Ok(Some(count)),
        Err(Unknown::Unsupported) => Ok(None),
        Err(unknown) => Err(unknown),
    };
    let errors = NvLinkPacketErrors {
        failed_recoveries: optional(of(FAILED_RECOVERIES))?,
        lost_packets: optional(sum(PACKETS.map(&of)))?,
        uncorrected: optional(of(EFFECTIVE_ERRORS))?,
        bit_error_rate_log10: optional(of(EFFECTIVE_BER))?.and_then(decode::bit_error_rate),
    };
    match errors == NvLinkPacketErrors::default() {
        true => Err(Unknown::Unsupported),
        false => Ok(errors),
    }
}

/// Adds counters up; one that a link does not have counts nothing.
fn sum<const N: usize>(counters: [Result<u64, Unknown>; N]) -> Result<u64, Unknown> {
    let mut total: Result<u64, Unknown> = Err(Unknown::Unsupported);
    for counter in counters {
        match counter {
            Ok(count) => total = Ok(count.saturating_add(total.unwrap_or(0))),
            Err(Unknown::Unsupported) => {}
            Err(unknown) => return Err(unknown),
        }
    }
    total
}

/// Returns the speed of a link, MB/s. If an active link has none, the driver does not report it.
fn speed_mbps(speed: u64, active: &Result<bool, Unknown>) -> Result<u32, Unknown> {
    match u32::try_from(speed) {
        Ok(0) if *active == Ok(true) => {
            Err(Unknown::Failed("NVML: no speed for an active link".to_owned()))
        }
        Ok(0) => Err(Unknown::Unsupported),
        Ok(speed) => Ok(speed),
        Err(_) => Err(decode::unlisted("NVLink speed", speed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_field_falls_back_and_a_failed_one_does_not() {
        let failed = Err(Unknown::Failed("NVML: no data (21)".into()));
        let values = Values {
            values: HashMap::from([
                ((STATE, 0), Ok(1)),
                ((STATE, 1), Err(Unknown::Unsupported)),
                ((STATE, 2), failed.clone()),
            ]),
            common_speed: Ok(25781),
        };
        assert_eq!(values.get(STATE, 0, || Ok(9)), Ok(1));
        assert_eq!(values.get(STATE, 1, || Ok(9)), Ok(9));
        assert_eq!(values.get(STATE, 2, || Ok(9)), failed);
        assert_eq!(values.get(STATE, 3, || Ok(9)), Ok(9));
    }

    #[test]
    fn links_that_cannot_be_read_are_not_links_that_are_not_there() {
        let four = |link| {
            if link < 4 { Ok(()) } else { Err(NvmlError::InvalidArg) }
        };
        assert_eq!(count_by_asking(four), Ok(4));
        assert_eq!(count_by_asking(|_| Err(NvmlError::NotSupported)), Ok(0));
        assert_eq!(count_by_asking(|_| Ok(())), Ok(MOST_LINKS));
        let first = count_by_asking(|_| Err(NvmlError::InvalidArg));
        assert!(
            matches!(first, Err(Unknown::Failed(why)) if why.contains("(2)")),
            "no link, and no word why"
        );
        let lost = count_by_asking(|link| if link < 2 { Ok(()) } else { Err(NvmlError::GpuLost) });
        assert!(matches!(lost, Err(Unknown::Failed(why)) if why.contains("(15)")));
    }

    #[test]
    fn bins_end_where_the_driver_has_no_more_and_a_failed_one_is_no_histogram() {
        let first = |count| {
            move |id| match id - 235 {
                bin if bin < count => Ok(u64::from(10 * bin)),
                _ => Err(Unknown::Unsupported),
            }
        };
        assert_eq!(fec_histogram(first(3)), Ok(vec![0, 10, 20]));
        assert_eq!(fec_histogram(first(99)).unwrap().len(), 16);
        assert_eq!(fec_histogram(first(0)), Err(Unknown::Unsupported));
        let failed = || Err(Unknown::Failed("NVML: no data (21)".into()));
        let broken = |id| if id == 240 { failed() } else { Ok(1) };
        assert_eq!(fec_histogram(broken), failed().map(|_| Vec::new()));
    }

    #[test]
    fn no_speed_is_no_number() {
        assert_eq!(speed_mbps(26562, &Ok(true)), Ok(26562));
        assert!(matches!(speed_mbps(0, &Ok(true)), Err(Unknown::Failed(_))));
        assert_eq!(speed_mbps(0, &Ok(false)), Err(Unknown::Unsupported));
        assert!(speed_mbps(u64::MAX, &Ok(true)).is_err());
    }
}
