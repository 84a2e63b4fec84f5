//! The meaning of a piece of text, so that colour can underline it.

use anstyle::{AnsiColor, Style};

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
    /// Returns the sign of a part with a finding, empty for others: nothing is shown by colour alone.
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::Error => "✖",
            Self::Warning => "▲",
            _ => "",
        }
    }

    /// Returns the text in this paint; unchanged without colour.
    pub(crate) fn apply(self, text: &str, color: bool) -> String {
        let style = match self {
            _ if !color || text.is_empty() => return text.to_owned(),
            Self::Plain => return text.to_owned(),
            Self::Faint => Style::new().dimmed(),
            Self::Strong => Style::new().bold(),
            Self::Good => AnsiColor::Green.on_default().bold(),
            Self::Warning => AnsiColor::Yellow.on_default().bold(),
            Self::Error => AnsiColor::Red.on_default().bold(),
        };
        format!("{style}{text}{style:#}")
    }
}
