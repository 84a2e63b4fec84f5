//! The built-in machines.

pub use super::descriptions::{Condition, description, names, names_of};
use super::load;
use super::spec::MachineSpec;

/// Returns the built-in machine of this name.
pub fn get(name: &str) -> Option<MachineSpec> {
    // A test parses every one of them.
    load::parse(description(name)?).ok()
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
            assert_eq!(serde_json::from_str::<MachineSpec>(&text).unwrap(), spec, "{name}");
            assert_eq!(load::parse(&toml::to_string(&spec).unwrap()).unwrap(), spec, "{name}");
        }
        assert!(get("nonsense").is_none());
    }

    #[test]
    fn every_description_in_the_folder_is_built_in() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/machines");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let files: HashSet<_> =
            files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        assert_eq!(files, names().map(str::to_owned).collect());
    }
}
