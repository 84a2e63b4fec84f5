//! Machines of any number of GPUs, for benchmarks and tests.

use std::fmt::Write;

/// Describes GPUs behind one plane of NVSwitches, four to a NUMA node.
pub(crate) fn description(gpus: u32) -> String {
    let mut text = format!("summary = \"{gpus} GPUs\"\nnuma_nodes = [\n");
    for node in 0..gpus.div_ceil(4) {
        writeln!(text, "{{ cpus = \"{}-{}\", memory = \"480GiB\" }},", 8 * node, 8 * node + 7)
            .unwrap();
    }
    text.push_str("]\npci = [\n");
    for gpu in 0..gpus {
        let (domain, node) = (0x100 + gpu, gpu / 4);
        let port =
            format!("address = \"{domain:04x}:00:00.0\", kind = \"root-port\", numa_node = {node}");
        let slot = format!("address = \"{domain:04x}:01:00.0\", parent = \"{domain:04x}:00:00.0\"");
        writeln!(text, "{{ {port}, max = \"Gen5 x16\" }},\n{{ {slot}, max = \"Gen5 x16\" }},")
            .unwrap();
    }
    text.push_str("]\n");
    for gpu in 0..gpus {
        let pci = format!("{:04x}:01:00.0", 0x100 + gpu);
        let nvlinks = "[{ count = 18, version = \"5.0\", remote = \"switch\" }]";
        writeln!(text, "[[gpus]]\nname = \"NVIDIA B200\"\npci = \"{pci}\"\nnvlinks = {nvlinks}")
            .unwrap();
    }
    text
}
