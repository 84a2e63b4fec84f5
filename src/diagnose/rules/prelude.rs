//! What most rules need.

pub(super) use std::collections::{BTreeMap, BTreeSet};

pub(super) use crate::diagnose::evidence::Evidence;
pub(super) use crate::diagnose::rule::{Parameter, Rule, page};
pub(super) use crate::diagnose::suspects::suspect;
pub(super) use crate::diagnose::{cluster, links, suspects, words};
pub(super) use crate::model::fact::{Fact, Facts};
pub(super) use crate::model::finding::{Finding, Severity, Subject, Suspect};
pub(super) use crate::model::measurement::{
    LinkUnderLoad, Measurements, PeerBandwidth, Status, Verified,
};
pub(super) use crate::model::placement::{Direction, Engine, Pair, Path};
pub(super) use crate::model::snapshot::{
    FabricState, Gpu, P2pStatus, PciFunction, PciKind, Snapshot,
};
pub(super) use crate::model::topology::{LinkClass, PairRoute};
pub(super) use crate::model::units::{GbPerSecond, PciAddress};
