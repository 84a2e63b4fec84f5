//! The kernel's log, if it may be read, and the messages of the NVIDIA driver about its GPUs in it.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use model::snapshot::{Xid, is_sxid};

/// Most bytes read from the kernel's log. Its buffer is smaller on all but odd machines.
const MOST: usize = 16 << 20;

/// Most messages kept; the oldest are dropped first. Chosen: a GPU that fails has some dozens of codes.
const MOST_XIDS: usize = 64;

/// Longest text kept of a message, characters.
const LONGEST: usize = 160;

/// Returns the records of the log, a line each: `priority,number,microseconds,flags;message`. Only root may read it on
/// most machines.
pub fn read(log: &Path) -> io::Result<String> {
    // Without O_NONBLOCK, the read at the end of the log would wait.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut log: File = OpenOptions::new().read(true).custom_flags(flags).open(log)?;
    let (mut text, mut record) = (Vec::new(), vec![0; 16 << 10]);
    while text.len() < MOST {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(&record[..count]),
            // The oldest records were overwritten meanwhile; reading continues with those that are left.
            Err(why) if why.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => {}
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            // The end of the log.
            Err(why) if why.kind() == ErrorKind::WouldBlock => break,
            // A log that was read only in part is no evidence about the rest.
            Err(why) => return Err(why),
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the messages of a log with their times since boot, microseconds.
pub fn messages(log: &str) -> impl Iterator<Item = (u64, &str)> {
    log.lines().filter_map(|line| {
        let (head, message) = line.split_once(';')?;
        Some((head.split(',').nth(2)?.parse().ok()?, message))
    })
}

/// Returns the last Xid message of each GPU and code, sorted by time.
pub fn xids<'a>(messages: impl Iterator<Item = (u64, &'a str)>) -> Vec<Xid> {
    let mut found: Vec<Xid> = Vec::new();
    for (microseconds, message) in messages {
        let Some(mut xid) = xid(message) else {
            continue;
        };
        xid.seconds_since_boot = Some(microseconds / 1_000_000);
        if let Some(before) = found.iter().position(|other| other.key() == xid.key()) {
            xid.times = found.remove(before).times.saturating_add(1);
        }
        found.push(xid);
    }
    found.split_off(found.len().saturating_sub(MOST_XIDS))
}

/// Parses `NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.` and
/// `nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up`, without their times. Old drivers leave
/// out `PCI:`, and people the name of the driver.
pub fn xid(message: &str) -> Option<Xid> {
    let (_, rest) = message.split_once("Xid (")?;
    let (address, rest) = rest.trim_start_matches("PCI:").split_once("): ")?;
    let pci = address.parse().or_else(|_| format!("{address}.0").parse()).ok()?;
    let (code, text) = rest.split_once(',').unwrap_or((rest, ""));
    let of_process = |part: &&str| ["pid=", "name=", "Ch "].iter().any(|key| part.starts_with(key));
    let text: Vec<_> = text
        .split(", ")
        .map(str::trim)
        .skip_while(|part| part.is_empty() || of_process(part))
        .collect();
    let text: String = text.join(", ").trim_end_matches('.').chars().take(LONGEST).collect();
    let code = code.trim().parse().ok()?;
    // A cut number would be another one.
    if is_sxid(code) != message.contains(": SXid (") {
        return None;
    }
    Some(Xid { pci, code, text, times: 1, seconds_since_boot: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "6,1,99,-;NVRM: loading NVIDIA UNIX Open Kernel Module\n\
        3,2,5000000,-;NVRM: Xid (PCI:0000:1b:00): 13, pid=7, name=python3, Graphics SM Warp Exception on (GPC 0)\n \
        SUBSYSTEM=pci\n\
        3,3,86400000000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n\
        3,4,86400100000,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n\
        3,5,86400200000,-;NVRM: Xid (PCI:0001:02:00): 31, pid=9, name=x, Ch 00000008, intr 10000000. MMU Fault\n\
        3,6,x,-;NVRM: Xid (PCI:0001:02:00): 48, without a time\n\
        3,7,9,-;NVRM: Xid (PCI:nowhere): 48, x\n3,8,9,-;NVRM: Xid (0000:1b:00): many\n";

    #[test]
    fn of_each_gpu_and_code_the_last_message_is_kept() {
        let found = xids(messages(LOG));
        let said: Vec<_> = found
            .iter()
            .map(|xid| {
                (
                    xid.pci.to_string(),
                    xid.code,
                    xid.text.as_str(),
                    xid.times,
                    xid.seconds_since_boot.unwrap(),
                )
            })
            .collect();
        assert_eq!(
            said,
            [
                ("0000:1b:00.0".into(), 13, "Graphics SM Warp Exception on (GPC 0)", 1, 5),
                ("0000:1b:00.0".into(), 79, "GPU has fallen off the bus", 2, 86400),
                ("0001:02:00.0".into(), 31, "intr 10000000. MMU Fault", 1, 86400),
            ]
        );
    }

    #[test]
    fn a_mild_error_of_an_nvlink_hides_no_fatal_one() {
        let log = "3,1,5000000,-;NVRM: Xid (PCI:0018:01:00): 145, RLW_REMAP Fatal XC0 i0 Link 04 (0x00000004 0x00000040)\n\
            3,2,6000000,-;NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)\n\
            3,3,7000000,-;NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)\n";
        let found = xids(messages(log));
        let said: Vec<_> = found.iter().map(|xid| (xid.nvlink(), xid.times)).collect();
        assert_eq!(said, [(Some(4), 1), (Some(13), 2)]);
    }

    #[test]
    fn a_log_that_never_ends_gives_no_more_than_a_few() {
        let many: Vec<_> =
            (0..1000).map(|code| format!("NVRM: Xid (PCI:0000:1b:00): {code}, x")).collect();
        let found = xids(many.iter().map(|message| (1, message.as_str())));
        assert_eq!((found.len(), found[0].code), (MOST_XIDS, 936));
    }

    #[test]
    fn a_log_that_is_not_there_is_an_error_and_an_empty_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(&folder.path().join("kmsg")).unwrap_err().kind(), ErrorKind::NotFound);
        std::fs::write(folder.path().join("kmsg"), "").unwrap();
        assert_eq!(read(&folder.path().join("kmsg")).unwrap(), "");
    }
}
