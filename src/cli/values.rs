//! Values of options, with the sentences that refuse them.

use std::time::Duration;

use clap::ValueEnum;
use clap::builder::{EnumValueParser, TypedValueParser};

use diagnose::Contract;
use model::finding::Severity;
use model::units::Bytes;
use probes::Group;
use probes::plan::profile::Name;

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

/// Declares a parser of the values of an enum of another room: by their names in kebab case, with these comments as help.
macro_rules! values_of {
    ($of:ident, $parser:ident { $($(#[$help:meta])* $value:ident,)* }) => {
        pub(super) fn $parser() -> impl TypedValueParser<Value = $of> {
            #[derive(Clone, Copy, ValueEnum)]
            enum Word {
                $($(#[$help])* $value,)*
            }
            EnumValueParser::<Word>::new().map(|word| match word {
                $(Word::$value => $of::$value,)*
            })
        }
    };
}

values_of! { Severity, severity { Info, Warning, Error, } }

values_of! { Contract, contract {
    /// Plain scripts, Slurm, Kubernetes: 0 healthy, 1 fault, 2 wrong usage, 3 could not test, 130
    /// interrupted.
    Default,
    /// Nagios and compatible tools: 0 ok, 1 warning, 2 critical, 3 unknown.
    Nagios,
} }

values_of! { Name, profile {
    /// Verifies and times every pair, in seconds.
    Quick,
    /// Also host copies, overlap, latency, several copies at once, both ways.
    Standard,
    /// Every combination of stream placement, issuer, engine and direction.
    Full,
} }

values_of! { Group, group {
    /// Bandwidth between GPUs, with verification.
    Peers,
    /// Bandwidth between host and GPU, with verification, and the cost of page-locking.
    Host,
    /// Overlap of copies with kernels.
    Overlap,
    /// Small-copy latency.
    Latency,
    /// Pipelines of copies and kernels, and copies that run at the same time.
    Pipeline,
    /// Time that calls block the host, launch loops, and data that is read too early.
    Async,
    /// Several flows at once, with link counters read around known traffic.
    Load,
    /// Kernels that signal each other while they run, and memory latency (pointer chase).
    Live,
    /// Memory shared between two processes (CUDA IPC, /dev/shm).
    Share,
} }

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the words that a parser takes, with their values.
    fn taken<T>(parser: &impl TypedValueParser<Value = T>) -> Vec<(T, String)> {
        let words = parser.possible_values().unwrap().map(|word| word.get_name().to_owned());
        let command = clap::Command::new("");
        let value = |word: &str| parser.parse_ref(&command, None, word.as_ref()).unwrap();
        words.map(|word| (value(&word), word)).collect()
    }

    #[test]
    fn every_group_and_profile_is_taken_by_its_name() {
        let named = |group: &Group| (*group, group.as_str().to_owned());
        assert_eq!(taken(&group()), Group::all().iter().map(named).collect::<Vec<_>>());
        assert_eq!(taken(&profile()), Name::ALL.map(|name| (name, name.as_str().to_owned())));
    }

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
