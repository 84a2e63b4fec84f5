//! Values of options, with the sentences that refuse them.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use model::choice::Choice;
use model::finding::Severity;
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

/// Returns a parser of times within a range, which is written in the same way.
pub(super) fn time(
    least: &'static str,
    most: &'static str,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync {
    move |text| {
        let time = parse_time(text)?;
        match (parse_time(least)?..=parse_time(most)?).contains(&time) {
            true => Ok(time),
            false => Err(format!("give a time from {least} to {most}")),
        }
    }
}

/// Reads a time such as `90s`, `5m`, `2h` or `1d`; a plain number is seconds.
fn parse_time(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!("'{text}' is no time: give for example 90s, 5m or 2h; a plain number is seconds")
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = match unit {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * scale).map_err(|_| wrong())
}

/// Returns a parser of severities.
pub(super) fn severity() -> impl TypedValueParser<Value = Severity> {
    PossibleValuesParser::new(["info", "warning", "error"]).map(|name| match &*name {
        "info" => Severity::Info,
        "warning" => Severity::Warning,
        _ => Severity::Error,
    })
}

/// Returns a parser of the values of an enum, by their names.
pub(super) fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let words = T::ALL.iter().map(|value| PossibleValue::new(value.name()).help(value.help()));
    PossibleValuesParser::new(words).try_map(|name| {
        let named = T::ALL.iter().find(|value| value.name() == name);
        named.copied().ok_or("it has no such value")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let read = time("0.5s", "7d");
        for (text, seconds) in
            [("30s", 30.0), ("90m", 5400.0), ("2h", 7200.0), ("1.5d", 129_600.0), ("0.5", 0.5)]
        {
            assert_eq!(read(text).unwrap().as_secs_f64(), seconds, "{text}");
        }
        for text in ["", "h", "2 weeks", "0s", "8d", "-1h", "NaN", "inf", "1e9", "1é", ".", "9 9"]
        {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(read("0.1").unwrap_err(), "give a time from 0.5s to 7d");
    }
}
