//! Imports that most rules need.

pub(super) use std::collections::{BTreeMap, BTreeSet};

pub(super) use crate::evidence::Evidence;
pub(super) use crate::rule::{Parameter, Rule, rule};
pub(super) use crate::steps::{self, *};
pub(super) use crate::{cluster, links, suspects, words};
pub(super) use model::cell::FigureKey;
pub(super) use model::fact::{Fact, Facts};
pub(super) use model::finding::{Finding, Severity, Subject, Suspect};
pub(super) use model::measurement::{LinkUnderLoad, Measurements, PeerBandwidth, Status, Verified};
pub(super) use model::placement::{Direction, Engine, Pair, Path};
pub(super) use model::snapshot::{FabricState, Gpu, P2pStatus, PciFunction, PciKind, Snapshot};
pub(super) use model::step::When;
pub(super) use model::topology::{LinkClass, PairRoute};
pub(super) use model::units::{GbPerSecond, PciAddress};
