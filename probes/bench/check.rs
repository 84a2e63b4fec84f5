//! The verdict on bytes that were compared.

use hardware::PatternCheck;
use model::measurement::Verified;
use model::units::Bytes;
use serde::{Deserialize, Serialize};

/// The result of checking the bytes that one flow has copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The verdict on the bytes.
    pub verified: Verified,
    /// Description of the wrong bytes.
    pub detail: Option<String>,
}

impl Check {
    /// All bytes are right.
    pub const OK: Self = Self { verified: Verified::Ok, detail: None };

    /// Returns a check without a result, for this reason.
    pub fn inconclusive(why: impl Into<String>) -> Self {
        Self { verified: Verified::Inconclusive, detail: Some(why.into()) }
    }

    /// Returns the check where no kernel can check.
    pub(crate) fn without_kernels() -> Self {
        Self::inconclusive("not checked, since the GPU kernels could not be loaded")
    }

    /// Returns the worst of these: bytes known to be wrong come first.
    pub(crate) fn worst(checks: impl IntoIterator<Item = Self>) -> Self {
        let rank = |check: &Self| match check.verified {
            Verified::Ok => 2,
            verified if verified.is_wrong() => 0,
            _ => 1,
        };
        checks.into_iter().min_by_key(rank).unwrap_or(Self::OK)
    }

    /// Converts the counts of the check kernel to a verdict and a description.
    pub fn of(counted: &PatternCheck) -> Self {
        let Some(first) = counted.first_wrong else {
            return Self::OK;
        };
        let (wrong, never, whole) =
            (counted.wrong - counted.poisoned, counted.poisoned, Bytes(counted.words * 8));
        let (wrong, never) = (Bytes(wrong * 8), Bytes(never * 8));
        if counted.poisoned == counted.wrong {
            let detail = format!(
                "{never} of {whole} were never written, the first at byte {first} of the buffer"
            );
            return Self { verified: Verified::Dropped, detail: Some(detail) };
        }
        if counted.wrong - counted.poisoned == counted.stale {
            let detail = format!(
                "{wrong} of {whole} are still those of the copy before the last, the first at byte {first} of the buffer"
            );
            return Self { verified: Verified::Stale, detail: Some(detail) };
        }
        let detail = format!(
            "{wrong} of {whole} are wrong and {never} were never written, the first at byte {first} of the buffer"
        );
        Self { verified: Verified::Corrupt, detail: Some(detail) }
    }
}
