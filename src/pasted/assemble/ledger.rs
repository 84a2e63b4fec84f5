//! Where facts come from, and which of them contradict each other, while they are joined.

use std::collections::BTreeMap;
use std::fmt;

use model::pasted::Origin;
use model::reading::Taken;

/// The place of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'a> {
    /// Number of the input.
    pub input: usize,
    pub name: &'a str,
    pub kind: &'a str,
    pub line: u32,
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of {}", self.line, self.name)
    }
}

/// Facts that change while a machine runs: two outputs may differ.
const CHANGES: &[&str] = &[
    "pcie_generation",
    "pcie_replays",
    "generation",
    "temperature_c",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "memory_free_bytes",
    "memory_total_bytes",
    "power_state",
    "processes",
    "throttle_reasons",
    "crc_errors",
    "replay_errors",
    "recovery_errors",
    "aer_correctable",
    "aer_nonfatal",
    "aer_fatal",
    "kernel_version",
    "kernel_module_version",
    "iommu_parameters",
    "nccl_variables",
];

/// Most origins that are kept.
const MOST_ORIGINS: usize = 100_000;

/// Most contradictions that are named.
const MOST_CONTRADICTIONS: usize = 50;

/// Origins and contradictions, as facts are joined.
#[derive(Default)]
pub(super) struct Ledger {
    pub origins: Vec<Origin>,
    /// Line and input of each origin, by fact.
    first: BTreeMap<String, String>,
    pub contradictions: Vec<String>,
}

impl Ledger {
    pub(super) fn origin(&mut self, of: String, at: At<'_>) {
        if self.origins.len() >= MOST_ORIGINS {
            return;
        }
        self.first.insert(of.clone(), at.to_string());
        self.origins.push(Origin { of, input: at.name.to_owned(), line: at.line });
    }

    /// Names two facts that should be the same, if they are not.
    pub(super) fn differ(&mut self, of: [String; 2], values: [String; 2]) {
        let place = |of: &String| self.first.get(of).map_or("", String::as_str);
        let ([one, other], [first, second]) = (&of, &values);
        if self.contradictions.len() < MOST_CONTRADICTIONS {
            self.contradictions.push(format!(
                "{one} is {first} ({}) and {other} is {second} ({})",
                place(one),
                place(other)
            ));
        }
    }

    pub(super) fn taken(&mut self, of: &str, key: &'static str, how: Taken, at: At<'_>) {
        let of = format!("{of}.{key}");
        match how {
            Taken::New => self.origin(of, at),
            Taken::Same => {}
            Taken::Other { kept, refused } => {
                // One tool cuts names that another one prints whole.
                let same =
                    CHANGES.contains(&key) || kept.contains(&refused) || refused.contains(&kept);
                if !same && self.contradictions.len() < MOST_CONTRADICTIONS {
                    let first = self.first.get(&of).map_or("", String::as_str);
                    self.contradictions
                        .push(format!("{of} is {kept} ({first}) and {refused} ({at})"));
                }
            }
        }
    }
}
