//! Writes the kernel's files of a machine: `fake-root MACHINE FOLDER`.

use std::path::Path;

use peerscope::hardware::sim::Simulated;

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [machine, folder] = arguments.as_slice() else {
        return Err("usage: fake-root MACHINE FOLDER".into());
    };
    let machine = Simulated::find(machine)?;
    fake_machine::sysfs::write(Path::new(folder), &machine.spec)
        .map_err(|error| format!("{folder}: {error}"))
}
