//! Words for facts whose names do not read well, beside the rules that write them. Every other fact appears by its name.

/// Phrases, in their order of use: `{a}` is the fact of this name, `{a..b}` a range of two. A phrase is used if all its
/// facts are present.
pub const PHRASES: &[&str] = &[
    "affected: {gpus}",
    "behind it: {gpus_behind}",
    "affected: {pairs}",
    "copies over it reach {copies_over_it_lowest..copies_over_it_highest}",
    "copies reach {lowest_achieved..highest_achieved}",
    "staged copies reach {staged_lowest..staged_highest}",
    "{rate_above} left above it, {rate_of_the_gpu} on the GPU's own link",
    "beside it ran {beside}",
    "what limits it: {limit}",
    "the kernel's log was not read: {xids_unknown}",
    "taken out of the environment of copies: {removed}",
];

/// Facts that the message or the location of a finding always has.
pub const SAID: [&str; 3] = ["width", "width_possible", "untested"];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::{PHRASES, SAID};

    /// Collects every name of a fact in the code of the rules. These are `.fact("name", …)`, and the two that have a
    /// call of their own.
    fn written(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                written(&path, found);
                continue;
            }
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            if name.ends_with("tests") || name == "testing" {
                continue;
            }
            let code = std::fs::read_to_string(&path).unwrap();
            let code = code.split("#[cfg(test)]").next().unwrap();
            for call in code.split(".fact(").skip(1) {
                let literal = call.trim_start().strip_prefix('"');
                let name = literal.and_then(|rest| rest.split('"').next());
                found.insert(
                    name.unwrap_or_else(|| panic!("no literal in {}", path.display())).into(),
                );
            }
        }
    }

    #[test]
    fn phrases_are_about_facts_of_rules() {
        let mut facts: BTreeSet<String> = ["gpus", "pairs"].map(String::from).into();
        written(Path::new(env!("CARGO_MANIFEST_DIR")), &mut facts);
        assert!(facts.len() > 130, "{}", facts.len());
        let places = PHRASES.iter().flat_map(|phrase| phrase.split('{').skip(1));
        let names = places.flat_map(|place| place.split('}').next().unwrap().split(".."));
        for name in names.chain(SAID) {
            assert!(facts.contains(name), "no rule writes {name}");
        }
    }
}
