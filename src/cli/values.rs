//! Values of options, with the sentences that refuse them.

use std::time::Duration;

use model::units::Bytes;

/// The least that `check --memory` may be.
const LEAST_MEMORY: &str = "64MiB";

pub(super) fn parse_memory(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    let least: Bytes = LEAST_MEMORY.parse().map_err(|error| format!("{error}"))?;
    if bytes < least {
        return Err(format!("give at least {LEAST_MEMORY}: with less, the figures mean nothing"));
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
    let percent: f64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    if (0.0..100.0).contains(&percent) {
        Ok(percent)
    } else {
        Err("give a percentage from 0 to below 100".into())
    }
}

pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is not a number of seconds"))?;
    if !(0.01..=3600.0).contains(&seconds) {
        return Err("give a number of seconds from 0.01 to 3600".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

pub(super) fn parse_wait(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is not a number of seconds"))?;
    if !(0.0..=86400.0).contains(&seconds) {
        return Err("give a number of seconds from 0 to 86400".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Longest time under load.
const MOST_DAYS: u64 = 7;

/// Reads a time such as `30s`, `90m`, `2h` or `1d`.
pub(super) fn parse_hours(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no time; give a number with s, m, h or d, such as 2h");
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1.0,
        'm' => 60.0,
        'h' => 3600.0,
        'd' => 86400.0,
        _ => return Err(wrong()),
    };
    let count: f64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let time = count * seconds;
    let most = Duration::from_secs(MOST_DAYS * 86400);
    if !(1.0..=most.as_secs_f64()).contains(&time) {
        return Err(format!("give a time from 1s to {MOST_DAYS}d"));
    }
    Ok(Duration::from_secs_f64(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        for (text, seconds) in [("30s", 30.0), ("90m", 5400.0), ("2h", 7200.0), ("1.5d", 129_600.0)]
        {
            assert_eq!(parse_hours(text).unwrap().as_secs_f64(), seconds, "{text}");
        }
        for text in ["", "2", "h", "2 weeks", "0s", "8d", "-1h", "NaNh", "infh", "1é"] {
            assert!(parse_hours(text).is_err(), "{text}");
        }
    }
}
