//! The links between a GPU and the processor of its module: NVLink-C2C of Grace.

use super::decode;
use super::raw::{Answers, Field};
use model::reading::Unknown;
use model::snapshot::{C2cErrors, C2cLinks};

/// `NVML_FI_DEV_C2C_LINK_COUNT`.
const COUNT: u32 = 170;
/// `NVML_FI_DEV_C2C_LINK_GET_STATUS`, 1 for a link that is up, and `…_GET_MAX_BW`, MB/s. The scope is the link, as NCCL asks.
const STATE: [u32; 2] = [171, 172];
/// `NVML_FI_DEV_C2C_LINK_ERROR_INTR`, `…_REPLAY` and `…_REPLAY_B2B`, since driver 575. DCGM calls them "CRC error", "replay
/// error" and "back to back replay error counter".
const ERRORS: [u32; 3] = [231, 232, 233];
/// Most links of a GPU that are believed. Chosen: GH200 has 10, GB10 8.
const MOST: u64 = 64;

/// Reads them in three calls.
pub(super) fn read(ask: impl Fn(&[Field]) -> Answers) -> Result<C2cLinks, Unknown> {
    let count = ask(&[Field { id: COUNT, scope: 0 }])?.pop().ok_or(Unknown::Unsupported)??;
    let count = match u32::try_from(count) {
        Ok(0) => return Err(Unknown::Unsupported),
        Ok(links) if count <= MOST => links,
        _ => return Err(decode::unlisted("count of C2C links", count)),
    };
    let of = |ids: &[u32]| -> Vec<Field> {
        let of_link = |scope| ids.iter().map(move |id| Field { id: *id, scope });
        (0..count).flat_map(of_link).collect()
    };
    let mut links = C2cLinks { count, active: 0, link_mbps: None, errors: None };
    for state in ask(&of(&STATE))?.chunks(STATE.len()) {
        let [up, mbps] = state else { continue };
        // A link that is down has no rate.
        if up.clone()? == 1 {
            let mbps = mbps.clone()?;
            let mbps = u32::try_from(mbps).map_err(|_| decode::unlisted("C2C rate", mbps))?;
            links.active += 1;
            links.link_mbps = Some(links.link_mbps.map_or(mbps, |known| known.min(mbps)));
        }
    }
    // Drivers that do not count them say so in several ways.
    let errors = ask(&of(&ERRORS)).and_then(|errors| errors.into_iter().collect());
    links.errors = errors.ok().map(|errors: Vec<u64>| {
        let sum =
            |at| errors.iter().skip(at).step_by(ERRORS.len()).copied().fold(0, u64::saturating_add);
        C2cErrors { crc: sum(0), replay: sum(1), replay_again: sum(2) }
    });
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what comes of a driver that answers so for a field and a link.
    fn read_by(answer: impl Fn(u32, u32) -> Option<u64>) -> Result<C2cLinks, Unknown> {
        let answer = |field: &Field| answer(field.id, field.scope).ok_or(Unknown::Unsupported);
        read(|fields| Ok(fields.iter().map(answer).collect()))
    }

    #[test]
    fn links_that_are_up_have_a_rate_and_errors_add_up() {
        let read = read_by(|id, link| match id {
            170 => Some(5),
            171 => Some(u64::from(link != 3)),
            172 => (link != 3).then_some(44_712),
            231 => Some(u64::from(link)),
            _ => Some(1),
        });
        let errors = C2cErrors { crc: 10, replay: 5, replay_again: 5 };
        let wanted =
            C2cLinks { count: 5, active: 4, link_mbps: Some(44_712), errors: Some(errors) };
        assert_eq!(read, Ok(wanted));
        assert!((wanted.rate().unwrap().0 - 178.848).abs() < 1e-9);
    }

    #[test]
    fn an_older_driver_has_no_errors_and_another_gpu_no_links() {
        let older = |id, _| match id {
            170 => Some(10),
            171 => Some(1),
            172 => Some(44_712),
            _ => None,
        };
        assert_eq!(read_by(older).unwrap().errors, None);
        assert_eq!(read_by(|_, _| None), Err(Unknown::Unsupported));
        assert_eq!(read_by(|_, _| Some(0)), Err(Unknown::Unsupported));
        assert!(matches!(read_by(|_, _| Some(u64::MAX)), Err(Unknown::Failed(_))));
        let down = read_by(|id, _| (id != 172).then(|| u64::from(id == 170))).unwrap();
        assert_eq!((down.active, down.rate()), (0, None));
    }
}
