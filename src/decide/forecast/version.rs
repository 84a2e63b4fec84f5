//! A version of NCCL, and where its rules differ from those of others.

use std::fmt;
use std::str::FromStr;

/// A version of NCCL whose rules were read. The patch level changes none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u16);

/// The versions whose sources were read: 2.18.5, 2.19.3, 2.20.5, 2.22.3, 2.23.4, 2.24.3, 2.26.2, 2.27.3, 2.28.3, 2.29.7,
/// 2.30.7.
const FIRST: u16 = 18;
const LAST: u16 = 30;

impl Default for Version {
    fn default() -> Self {
        Self(LAST)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("2.{}", self.0))
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('.');
        let minor = match (parts.next(), parts.next().map(str::parse::<u16>)) {
            (Some("2"), Some(Ok(minor))) => minor,
            _ => return Err(format!("'{text}' is no version of NCCL, such as 2.{LAST}")),
        };
        if parts.clone().count() > 1 || parts.any(|patch| patch.parse::<u16>().is_err()) {
            return Err(format!("'{text}' is no version of NCCL, such as 2.{LAST}.7"));
        }
        if !(FIRST..=LAST).contains(&minor) {
            return Err(format!(
                "the rules of NCCL 2.{minor} are not known here; those of 2.{FIRST} to 2.{LAST} are"
            ));
        }
        Ok(Self(minor))
    }
}

impl Version {
    /// Returns true if memory comes from `cuMemCreate` unless a variable forbids it (src/misc/cudawrap.cc, 2.19.3).
    pub(super) const fn has_cumem_by_default(self) -> bool {
        self.0 >= 19
    }

    /// Returns true if `cuMemCreate` is used only where network adapters can access such memory (src/misc/cudawrap.cc,
    /// until 2.23.4).
    pub(super) const fn cumem_needs_rdma(self) -> bool {
        self.0 < 24
    }

    /// Returns true if memory of the host comes from `cuMemCreate` too, with drivers of CUDA 12.6 or newer
    /// (src/misc/cudawrap.cc, 2.24.3).
    pub(super) const fn has_cumem_of_host_by_default(self) -> bool {
        self.0 >= 24
    }

    /// Returns true if there is a variable for that (src/misc/cudawrap.cc, 2.23.4).
    pub(super) const fn has_cumem_of_host(self) -> bool {
        self.0 >= 23
    }

    /// Returns true if GPUs of one process use pointers although memory comes from `cuMemCreate` (src/transport/p2p.cc,
    /// 2.19.3).
    pub(super) const fn shares_pointers(self) -> bool {
        self.0 >= 19
    }

    /// Returns true if peer access crosses host bridges by default unless the processor is Intel's, Zhaoxin's or ARM
    /// (src/graph/paths.cc, until 2.22.3). Newer versions cross them only for two GPUs of a machine with AMD processors.
    pub(super) const fn crosses_host_bridges(self) -> bool {
        self.0 < 23
    }

    /// Returns true if LL128 is for compute capability 7.0, 8.0 and 9.0 alone (src/graph/tuning.cc, until 2.26.2).
    pub(super) const fn has_ll128_on_few(self) -> bool {
        self.0 < 27
    }

    /// Returns true if LL128 works between GPUs of two compute capabilities from 9.0 on (src/graph/tuning.cc, 2.30.3).
    pub(super) const fn mixes_ll128(self) -> bool {
        self.0 >= 30
    }
}
