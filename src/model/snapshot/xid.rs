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

/// What repetitions of a message share: see [`Xid::key`].
pub type XidKey = (PciAddress, u32, Option<(Option<u8>, bool)>);

/// The Xid of a GPU that has fallen off the bus: it cannot be reset.
pub const OFF_THE_BUS: u32 = 79;

/// The Xid of an NVLink up to NVLink 4.
pub const NVLINK_XID: u32 = 74;

/// Lowest number of an SXid. Xid numbers are below 1000.
const FIRST_SXID: u32 = 10_000;

/// Xids of NVLink 5 and later, one for each unit of a link. Their text has the part of the unit, the severity, and the link:
/// `NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 ...)`, "Link -1" for none. Source: NVIDIA, "Xid Errors", NVLink 5 Xids.
const OF_NVLINK_5: std::ops::RangeInclusive<u32> = 144..=150;

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
const CODES: [(u32, XidCause, &str); 32] = [
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
    (144, XidCause::Hardware, "NVLink error (SAW)"),
    (145, XidCause::Hardware, "NVLink error (RLW)"),
    (146, XidCause::Hardware, "NVLink error (TLW)"),
    (147, XidCause::Hardware, "NVLink error (TREX)"),
    (148, XidCause::Hardware, "NVLink error (NVLPW)"),
    (149, XidCause::Hardware, "NVLink error (NETIR)"),
    (150, XidCause::Hardware, "NVLink error (MSE)"),
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
            144..=150 | FIRST_SXID.. if says("fatal") && !self.says_nonfatal() => XidCause::Reset,
            144..=150 | FIRST_SXID.. => XidCause::Hardware,
            code => XidCause::of(code),
        }
    }

    /// Returns true if its text says that it is not fatal.
    pub fn says_nonfatal(&self) -> bool {
        ["on-fatal", "onfatal"].iter().any(|word| self.text.contains(word))
    }

    /// Returns the NVLink that an Xid of a GPU is about, if its text has one.
    pub fn nvlink(&self) -> Option<u8> {
        if self.code != NVLINK_XID && !OF_NVLINK_5.contains(&self.code) {
            return None;
        }
        let (_, rest) = self.text.split_once("ink ")?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    /// Returns what its repetitions have too: device and code, and for NVLink 5 link and severity, so that a mild error hides
    /// no fatal one.
    pub fn key(&self) -> XidKey {
        let of_link = OF_NVLINK_5.contains(&self.code);
        let of_link = of_link.then(|| (self.nvlink(), self.says_nonfatal()));
        (self.pci, self.code, of_link)
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

    /// Lines of GB200 and GB300, from pull requests 1160 and 1174 of leptonai/gpud.
    #[test]
    fn an_error_of_nvlink_5_has_its_severity_and_its_link() {
        let xid = |code, text: &str| {
            let pci = "0008:01:00.0".parse().unwrap();
            Xid { pci, code, text: text.into(), times: 1, seconds_since_boot: None }
        };
        for (code, text, cause, link) in [
            (149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x0)", XidCause::Reset, Some(8)),
            (149, "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x0)", XidCause::Reset, None),
            (
                145,
                "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x8)",
                XidCause::Hardware,
                Some(13),
            ),
            (144, "SAW_MVB Fatal XC0 i0 Link 00 (0x00000001 0x2)", XidCause::Reset, Some(0)),
            (144, "SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x8)", XidCause::Hardware, Some(0)),
            (150, "MSE_WATCHDOG Fatal XC0 i0 Link 00 (0x0)", XidCause::Reset, Some(0)),
            (
                146,
                "TLW_RX/TLW_RX_PIPE0 Nonfatal XC0 i0 Link 17 (0xa)",
                XidCause::Hardware,
                Some(17),
            ),
            (74, "NVLink: fatal error detected on link 7(0x0, 0x0)", XidCause::Reset, Some(7)),
            (94, "Contained: link 3", XidCause::Hardware, None),
        ] {
            let of = xid(code, text);
            assert_eq!((of.cause(), of.nvlink()), (cause, link), "{text}");
            assert!(of.meaning().is_some(), "{code}");
        }
        let key = |text| xid(145, text).key();
        let mild = key("RLW_REMAP Nonfatal XC1 i0 Link 04");
        assert_ne!(key("RLW_REMAP Fatal XC0 i0 Link 04"), mild);
        assert_ne!(key("RLW_REMAP Nonfatal XC1 i0 Link 05"), mild);
        assert_eq!(xid(31, "MMU Fault on link 1").key(), xid(31, "MMU Fault").key());
    }

    #[test]
    fn codes_stand_once_and_in_order() {
        assert!(CODES.windows(2).all(|two| two[0].0 < two[1].0));
    }
}
