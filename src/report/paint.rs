//! What a piece of text means, so that colour can underline it.

use anstyle::{AnsiColor, Effects};

/// What a piece of text means. The words must say it too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Paint {
    /// Nothing special.
    #[default]
    Plain,
    /// Of lesser weight: captions, placeholders.
    Faint,
    /// A heading.
    Strong,
    /// As it should be.
    Good,
    /// To be looked into.
    Warning,
    /// Wrong.
    Error,
}

impl Paint {
    /// The text in this paint; the text itself without colour.
    pub fn apply(self, text: &str, color: bool) -> String {
        if !color || self == Self::Plain || text.is_empty() {
            return text.to_owned();
        }
        let style = match self {
            Self::Plain => anstyle::Style::new(),
            Self::Faint => anstyle::Style::new().effects(Effects::DIMMED),
            Self::Strong => anstyle::Style::new().effects(Effects::BOLD),
            Self::Good => AnsiColor::Green.on_default().effects(Effects::BOLD),
            Self::Warning => AnsiColor::Yellow.on_default().effects(Effects::BOLD),
            Self::Error => AnsiColor::Red.on_default().effects(Effects::BOLD),
        };
        format!("{style}{text}{style:#}")
    }
}
