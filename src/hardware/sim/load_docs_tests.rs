//! A list of tables can lack one (`load_tests.rs`), so the keys and words are also taken from the source.

/// Keys as scripts/machine-keys writes them, and how values are written.
const DOCS: &str = concat!(
    include_str!("../../../docs/machine-keys.md"),
    include_str!("../../../docs/machines.md")
);

/// Returns the keys and words of the types that serde reads, as their source declares them: fields, and the variants of enums
/// in kebab case.
fn keys_and_words(source: &str) -> Vec<String> {
    let (mut found, mut read, mut within, mut skipped) = (Vec::new(), false, None, false);
    let is_name = |name: &str| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        !name.is_empty() && name.chars().all(is_part)
    };
    for line in source.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if text.starts_with("#[derive(") {
            read = text.contains("Deserialize");
        } else if text.starts_with("pub ") && text.ends_with('{') && within.is_none() {
            within = std::mem::take(&mut read).then_some(indent);
        } else if text == "}" && within == Some(indent) {
            within = None;
        }
        if within.is_none() || text.starts_with("//") {
            continue;
        }
        if let Some(attributes) = text.strip_prefix("#[serde(") {
            skipped |= attributes.starts_with("skip)");
            continue;
        }
        let variant = text.split(|c: char| !c.is_ascii_alphanumeric()).next();
        if let Some(variant) = variant.filter(|name| name.starts_with(char::is_uppercase)) {
            found.push(kebab(variant));
        }
        let inner = text.split_once("{ ").map_or(text, |(_, inner)| inner);
        let inner = inner.strip_prefix("pub ").unwrap_or(inner);
        let key = inner.split_once(':').map(|(key, _)| key);
        if let Some(key) = key.filter(|key| is_name(key) && !std::mem::take(&mut skipped)) {
            found.push(key.to_owned());
        }
    }
    found
}

fn kebab(variant: &str) -> String {
    let mut word = String::new();
    for c in variant.chars() {
        if c.is_uppercase() && !word.is_empty() {
            word.push('-');
        }
        word.extend(c.to_lowercase());
    }
    word
}

#[test]
fn every_key_and_word_that_the_source_declares_is_documented() {
    let spec = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("spec");
    let (mut known, mut missing) = (0, Vec::new());
    for file in std::fs::read_dir(spec).unwrap() {
        let path = file.unwrap().path();
        let source = std::fs::read_to_string(&path).unwrap();
        for word in keys_and_words(&source) {
            known += 1;
            let forms = [format!("`{word}`"), format!("\"{word}\""), format!("{word} = ")];
            if !forms.iter().any(|form| DOCS.contains(form.as_str())) {
                missing.push(format!("{word} ({})", path.display()));
            }
        }
    }
    // Some two hundred keys, and the words of every list.
    assert!(known > 250, "{known}");
    assert!(
        missing.is_empty(),
        "docs/machine-keys.md says nothing of {missing:?}: scripts/machine-keys"
    );
}
