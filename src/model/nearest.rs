//! Suggestions of known names for a mistyped one.

/// Length above which names are not compared. No known name comes near, and the time grows with the product of the
/// lengths.
const LONGEST: usize = 64;

/// Returns `; did you mean 'pcie-narrow'?` to append to an error about a name, or nothing if no known name is near.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    if name.len() > LONGEST {
        return String::new();
    }
    let name = name.to_lowercase().replace('_', "-");
    // One letter in three may be wrong.
    let most = (name.chars().count() / 3).max(1);
    let near =
        known.into_iter().map(|known| (strsim::osa_distance(&name, &known.to_lowercase()), known));
    let near = near.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance);
    near.map(|(_, known)| format!("; did you mean '{known}'?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_offered_and_a_far_one_is_not() {
        let known = ["pcie-narrow", "pcie-narrow-by-design", "not-tested", "live", "demo"];
        for (name, meant) in [
            ("pcie-narow", "pcie-narrow"),
            ("PCIE_NARROW", "pcie-narrow"),
            ("narrow-pcie", ""),
            ("deno", "demo"),
            ("dmeo", "demo"),
            ("liv", "live"),
            ("zzz", ""),
            ("", ""),
        ] {
            let said = did_you_mean(name, known);
            let wanted =
                if meant.is_empty() { String::new() } else { format!("; did you mean '{meant}'?") };
            assert_eq!(said, wanted, "{name}");
        }
        assert_eq!(did_you_mean(&"x".repeat(1_000_000), known), "");
    }
}
