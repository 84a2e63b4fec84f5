//! Words for a POSIX shell: every line that is printed for one to run or to evaluate is made with this.

/// Returns this text as one word of a shell: as it is, if nothing in it has a meaning there, and quoted otherwise.
pub fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:@%+".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for text in [
            "GPU-00000000-0000-0000-0000-000000000001,GPU-2",
            "",
            "a b",
            "~root",
            "$(touch x)`touch x`",
            "it's; touch x",
            "'\\''",
            "line\nbreak",
            "*",
            "a=b",
            "\u{1b}[31m",
        ] {
            let script = format!("printf '%s.' {}", word(text));
            let ran = std::process::Command::new("sh").args(["-c", &script]).output();
            let said = String::from_utf8(ran.unwrap().stdout).unwrap();
            assert_eq!(said, format!("{text}."), "{script}");
        }
        assert_eq!(word("/var/log/a.json"), "/var/log/a.json");
    }
}
