//! The descriptions of the built-in machines: one each in `machines/`, with its sources as comments.

/// What is the matter with a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: as it was built.
    Sound,
    /// Something: to see how it is reported.
    Faulty,
}

/// Name, what is the matter, description.
type Entry = (&'static str, Kind, &'static str);

/// The one list of them.
macro_rules! machines {
    ($($kind:ident: $($name:literal)*;)*) => {
        &[$($(($name, Kind::$kind, include_str!(concat!("machines/", $name, ".toml"))),)*)*]
    };
}

/// In the order in which they are listed.
const MACHINES: &[Entry] = machines! {
    Sound: "h200x8" "h200x2" "a100x8" "nvlink12" "nvl72" "two-sockets" "pcie16" "rtx4090x4" "rtx3090x4" "desktop"
        "vm-flat" "single" "none";
    Faulty: "demo" "h200x8-links-down" "trains-down" "writes-dropped" "pair-hangs" "crash" "gpu-lost" "fabric-down"
        "no-kernels" "exclusive" "memory-full";
};

/// The names of the built-in machines.
pub fn names() -> impl Iterator<Item = &'static str> {
    MACHINES.iter().map(|(name, ..)| *name)
}

/// The names of those with which this is the matter.
pub fn names_of(kind: Kind) -> impl Iterator<Item = &'static str> {
    MACHINES
        .iter()
        .filter(move |(_, known, _)| *known == kind)
        .map(|(name, ..)| *name)
}

/// The description of the machine of this name, as a start for one's own.
pub fn description(name: &str) -> Option<&'static str> {
    MACHINES
        .iter()
        .find(|(known, ..)| *known == name)
        .map(|(.., text)| *text)
}
