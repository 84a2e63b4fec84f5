//! NCCL's topology as XML (`NCCL_TOPO_DUMP_FILE`): the PCIe link of each GPU and where its NVLinks lead.

use quick_xml::Reader as Xml;
use quick_xml::events::{BytesStart, Event};

use super::smi_xml::Document;
use crate::reader::{Ahead, Reader};
use crate::told::{Key, Notes};
use model::pcie::DEEPEST;
use model::reading::Reading;
use model::snapshot::NvLinkRemote;
use model::units::PciAddress;

pub(crate) const READER: Reader = Reader {
    kind: "nccl-xml",
    tool: "NCCL_TOPO_DUMP_FILE",
    begins: |line| line.starts_with("<system version="),
    read,
};

/// Most NVLinks of a GPU.
const MOST_LINKS: u8 = 36;

fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let value = tag.try_get_attribute(name).ok().flatten()?;
    Some(String::from_utf8_lossy(&value.value).into_owned())
}

/// What is above the current element.
#[derive(Debug, Clone, Default)]
struct Above {
    numa: Option<u32>,
    pci: Option<PciAddress>,
    /// Number of NVLinks of the GPU so far.
    links: u8,
}

fn read(ahead: Ahead<'_>, notes: &mut Notes) -> Option<usize> {
    let document = Document::of(ahead.lines, "</system>");
    let mut xml = Xml::from_str(&document.text);
    xml.config_mut().check_end_names = false;
    let mut path = vec![Above::default()];
    let before = notes.told.len();
    while let Ok(event) = xml.read_event() {
        let line = document.line(xml.buffer_position());
        match event {
            Event::Start(tag) => {
                let mut above = path.last().cloned().unwrap_or_default();
                take(&tag, &mut above, line, notes);
                path.push(above);
                if path.len() > DEEPEST {
                    break;
                }
            }
            Event::Empty(tag) => {
                if let Some(above) = path.last_mut() {
                    let mut here = above.clone();
                    take(&tag, &mut here, line, notes);
                    above.links = here.links;
                }
            }
            Event::End(_) => {
                path.pop();
            }
            Event::Eof => break,
            _ => {}
        }
    }
    notes.in_vain = document.used;
    (notes.told.len() > before).then_some(document.used)
}

fn take(tag: &BytesStart<'_>, above: &mut Above, line: u32, notes: &mut Notes) {
    match tag.name().as_ref() {
        b"cpu" => above.numa = attribute(tag, "numaid").and_then(|node| node.parse().ok()),
        b"pci" => {
            above.links = 0;
            let class = attribute(tag, "class").unwrap_or_default();
            let address = attribute(tag, "busid").and_then(|address| address.parse().ok());
            // NVLinks below anything else belong to a GPU whose line was broken.
            above.pci = address.filter(|_| class.starts_with("0x03"));
            let Some(address) = above.pci else {
                return;
            };
            let rate = attribute(tag, "link_speed").unwrap_or_default();
            let rate: Option<f64> = rate.split(' ').next().and_then(|rate| rate.parse().ok());
            let rates = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0];
            let generation =
                rates.iter().position(|known| rate.is_some_and(|rate| (known - rate).abs() < 0.1));
            let generation = generation.and_then(|place| u8::try_from(place + 1).ok());
            let width = attribute(tag, "link_width").and_then(|width| width.parse::<u8>().ok());
            let numa = above.numa;
            notes.gpu(line, &Key::Pci(address), |gpu| {
                gpu.pci = Reading::Known(address);
                // NCCL reads what both ends support together.
                if let Some(generation) = generation.and_then(|number| number.try_into().ok()) {
                    gpu.pcie_generation_max = Reading::Known(generation);
                }
                if let Some(width) = width.and_then(|number| number.try_into().ok()) {
                    gpu.pcie_width_max = Reading::Known(width);
                }
                if let Some(numa) = numa {
                    gpu.numa_node = Reading::Known(numa);
                }
            });
        }
        b"nvlink" => {
            let (Some(address), Some(count)) =
                (above.pci, attribute(tag, "count").and_then(|count| count.parse::<u8>().ok()))
            else {
                return;
            };
            let class = attribute(tag, "tclass").unwrap_or_default();
            let target = attribute(tag, "target").and_then(|target| target.parse().ok());
            for _ in 0..count.min(MOST_LINKS.saturating_sub(above.links)) {
                notes.link(line, &Key::Pci(address), above.links, |link| {
                    link.active = Reading::Known(true);
                    match class.as_str() {
                        "0x068000" => link.remote = Reading::Known(NvLinkRemote::Switch),
                        class if class.starts_with("0x03") => {
                            link.remote = Reading::Known(NvLinkRemote::Gpu);
                        }
                        _ => {}
                    }
                    if let Some(target) = target {
                        link.remote_pci = Reading::Known(target);
                    }
                });
                above.links += 1;
            }
        }
        _ => {}
    }
}
