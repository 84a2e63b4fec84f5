//! The kernels that the fake driver knows.

/// A kernel of peerscope's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kernel {
    Gate,
    Spin,
    Work,
    Copy,
    Fill,
    Poison,
    Check,
    Talk,
    Channel,
    Chase,
    Links,
}

impl Kernel {
    /// Returns the kernel of this name in an image.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "peerscope_gate" => Self::Gate,
            "peerscope_spin" => Self::Spin,
            "peerscope_work" => Self::Work,
            "peerscope_copy" => Self::Copy,
            "peerscope_fill" => Self::Fill,
            "peerscope_poison" => Self::Poison,
            "peerscope_check" => Self::Check,
            "peerscope_talk" => Self::Talk,
            "peerscope_channel" => Self::Channel,
            "peerscope_chase" => Self::Chase,
            "peerscope_links" => Self::Links,
            _ => return None,
        })
    }
}
