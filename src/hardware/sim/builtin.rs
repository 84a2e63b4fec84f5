//! The built-in machines: a description each in `machines/`, with its sources as comments.

use super::load;
use super::spec::MachineSpec;

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

pub fn get(name: &str) -> Option<MachineSpec> {
    // A test reads every one of them.
    load::parse(description(name)?).ok()
}

/// The description of the machine of this name, as a start for one's own.
pub fn description(name: &str) -> Option<&'static str> {
    MACHINES
        .iter()
        .find(|(known, ..)| *known == name)
        .map(|(.., text)| *text)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_machine_is_sound_and_survives_its_text() {
        assert_eq!(names().collect::<HashSet<_>>().len(), names().count());
        for name in names() {
            let spec = load::parse(description(name).unwrap())
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!spec.summary.is_empty(), "{name}");
            let text = serde_json::to_string(&spec).unwrap();
            assert_eq!(
                serde_json::from_str::<MachineSpec>(&text).unwrap(),
                spec,
                "{name}"
            );
            assert_eq!(
                load::parse(&toml::to_string(&spec).unwrap()).unwrap(),
                spec,
                "{name}"
            );
        }
        assert!(get("nonsense").is_none());
    }

    #[test]
    fn every_description_in_the_folder_is_built_in() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/machines");
        let files = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path());
        let files: HashSet<_> = files
            .map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(files, names().map(str::to_owned).collect());
    }
}
