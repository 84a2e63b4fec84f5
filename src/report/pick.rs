//! The best GPUs of a report, for people and for a shell.

use super::escape::clean;
use diagnose::pick::Pick;
use model::rounding::rate;
use model::shell;

/// Returns the lines for a shell. UUIDs are used if all are known and plain: other programs split them at commas.
pub fn exports(pick: &Pick) -> String {
    let is_plain =
        |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let uuids = pick.uuids.clone().filter(|uuids| uuids.iter().all(is_plain));
    let devices = uuids.unwrap_or_else(|| pick.gpus.iter().map(u32::to_string).collect());
    format!(
        "export CUDA_DEVICE_ORDER=PCI_BUS_ID\nexport CUDA_VISIBLE_DEVICES={}\n",
        shell::word(&devices.join(","))
    )
}

/// Returns the text for people.
pub fn text(pick: &Pick) -> String {
    let gpus: Vec<String> = pick.gpus.iter().map(u32::to_string).collect();
    let mut lines = vec![format!("GPU {}", gpus.join(" "))];
    if let Some((pair, gbps)) = pick.slowest_pair.zip(pick.slowest_pair_gbps) {
        lines.push(format!("  slowest pair  {} GB/s ({pair}), measured", rate(gbps)));
    }
    for out in &pick.left_out {
        lines.push(format!("  left out      GPU {}: {}", out.gpu, clean(&out.why)));
    }
    format!("{}\n\n{}", lines.join("\n"), exports(pick))
}
