//! Errors that the NVIDIA driver writes to the kernel's log: Xid of GPUs, SXid of NVSwitches.

use serde::{Deserialize, Serialize};

use crate::units::PciAddress;

/// An Xid message of the NVIDIA driver, or an SXid message of an NVSwitch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Xid {
    /// The PCI address of the GPU or NVSwitch.
    pub pci: PciAddress,
    /// NVIDIA's error number; from 10000 on it is an SXid.
    pub code: u32,
    /// The driver's text of the error, without the process.
    pub text: String,
    /// Number of times that it occurs in the log.
    pub times: u32,
    /// Time of the last message, seconds since boot. Null if a log was pasted that does not show it.
    pub seconds_since_boot: Option<u64>,
}

/// The Xid of a GPU that has fallen off the bus: it cannot be reset.
pub const OFF_THE_BUS: u32 = 79;

/// Lowest number of an SXid. Xid numbers are below 1000.
const FIRST_SXID: u32 = 10_000;

/// Returns true if the number is that of an NVSwitch's error.
pub fn is_sxid(code: u32) -> bool {
    code >= FIRST_SXID
}

/// What an Xid error asks for, by NVIDIA's catalog of codes ("Xid Errors").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum XidCause {
    /// Nothing: the driver says so, or the error was handled.
    Settled,
    /// A look at the program; the GPU may cause it as well.
    Program,
    /// Anything else.
    Other,
    /// A look at the GPU, its memory, its links or its firmware, which go on working.
    Hardware,
    /// A reset of the GPU, or a reboot: it does not work until then.
    Reset,
}

/// The codes whose meaning is known: cause and meaning. Sources: NVIDIA, "Xid Errors" (catalog); the names of codes in
/// NVIDIA's open kernel modules, nverror.h.
const CODES: [(u32, XidCause, &str); 27] = [
    (13, XidCause::Program, "exception in a kernel"),
    (31, XidCause::Program, "page fault in a GPU's memory"),
    (43, XidCause::Program, "a program's channel was stopped"),
    (45, XidCause::Program, "a program's channels were removed"),
    (48, XidCause::Reset, "memory error of two bits, not corrected"),
    (61, XidCause::Hardware, "breakpoint of the GPU's controller"),
    (62, XidCause::Reset, "the GPU's controller halted"),
    (63, XidCause::Hardware, "a row of memory was replaced, or waits for it"),
    (64, XidCause::Reset, "a row of memory could not be replaced"),
    (68, XidCause::Program, "exception of the video decoder"),
    (69, XidCause::Program, "exception of the graphics engine"),
    (74, XidCause::Reset, "NVLink error"),
    (79, XidCause::Reset, "the GPU has fallen off the bus"),
    (94, XidCause::Hardware, "memory error that ended one program"),
    (95, XidCause::Reset, "memory error that may have reached every program"),
    (110, XidCause::Reset, "security fault"),
    (119, XidCause::Reset, "the GPU's system processor did not answer"),
    (120, XidCause::Reset, "error of the GPU's system processor"),
    (136, XidCause::Reset, "training of an NVLink failed"),
    (137, XidCause::Hardware, "a memory access over NVLink was refused"),
    (140, XidCause::Reset, "memory error that was not contained"),
    (142, XidCause::Hardware, "error of a video encoder"),
    (143, XidCause::Reset, "the GPU could not be initialised"),
    (145, XidCause::Hardware, "NVLink error (RLW)"),
    (149, XidCause::Hardware, "NVLink error (NETIR)"),
    (154, XidCause::Hardware, "the GPU's recovery action changed"),
    (171, XidCause::Hardware, "memory error, not corrected"),
];

impl XidCause {
    /// Returns the cause of this code, if no text says more.
    pub fn of(code: u32) -> Self {
        known(code).map_or(Self::Other, |(_, cause, _)| *cause)
    }
}

fn known(code: u32) -> Option<&'static (u32, XidCause, &'static str)> {
    CODES.iter().find(|(known, ..)| *known == code)
}

/// Returns the known code that a sentence or a service names: `Xid 79`, `XID error 74`, `XidCriticalError: Xid=48`. Returns
/// what stands before and behind it as well.
pub fn named_xid(text: &str) -> Option<(u32, &str, &str)> {
    let lower = text.to_ascii_lowercase();
    lower.match_indices("xid").find_map(|(at, word)| {
        let from = at + word.len();
        let rest = lower.get(from..)?.trim_start_matches(" error");
        let rest = rest.trim_start_matches([' ', ':', '=', '#']);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let code = rest.get(..end)?.parse().ok().filter(|code| known(*code).is_some())?;
        let behind = text.len() - rest.len() + end;
        Some((code, text.get(..at)?, text.get(behind..)?))
    })
}

impl Xid {
    /// Returns true if an NVSwitch reported it.
    pub fn is_of_switch(&self) -> bool {
        is_sxid(self.code)
    }

    /// Returns what it asks for, by its code and its text.
    pub fn cause(&self) -> XidCause {
        let says = |word: &str| self.text.to_ascii_lowercase().contains(word);
        match self.code {
            // "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)".
            154 => {
                let now = self.text.rsplit(" to ").next().unwrap_or_default().to_ascii_lowercase();
                match () {
                    () if now.contains("none") => XidCause::Settled,
                    () if now.contains("reset") || now.contains("reboot") => XidCause::Reset,
                    () => XidCause::Hardware,
                }
            }
            // NVLink 5 and NVSwitches: the text has the severity.
            145..=150 | FIRST_SXID.. if says("nonfatal") || says("non-fatal") => XidCause::Hardware,
            145..=150 | FIRST_SXID.. if says("fatal") => XidCause::Reset,
            144..=150 | FIRST_SXID.. => XidCause::Hardware,
            code => XidCause::of(code),
        }
    }

    /// Returns the meaning of its code in words, if it is known.
    pub fn meaning(&self) -> Option<&'static str> {
        known(self.code).map(|(.., meaning)| *meaning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_found_where_a_text_names_it() {
        let code = |text| named_xid(text).map(|(code, ..)| code);
        for (text, wanted) in [
            ("GPU 3 reported Xid 79 today", Some(79)),
            ("XID error 74 on gpu07", Some(74)),
            ("XidCriticalError: Xid=48 on Device=GPU-1", Some(48)),
            ("xid:79", Some(79)),
            ("NVRM: Xid (PCI:0000:5a:00): 13", None),
            ("XID 4800 aborted", None),
            ("XidCriticalError False", None),
            ("Xid 7900", None),
            ("an Xid", None),
        ] {
            assert_eq!(code(text), wanted, "{text}");
        }
        assert_eq!(named_xid("no Xid 79, though"), Some((79, "no ", ", though")));
    }

    #[test]
    fn the_text_decides_where_it_has_a_severity_or_an_action() {
        let cause = |code, text: &str| {
            let pci = "0000:9b:00.0".parse().unwrap();
            Xid { pci, code, text: text.into(), times: 1, seconds_since_boot: None }.cause()
        };
        let changed = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)";
        assert_eq!(cause(154, changed), XidCause::Reset);
        let settled = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)";
        assert_eq!(cause(154, settled), XidCause::Settled);
        assert_eq!(
            cause(154, "GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)"),
            XidCause::Hardware
        );
        assert_eq!(cause(149, "NETIR_LINK_DOWN Fatal XC0 i0 Link 14"), XidCause::Reset);
        assert_eq!(cause(145, "RLW_REMAP Nonfatal XC1 i0 Link 11"), XidCause::Hardware);
        assert_eq!(cause(20034, "Fatal, Link 30 LTSSM Fault Up"), XidCause::Reset);
        assert_eq!(
            cause(12028, "Non-fatal, Link 61 egress non-posted PRIV error"),
            XidCause::Hardware
        );
        assert_eq!(cause(74, "NVLink: fatal error detected on link 7"), XidCause::Reset);
        assert_eq!(cause(31, "MMU Fault"), XidCause::Program);
        assert_eq!(cause(999, "x"), XidCause::Other);
    }

    #[test]
    fn codes_stand_once_and_in_order() {
        assert!(CODES.windows(2).all(|two| two[0].0 < two[1].0));
    }
}
