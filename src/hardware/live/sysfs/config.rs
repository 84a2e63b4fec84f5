//! PCI configuration space through the `config` file: port type, sizes of packets and access control (ACS).
//!
//! Offsets and bits are those of the PCI Express Base Specification and Linux' `pci_regs.h`. Only the necessary bytes
//! are read: a whole configuration space takes a millisecond per function.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::read::{NEEDS_ROOT, io_unknown, odd};
use model::reading::Unknown;

const STATUS: u64 = 0x06;
const STATUS_CAPABILITIES: u16 = 0x10;
const CAPABILITY_POINTER: u64 = 0x34;
const CAPABILITY_PCIE: u8 = 0x10;
/// Offset of the first extended capability.
const EXTENDED: u64 = 0x100;
const EXTENDED_ACS: u32 = 0x000d;
const ACS_CONTROL: u64 = 6;
const ACS_REQUEST_REDIRECT: u16 = 0x04;
/// Size of the standard header, bytes. Without root the kernel returns no more.
const HEADER: u64 = 64;

/// The role of a PCI Express function, from its PCIe capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PortType {
    /// A port of the root complex.
    RootPort,
    /// Upstream port of a switch.
    Upstream,
    /// Downstream port of a switch.
    Downstream,
    /// Anything else: an endpoint, or a bridge to another kind of bus.
    Other,
}

/// Sizes of packets, bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packets {
    /// Largest payload of the packets that it sends and receives.
    pub payload: Result<u16, Unknown>,
    /// Largest payload that could be set.
    pub payload_possible: Result<u16, Unknown>,
    /// Largest size of one read request.
    pub read_request: Result<u16, Unknown>,
}

/// An open configuration space.
pub(super) struct Config {
    file: File,
}

impl Config {
    /// Opens the `config` file of a function.
    pub(super) fn open(path: &Path) -> Result<Self, Unknown> {
        Ok(Self { file: File::open(path).map_err(|error| io_unknown(&error))? })
    }

    /// Returns the role of this function.
    pub(super) fn port_type(&self) -> Result<PortType, Unknown> {
        let [_, _, flags, ..] = self.capability()?;
        Ok(match flags >> 4 {
            4 => PortType::RootPort,
            5 => PortType::Upstream,
            6 => PortType::Downstream,
            _ => PortType::Other,
        })
    }

    /// Returns the sizes of packets as they are set and as they could be, and the size of one read request.
    pub(super) fn packets(&self) -> Result<Packets, Unknown> {
        let [_, _, _, _, possible, _, _, _, low, high, ..] = self.capability()?;
        let bytes = |exponent: u8| match exponent {
            0..=5 => Ok(128_u16 << exponent),
            reserved => {
                Err(Unknown::Failed(format!("the register says {reserved}, which is reserved")))
            }
        };
        Ok(Packets {
            payload: bytes(low >> 5 & 7),
            payload_possible: bytes(possible & 7),
            read_request: bytes(high >> 4 & 7),
        })
    }

    /// Returns the PCI Express capability up to its device control register.
    fn capability(&self) -> Result<[u8; 10], Unknown> {
        self.must_answer()?;
        let status = self.at(STATUS)?.map(u16::from_le_bytes).ok_or(Unknown::Unsupported)?;
        if status & STATUS_CAPABILITIES == 0 {
            return Err(Unknown::Unsupported);
        }
        let [mut pointer] = self.at(CAPABILITY_POINTER)?.ok_or(Unknown::Unsupported)?;
        // 48 capabilities of 4 bytes fill the space: more would be a loop.
        for _ in 0..48 {
            pointer &= 0xfc;
            if u64::from(pointer) < HEADER {
                return Err(Unknown::Unsupported);
            }
            let [id, next] = self.at(pointer.into())?.ok_or_else(denied)?;
            if id == CAPABILITY_PCIE {
                return self.at(pointer.into())?.ok_or_else(denied);
            }
            pointer = next;
        }
        Err(Unknown::Failed("the capability list is a loop".to_owned()))
    }

    /// Returns true if peer requests are redirected upwards (ACS P2P request redirect).
    pub(super) fn acs_redirect(&self) -> Result<bool, Unknown> {
        self.must_answer()?;
        self.at::<1>(HEADER)?.ok_or_else(denied)?;
        let mut offset = EXTENDED;
        // 960 capabilities of 4 bytes fill the extended space: more would be a loop.
        for _ in 0..960 {
            let Some(header) = self.at(offset)?.map(u32::from_le_bytes) else {
                return Err(Unknown::Unsupported);
            };
            if header & 0xffff == EXTENDED_ACS {
                let control = self
                    .at(offset + ACS_CONTROL)?
                    .map(u16::from_le_bytes)
                    .ok_or(Unknown::Unsupported)?;
                return Ok(control & ACS_REQUEST_REDIRECT != 0);
            }
            offset = u64::from(header >> 20 & 0xffc);
            // 0 ends the list. A bus without extended space returns all ones.
            if header == u32::MAX || offset < EXTENDED {
                return Err(Unknown::Unsupported);
            }
        }
        Err(Unknown::Failed("the extended capability list is a loop".to_owned()))
    }

    /// Returns true if the function answers: one that fell off the bus reads all ones.
    pub(super) fn answers(&self) -> Result<bool, Unknown> {
        Ok(self.at::<4>(0)?.ok_or_else(|| odd(""))? != [0xff; 4])
    }

    /// Fails if the function does not answer.
    fn must_answer(&self) -> Result<(), Unknown> {
        if self.at::<4>(0)? == Some([0xff; 4]) {
            let why = "configuration space reads all ones: the function does not answer";
            return Err(Unknown::Failed(why.to_owned()));
        }
        Ok(())
    }

    /// Returns the bytes at an offset; `None` if the file ends before.
    fn at<const N: usize>(&self, offset: u64) -> Result<Option<[u8; N]>, Unknown> {
        let mut bytes = [0; N];
        match self.file.read_exact_at(&mut bytes, offset) {
            Ok(()) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(io_unknown(&error)),
        }
    }
}

fn denied() -> Unknown {
    Unknown::Denied(NEEDS_ROOT.to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a configuration space with a PCIe capability of this type after another capability, and an ACS
    /// capability with this control register after another extended one.
    pub(crate) fn space(port_type: u8, acs_control: Option<u16>) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[..4].copy_from_slice(&[0xde, 0x10, 0x35, 0x23]);
        bytes[0x06] = 0x10;
        bytes[0x34] = 0x60;
        bytes[0x60..0x62].copy_from_slice(&[0x01, 0x78]);
        bytes[0x78..0x7b].copy_from_slice(&[0x10, 0x00, port_type << 4 | 0x2]);
        // 512 bytes of payload are possible, 256 are set, reads ask for 4096.
        (bytes[0x7c], bytes[0x80], bytes[0x81]) = (0x02, 0x20, 0x5a);
        bytes[0x100..0x104].copy_from_slice(&(0x148_u32 << 20 | 2 << 16 | 0x0001).to_le_bytes());
        if let Some(control) = acs_control {
            bytes[0x148..0x14c].copy_from_slice(&(1_u32 << 16 | 0x000d).to_le_bytes());
            bytes[0x14e..0x150].copy_from_slice(&control.to_le_bytes());
        }
        bytes
    }

    fn config(bytes: &[u8]) -> (tempfile::TempDir, Config) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        std::fs::write(&path, bytes).unwrap();
        let config = Config::open(&path).unwrap();
        (dir, config)
    }

    #[test]
    fn the_whole_space_gives_port_type_and_access_control() {
        for (number, port_type) in [
            (0, PortType::Other),
            (4, PortType::RootPort),
            (5, PortType::Upstream),
            (6, PortType::Downstream),
        ] {
            assert_eq!(config(&space(number, None)).1.port_type(), Ok(port_type));
        }
        assert_eq!(config(&space(6, Some(0x1d))).1.acs_redirect(), Ok(true));
        assert_eq!(config(&space(6, Some(0x11))).1.acs_redirect(), Ok(false));
        assert_eq!(config(&space(6, None)).1.acs_redirect(), Err(Unknown::Unsupported));
    }

    #[test]
    fn sizes_of_packets_are_read_and_reserved_ones_are_none() {
        let mut bytes = space(0, None);
        let packets = config(&bytes).1.packets().unwrap();
        assert_eq!(
            (packets.payload, packets.payload_possible, packets.read_request),
            (Ok(256), Ok(512), Ok(4096))
        );
        (bytes[0x7c], bytes[0x80], bytes[0x81]) = (0x00, 0xe0, 0x70);
        let packets = config(&bytes).1.packets().unwrap();
        assert_eq!(packets.payload_possible, Ok(128));
        assert!(packets.payload.is_err() && packets.read_request.is_err(), "{packets:?}");
        // The capability is cut off by the end of the file.
        assert_eq!(config(&bytes[..0x80]).1.packets(), Err(Unknown::Denied("needs root".into())));
    }

    #[test]
    fn without_root_only_the_header_is_there() {
        let (_dir, config) = config(&space(6, Some(0x1d))[..64]);
        assert_eq!(
            (config.answers(), config.packets()),
            (Ok(true), Err(Unknown::Denied("needs root".into())))
        );
        assert_eq!(config.port_type(), Err(Unknown::Denied("needs root".into())));
        assert_eq!(config.acs_redirect(), Err(Unknown::Denied("needs root".into())));
    }

    #[test]
    fn a_conventional_function_has_no_access_control() {
        assert_eq!(config(&space(0, None)[..256]).1.acs_redirect(), Err(Unknown::Unsupported));
    }

    #[test]
    fn broken_spaces_end() {
        let (_dir, dead) = config(&[0xff; 4096]);
        assert!(
            matches!(dead.port_type(), Err(Unknown::Failed(why)) if why.contains("does not answer"))
        );
        assert!(matches!(dead.acs_redirect(), Err(Unknown::Failed(_))));
        assert_eq!((dead.answers(), dead.packets().is_err()), (Ok(false), true));

        let mut bytes = space(6, None);
        bytes[0x61] = 0x60;
        bytes[0x100..0x104].copy_from_slice(&(0x100_u32 << 20 | 1).to_le_bytes());
        let (_dir, looping) = config(&bytes);
        assert!(matches!(looping.port_type(), Err(Unknown::Failed(why)) if why.contains("loop")));
        assert!(
            matches!(looping.acs_redirect(), Err(Unknown::Failed(why)) if why.contains("loop"))
        );

        let (_dir, empty) = config(&[]);
        assert_eq!(empty.port_type(), Err(Unknown::Unsupported));
        assert_eq!(empty.acs_redirect(), Err(Unknown::Denied("needs root".into())));
    }
}
