//! The mistakes in a description.

/// A mistake in a description, with its key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct Problem {
    /// The key, from the top: `pci[3].parent`.
    pub key: String,
    /// A sentence without a full stop.
    pub message: String,
}

/// The result of a check.
pub(super) type Checked = Result<(), Problem>;

pub(super) fn problem(key: impl Into<String>, message: impl Into<String>) -> Problem {
    Problem { key: key.into(), message: message.into() }
}

/// Returns the problem at this key, with the following message, unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $key:expr, $($message:tt)+) => {
        if !$holds {
            return Err($crate::spec::problem::problem($key, format!($($message)+)));
        }
    };
}
pub(super) use ensure;
