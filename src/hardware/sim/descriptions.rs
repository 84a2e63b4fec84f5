//! The descriptions of the built-in machines: one each in `machines/`, with its sources as comments.

/// The condition of a built-in machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// As it was built.
    Sound,
    /// Faulty, to show how the fault is reported.
    Faulty,
}

/// Name, condition, description.
type Entry = (&'static str, Condition, &'static str);

/// The only list of the machines.
macro_rules! machines {
    ($($kind:ident: $($name:literal)*;)*) => {
        &[$($(($name, Condition::$kind, include_str!(concat!("machines/", $name, ".toml"))),)*)*]
    };
}

/// The machines, in the order in which they are listed.
const MACHINES: &[Entry] = machines! {
    Sound: "h200x8" "h200x2" "a100x8" "nvlink12" "two-sockets" "pcie16" "rtx4090x4" "rtx3090x4" "desktop"
        "vm-flat" "single" "none";
    Faulty: "demo" "h200x8-links-down" "trains-down" "writes-dropped" "pair-hangs" "crash" "gpu-lost" "fabric-down"
        "no-kernels" "exclusive" "memory-full";
};

/// Returns the names of the built-in machines.
pub fn names() -> impl Iterator<Item = &'static str> {
    MACHINES.iter().map(|(name, ..)| *name)
}

/// Returns the names of the machines in this condition.
pub fn names_of(kind: Condition) -> impl Iterator<Item = &'static str> {
    MACHINES.iter().filter(move |(_, known, _)| *known == kind).map(|(name, ..)| *name)
}

/// Returns the description of the machine of this name, as a starting point for another one.
pub fn description(name: &str) -> Option<&'static str> {
    MACHINES.iter().find(|(known, ..)| *known == name).map(|(.., text)| *text)
}
