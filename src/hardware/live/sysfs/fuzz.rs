//! Files of a broken kernel: empty, huge, binary, out of range, directories in place of files, links that lead nowhere
//! or round in circles.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;

use super::Sysfs;
use super::config::{Config, tests::space};
use super::fixture::Fixture;
use super::read::{hex, number, odd, text};
use fuzz::{self, Edit};
use model::reading::Unknown;

/// A machine's files, and the list of those that may be broken.
struct Machine {
    fixture: Fixture,
    files: Vec<(PathBuf, Vec<u8>)>,
}

thread_local! {
    static MACHINE: Machine = Machine::new();
}

impl Machine {
    fn new() -> Self {
        let fixture = Fixture::new();
        let port = "pci0000:00/0000:00:01.0";
        let gpu = "pci0000:00/0000:00:01.0/0000:01:00.0";
        fixture.function(port, 0x8086, 0x06_0400);
        fixture.function(gpu, 0x10de, 0x03_0200);
        fixture.function("pci0000:00/0000:00:02.0", 0x15b3, 0x02_0700);
        for path in [port, gpu] {
            fixture.pcie(path, ["16.0 GT/s PCIe", "32.0 GT/s PCIe"], ["8", "16"]);
            fixture.sys(&format!("devices/{path}/config"), space(4, Some(0x1d)));
            for (file, content) in [
                ("numa_node", "0\n"),
                ("power_state", "D0\n"),
                ("power/runtime_status", "active\n"),
                ("removable", "fixed\n"),
                ("resource", "0x0000000a00000000 0x0000000a0fffffff 0x000000000014220c\n"),
                ("resource0_resize", "000000000000ffc0\n"),
                ("aer_dev_correctable", "RxErr 3\nTOTAL_ERR_COR 3\n"),
                ("aer_dev_nonfatal", "TOTAL_ERR_NONFATAL 0\n"),
                ("aer_dev_fatal", "TOTAL_ERR_FATAL 0\n"),
            ] {
                fixture.sys(&format!("devices/{path}/{file}"), content);
            }
        }
        fixture.link("class/infiniband/mlx5_0/device", "bus/pci/devices/0000:00:02.0");
        fixture.sys("class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
        fixture.sys("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
        fixture.proc("cmdline", "root=/dev/sda1 iommu=pt\n");
        fixture.proc("self/cgroup", "0::/user.slice\n");
        fixture.sys("bus/pci/slots/7/address", "0000:01:00\n");
        fixture.sys("devices/system/node/node0/cpulist", "0-31\n");
        fixture.sys("devices/system/node/node0/meminfo", "Node 0 MemTotal:       1048576 kB\n");
        fixture.sys("kernel/iommu_groups/1/type", "DMA-FQ\n");
        fixture.sys("class/dmi/id/sys_vendor", "NVIDIA\n");
        fixture.sys("class/dmi/id/product_name", "DGX\n");
        fixture.proc("sys/kernel/osrelease", "6.8.0-45-generic\n");
        fixture.proc("sys/kernel/hostname", "node7\n");
        fixture.proc("cpuinfo", "model name\t: AMD EPYC 9654\nflags\t\t: fpu vme\n");
        fixture.proc("77/stat", "77 (a) b (c) S 12 77 77 0 -1\n");
        let root = fixture.root();
        let mut files = Vec::new();
        collect(root, &mut files);
        files.sort();
        Self { fixture, files }
    }

    /// Breaks files, reads everything, and restores them.
    fn read_with(&self, breaks: &[(usize, Break)]) -> Result<(), String> {
        for (file, how) in breaks {
            let (path, content) = &self.files[file % self.files.len()];
            how.apply(path, content);
        }
        let result = read_everything(&self.fixture.sysfs());
        for (file, _) in breaks {
            let (path, content) = &self.files[file % self.files.len()];
            remove(path);
            fs::write(path, content).unwrap();
        }
        result
    }
}

fn collect(folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            collect(&entry.path(), files);
        } else if kind.is_file() {
            files.push((entry.path(), fs::read(entry.path()).unwrap()));
        }
    }
}

fn remove(path: &Path) {
    if path.is_dir() && !path.is_symlink() { fs::remove_dir(path) } else { fs::remove_file(path) }
        .ok();
}

/// The way in which a file is broken.
#[derive(Debug, Clone)]
enum Break {
    Empty,
    Says(String),
    Edited(Vec<(u32, Edit)>),
    /// A number of KiB of one byte.
    Huge(u8, u16),
    Gone,
    IsAFolder,
    /// A link to itself.
    Loops,
    /// A link to a file without an end.
    Endless,
}

impl Break {
    fn apply(&self, path: &Path, content: &[u8]) {
        let link = |target: &Path| {
            remove(path);
            symlink(target, path).unwrap();
        };
        match self {
            Self::Empty => fs::write(path, b"").unwrap_or_default(),
            // A second break of the same file may find a folder or a loop there.
            Self::Says(text) => fs::write(path, text).unwrap_or_default(),
            Self::Edited(edits) => {
                fs::write(path, fuzz::edited(content, edits)).unwrap_or_default()
            }
            Self::Huge(byte, kib) => {
                fs::write(path, vec![*byte; usize::from(*kib) << 10]).unwrap_or_default()
            }
            Self::Gone => remove(path),
            Self::IsAFolder => {
                remove(path);
                fs::create_dir(path).unwrap();
            }
            Self::Loops => link(path),
            Self::Endless => link(Path::new("/dev/zero")),
        }
    }
}

/// Texts that kernels write, and texts that none should.
const SAYINGS: [&str; 30] = [
    "-1",
    "0",
    "63",
    "255",
    "256",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775809",
    "1e9",
    "NaN",
    "0x",
    "0xffffffffffffffff",
    "Unknown",
    "Unknown speed",
    "2.5 GT/s",
    "-16.0 GT/s PCIe",
    "1e308 GT/s PCIe",
    "inf GT/s",
    "GT/s",
    "TOTAL_ERR_COR -1",
    "TOTAL_ERR_COR 99999999999999999999",
    "Node 0 MemTotal: 99999999999999999999 kB",
    "Node 0 MemTotal: 18446744073709551615 kB",
    "0000:00:00.0",
    "ffffffff:ff:1f.7",
    "\u{1b}[2J\u{202e}<b>",
];

fn broken() -> impl Strategy<Value = Break> {
    prop_oneof![
        1 => Just(Break::Empty),
        5 => prop::sample::select(&SAYINGS[..]).prop_map(|text| Break::Says(text.to_owned())),
        2 => fuzz::evil().prop_map(Break::Says),
        4 => fuzz::edits(3).prop_map(Break::Edited),
        1 => (any::<u8>(), 1..64_u16).prop_map(|(byte, kib)| Break::Huge(byte, kib)),
        1 => Just(Break::Gone),
        1 => Just(Break::IsAFolder),
        1 => Just(Break::Loops),
        1 => Just(Break::Endless),
    ]
}

/// Reads everything of a machine and fails if the result is unreasonably large.
fn read_everything(sysfs: &Sysfs) -> Result<(), String> {
    let tree = sysfs.pci_tree();
    let host = sysfs.host(&Unknown::Unsupported);
    let address = "0000:01:00.0".parse().map_err(|error| format!("{error}"))?;
    let node = sysfs.numa_node(address);
    let parent = sysfs.parent_process(77);
    let said = format!("{tree:?} {host:?} {node:?} {parent:?}").len();
    if said > 400_000 { Err(format!("{said} bytes came of some files")) } else { Ok(()) }
}

#[test]
#[ignore = "scripts/fuzz runs it"]
fn fuzz_files_of_a_kernel() {
    let strategy = prop::collection::vec((any::<usize>(), broken()), 1..4);
    fuzz::run("sysfs, files", 0.5, &strategy, |breaks| {
        MACHINE.with(|machine| machine.read_with(&breaks))
    });
}

#[test]
#[ignore = "scripts/fuzz runs it"]
fn fuzz_configuration_space() {
    static BASE: LazyLock<Vec<u8>> = LazyLock::new(|| space(6, Some(0x1d)));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config");
    // Pointers and headers are at these offsets; most of the space is empty.
    let places = prop::sample::select(vec![
        0, 2, 6, 0x34, 0x60, 0x61, 0x78, 0x79, 0x7a, 0x100, 0x102, 0x103, 0x148, 0x14b, 0x14e,
    ]);
    let strategy = (
        prop::collection::vec((places, any::<u8>()), 0..8),
        prop_oneof![3 => Just(4096_usize), 1 => 0..4096_usize],
    );
    fuzz::run("sysfs, configuration space", 2.0, &strategy, |(bytes, length)| {
        let mut space = BASE.clone();
        for (place, byte) in bytes {
            space[place] = byte;
        }
        fs::write(&path, &space[..length]).unwrap();
        let config = Config::open(&path).map_err(|error| error.to_string())?;
        let _ = (config.port_type(), config.acs_redirect(), config.packets(), config.answers());
        Ok(())
    });
}

#[test]
#[ignore = "scripts/fuzz runs it"]
fn fuzz_small_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let saying = prop::sample::select(&SAYINGS[..]).prop_map(|text| text.as_bytes().to_vec());
    let strategy = (prop_oneof![saying, prop::collection::vec(any::<u8>(), 0..64)], fuzz::edits(2));
    fuzz::run("sysfs, one file", 2.0, &strategy, |(content, edits)| {
        fs::write(&path, fuzz::edited(&content, &edits)).unwrap();
        let _ = (number::<i64>(&path), number::<u8>(&path), hex(&path));
        let said = text(&path).unwrap_or_default();
        let why = odd(&said).to_string();
        if why.len() < 600 && why.is_ascii() { Ok(()) } else { Err(why) }
    });
}
