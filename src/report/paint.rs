//! The meaning of a piece of text, so that colour can underline it.

use anstyle::{AnsiColor, Effects};

/// The meaning of a piece of text. Its words must express it too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Paint {
    #[default]
    Plain,
    /// Less important: captions, placeholders.
    Faint,
    /// A heading.
    Strong,
    /// As expected.
    Good,
    /// Needs a look.
    Warning,
    /// A fault.
    Error,
}

impl Paint {
    /// Returns the text in this paint; unchanged without colour.
    pub(crate) fn apply(self, text: &str, color: bool) -> String {
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
