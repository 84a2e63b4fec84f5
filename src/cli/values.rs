//! Values of options, with the sentences that refuse them.

use std::time::Duration;

use model::units::Bytes;

/// The least that `check --memory` may be.
const LEAST_MEMORY: &str = "64MiB";

pub(super) fn parse_memory(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    let least: Bytes = LEAST_MEMORY.parse().map_err(|error| format!("{error}"))?;
    if bytes < least {
        return Err(format!(
            "give at least {LEAST_MEMORY}: with less, the figures mean nothing"
        ));
    }
    Ok(bytes)
}

pub(super) fn parse_overlap_bytes(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    // A shorter copy is no longer than the error in aligning the clocks of two devices.
    if bytes < Bytes(16 << 20) || bytes > Bytes(16 << 30) || !bytes.0.is_multiple_of(16) {
        return Err("give a multiple of 16 from 16MiB to 16GiB".into());
    }
    Ok(bytes)
}

pub(super) fn parse_percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text
        .parse()
        .map_err(|_| format!("'{text}' is not a number"))?;
    if (0.0..100.0).contains(&percent) {
        Ok(percent)
    } else {
        Err("give a percentage from 0 to below 100".into())
    }
}

pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("'{text}' is not a number of seconds"))?;
    if !(0.01..=3600.0).contains(&seconds) {
        return Err("give a number of seconds from 0.01 to 3600".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

pub(super) fn parse_budget(text: &str) -> Result<Duration, String> {
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1e-3),
        (None, Some(number)) => (number, 1.0),
        (None, None) => (text, 1.0),
    };
    let number: f64 = number
        .trim()
        .parse()
        .map_err(|_| format!("'{text}' is not a time: write for example 3s or 500ms"))?;
    if !(0.1..=3600.0).contains(&(number * unit)) {
        return Err("give a time from 0.1s to 3600s".into());
    }
    Ok(Duration::from_secs_f64(number * unit))
}

pub(super) fn parse_wait(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("'{text}' is not a number of seconds"))?;
    if !(0.0..=86400.0).contains(&seconds) {
        return Err("give a number of seconds from 0 to 86400".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}
