//! What most rules need.

pub(super) use crate::diagnose::evidence::Evidence;
pub(super) use crate::diagnose::rule::{Parameter, Rule};
pub(super) use crate::diagnose::suspects::suspect;
pub(super) use crate::diagnose::{cluster, links, suspects, words};
pub(super) use crate::model::fact::{Fact, Facts};
pub(super) use crate::model::finding::{Finding, Severity, Subject, Suspect};
pub(super) use crate::model::placement::{Pair, Path};
