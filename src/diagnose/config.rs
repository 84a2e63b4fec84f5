//! Reads the file of `--config`, and checks it against the existing rules.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::expected::{self, Share};
use super::rule::Parameter;
use super::rules;
use super::settings::{Level, Settings};
use model::finding::Severity;
use model::nearest::did_you_mean;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    severity: BTreeMap<String, Word>,
    parameters: BTreeMap<String, BTreeMap<String, f64>>,
    expected: BTreeMap<String, ShareInFile>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    Off,
    Info,
    Warning,
    Error,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShareInFile {
    percent: Option<f64>,
    margin_percent: Option<f64>,
}

/// Reads a configuration.
///
/// # Errors
///
/// Describes the error, with the line or the key.
pub fn parse(text: &str) -> Result<Settings, String> {
    let file: File =
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    let mut settings = Settings::default();
    for (code, word) in file.severity {
        known_code(&code, "severity")?;
        if word == Word::Off && rules::find(&code).is_some_and(|rule| rule.gap) {
            return Err(format!(
                "severity.{code}: this rule tells what was not tested, and cannot be switched off: a machine that was not \
                 tested is not healthy; ask for less instead (--gpus, --only, --skip)"
            ));
        }
        let level = match word {
            Word::Off => Level::Off,
            Word::Info => Level::At(Severity::Info),
            Word::Warning => Level::At(Severity::Warning),
            Word::Error => Level::At(Severity::Error),
        };
        settings.levels.insert(code, level);
    }
    for (code, values) in file.parameters {
        let known = known_code(&code, "parameters")?;
        for (name, value) in values {
            if known.iter().all(|parameter| parameter.name != name) {
                let names: Vec<_> = known.iter().map(|parameter| parameter.name).collect();
                return Err(format!(
                    "parameters.{code}.{name}: there is no such parameter{}; {code} has {}",
                    did_you_mean(&name, names.iter().copied()),
                    if names.is_empty() { "none".into() } else { names.join(", ") }
                ));
            }
            if !value.is_finite() || value < 0.0 {
                return Err(format!("parameters.{code}.{name}: {value} is not a number from 0 up"));
            }
            settings.parameters.insert((code.clone(), name), value);
        }
    }
    for (key, share) in file.expected {
        let known = expected::rows().find(|known| known.key == key).ok_or_else(|| {
            let keys: Vec<_> = expected::rows().map(|known| known.key).collect();
            let meant = did_you_mean(&key, keys.iter().copied());
            format!(
                "expected.{key}: there is no such class{meant}; the classes are {}",
                keys.join(", ")
            )
        })?;
        let set = Share {
            percent: share.percent.unwrap_or(known.share.percent),
            margin_percent: share.margin_percent.unwrap_or(known.share.margin_percent),
        };
        let sound = |figure: f64| (0.0..=100.0).contains(&figure);
        if !sound(set.percent) || !sound(set.margin_percent) {
            return Err(format!("expected.{key}: give per cent from 0 to 100"));
        }
        settings.shares.insert(key, set);
    }
    Ok(settings)
}

/// Returns the parameters of the rule with this code.
fn known_code(code: &str, table: &str) -> Result<&'static [Parameter], String> {
    rules::find(code).map(|rule| rule.parameters).ok_or_else(|| {
        let meant = did_you_mean(code, rules::ALL.iter().map(|rule| &*rule.id));
        format!("{table}.{code}: there is no such rule{meant}; 'peerscope explain' lists them")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::finding::RuleId;

    #[test]
    fn what_is_set_is_found_again() {
        let text = "[severity]\npcie-narrow = \"warning\"\nstaged-slow = \"off\"\n\
                    [parameters.peer-copy-uneven]\nfloor_copy_percent = 60\n\
                    [expected.nvlink-4]\npercent = 88\n";
        let settings = parse(text).unwrap();
        let level = |code| settings.level(&RuleId::new(code));
        assert_eq!(level("pcie-narrow"), Some(Level::At(Severity::Warning)));
        assert_eq!((level("staged-slow"), level("peer-copy-hung")), (Some(Level::Off), None));
        assert_eq!(settings.parameter("peer-copy-uneven", "floor_copy_percent"), Some(60.0));
        assert_eq!(settings.shares["nvlink-4"].percent, 88.0);
        assert_eq!(parse("").unwrap(), Settings::default());
    }

    #[test]
    fn what_is_silenced_is_known() {
        let silenced = |text: &str| crate::silenced(&parse(text).unwrap());
        let one = |code: &'static str, severity| {
            vec![model::request::Silenced { code: RuleId::new(code), severity }]
        };
        for (severity, wanted) in [
            ("off", one("pcie-narrow", None)),
            ("info", one("pcie-narrow", Some(Severity::Info))),
            ("warning", one("pcie-narrow", Some(Severity::Warning))),
            ("error", Vec::new()),
        ] {
            assert_eq!(
                silenced(&format!("[severity]\npcie-narrow = \"{severity}\"\n")),
                wanted,
                "{severity}"
            );
        }
        // A raised rule is not silenced. A warning that stays a warning may have been an error in some findings.
        assert_eq!(silenced("[severity]\nplacement-serialises = \"error\"\n"), []);
        assert_eq!(silenced("[severity]\nplacement-serialises = \"warning\"\n").len(), 1);
        assert_eq!(silenced("[parameters.peer-copy-uneven]\nfloor_copy_percent = 60\n"), []);
    }

    #[test]
    fn what_is_unknown_is_refused_by_name() {
        for (text, named) in [
            ("[severity]\npcie-narow = \"off\"\n", "severity.pcie-narow"),
            ("[severity]\nnot-tested = \"off\"\n", "not tested"),
            ("[severity]\npasted-unclear = \"off\"\n", "not tested"),
            ("[severity]\npcie-narrow = \"fatal\"\n", "fatal"),
            ("[parameters.pcie-narow]\n", "parameters.pcie-narow"),
            ("[parameters.peer-copy-uneven]\nfloor = 3\n", "parameters.peer-copy-uneven.floor"),
            ("[parameters.peer-copy-uneven]\nfloor_copy_percent = -3\n", "floor_copy_percent"),
            ("[parameters.peer-copy-uneven]\nfloor_copy_percent = nan\n", "floor_copy_percent"),
            ("[expected.nvlink-9]\n", "expected.nvlink-9"),
            ("[expected.nvlink-4]\npercent = 180\n", "expected.nvlink-4"),
            ("[expected.nvlink-4]\nshare = 1\n", "share"),
            ("[expcted]\n", "expcted"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
