//! Imports that most rules need.

pub(super) use crate::cluster::{Common, Group};
pub(super) use crate::evidence::Evidence;
pub(super) use crate::kind::Kind;
pub(super) use crate::links::one_place;
pub(super) use crate::rule::{Parameter, Rule, rule};
pub(super) use crate::steps::{self, *};
pub(super) use crate::{cluster, links, suspects, words};
pub(super) use explain::scatter;
pub(super) use model::broken_off::BrokenOff;
pub(super) use model::cell::{FigureKey, Measurement};
pub(super) use model::counted::Counted;
pub(super) use model::fact::{Fact, Facts};
pub(super) use model::finding::{Finding, Severity, Subject, Suspect};
pub(super) use model::flow::{Endpoint, Flow, HostMemory};
pub(super) use model::host::{Allocation, HostCopy, HostDirection, HostWay};
pub(super) use model::live::LiveTalk;
pub(super) use model::load::{LoadFlow, LoadPattern};
pub(super) use model::measurement::{
    LinkUnderLoad, Measurements, PeerBandwidth, Probe, Status, Verified,
};
pub(super) use model::node::NodeId;
pub(super) use model::placement::{Direction, Engine, Pair, Path, Placement};
pub(super) use model::reading::{Reading, Unknown};
pub(super) use model::rounding::short;
pub(super) use model::snapshot::{
    Adapter, AdapterKind, AdapterPort, CommonAncestor, DeviceFile, DisplayFunction, FabricState,
    Gpu, NvLink, NvLinkBond, NvLinkRemote, P2pStatus, PciFunction, PciKind, Snapshot, Xid,
};
pub(super) use model::soak::{EventKind, Soak, SoakEvent, SoakPath};
pub(super) use model::step::When;
pub(super) use model::topology::{Link, LinkClass, LinkKind, PairRoute};
pub(super) use model::units::{Bytes, GbPerSecond, Lanes, PciAddress};
pub(super) use std::collections::{BTreeMap, BTreeSet};
pub(super) use topology::pcie::{self, Connection, Shape};
