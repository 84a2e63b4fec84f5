//! Identifiers of rules.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// The identifier of a rule, such as `pcie-narrow`. Codes are never reused for another rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct RuleId(Cow<'static, str>);

impl RuleId {
    /// Creates the identifier of one of this program's rules.
    pub const fn new(code: &'static str) -> Self {
        Self(Cow::Borrowed(code))
    }
}

impl From<String> for RuleId {
    /// Accepts a code in a report, which may belong to a rule that this version does not have.
    fn from(code: String) -> Self {
        Self(Cow::Owned(code))
    }
}

#[cfg(any(test, feature = "testing"))]
impl PartialEq<&str> for RuleId {
    fn eq(&self, code: &&str) -> bool {
        **self == **code
    }
}

impl Deref for RuleId {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}
