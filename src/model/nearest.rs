//! Suggestions of known names for a mistyped one.

/// Length above which names are not compared. No known name comes near, and the time grows with the product of the
/// lengths.
const LONGEST: usize = 64;

/// Least letters of a name's beginning that stand for it.
const BEGINNING: usize = 4;

/// Returns `; did you mean 'pcie-narrow'?` to append to an error about a name, or nothing if no known name is near.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    if name.len() > LONGEST {
        return String::new();
    }
    let name = name.to_lowercase().replace('_', "-");
    // One letter in three may be wrong.
    let most = (name.chars().count() / 3).max(1);
    let distance = |known: &str| match known.strip_prefix(&*name) {
        // The beginning of a name counts as one wrong letter, the shortest name first.
        Some(rest) if name.len() >= BEGINNING => (1, rest.len()),
        _ => (strsim::osa_distance(&name, &known.to_lowercase()), 0),
    };
    let near = known.into_iter().map(|known| (distance(known), known));
    let near =
        near.filter(|((letters, _), _)| *letters <= most).min_by_key(|(distance, _)| *distance);
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
            ("pcie-narrow-by", "pcie-narrow-by-design"),
            ("test", ""),
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
