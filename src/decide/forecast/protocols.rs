//! Whether NCCL uses LL128 (src/graph/tuning.cc).

use super::rules::Rules;
use super::variables::{Asked, Level, ll128 as asked};

impl Rules<'_> {
    /// Returns whether LL128 is used, why not, and what is missing to know.
    pub(super) fn ll128(
        &self,
        pair: (u32, u32),
        peer: bool,
    ) -> (Option<bool>, String, Option<String>) {
        let machine = self.machine;
        let set = machine.variables.written("NCCL_PROTO");
        match asked(machine.variables.get("NCCL_PROTO")) {
            Asked::Always => return (Some(true), format!("; {set}"), None),
            Asked::Never => return (Some(false), format!("; {set}"), None),
            Asked::Depends => {
                let needs = format!("which collectives the job calls ({set})");
                return (None, String::new(), Some(needs));
            }
            Asked::Nothing => {}
        }
        let path = machine.path(pair).map(|(level, _)| level);
        if !peer || path.is_none_or(|level| level > Level::Bridged) {
            return (Some(false), "; no LL128 without NVLink".to_owned(), None);
        }
        let (Some(one), Some(other)) = (machine.gpu(pair.0), machine.gpu(pair.1)) else {
            return (None, String::new(), None);
        };
        let (Some(first), Some(second)) = (one.architecture.known(), other.architecture.known())
        else {
            return (None, String::new(), Some("the architecture of the GPUs".to_owned()));
        };
        let (Some(one_has), Some(other_has)) = (self.has_ll128(first), self.has_ll128(second))
        else {
            let needs = format!("the compute capability ({first}, {second})");
            return (None, String::new(), Some(needs));
        };
        if !(one_has && other_has) {
            let without = if one_has { second } else { first };
            return (Some(false), format!("; no LL128 on {without}"), None);
        }
        let newest = |architecture: &str| matches!(architecture, "Hopper" | "Blackwell" | "Rubin");
        let mixes = self.version.mixes_ll128() && newest(first) && newest(second);
        if mixes || one.name.known().is_some_and(|name| other.name.known() == Some(name)) {
            return (Some(true), String::new(), None);
        }
        if first != second {
            return (Some(false), format!("; no LL128 between {first} and {second}"), None);
        }
        let needs = "whether both have the same compute capability".to_owned();
        (None, String::new(), Some(needs))
    }

    /// Returns true if GPUs of this architecture, in NVML's words, have LL128.
    fn has_ll128(&self, architecture: &str) -> Option<bool> {
        let few = self.version.has_ll128_on_few();
        match architecture {
            "Kepler" | "Maxwell" | "Pascal" => Some(false),
            "Volta" | "Hopper" => Some(true),
            // 8.0 has it, 8.6 has not.
            "Ampere" if few => None,
            "Turing" | "Ada" | "Blackwell" if few => Some(false),
            "Turing" | "Ampere" | "Ada" | "Blackwell" => Some(true),
            _ => None,
        }
    }
}
