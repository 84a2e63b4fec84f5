//! Long tables for database engines: they can repeat the queries of `fleet`, and make others. docs/fleet.md contains
//! the columns and the queries.

use std::fs::Permissions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::digest::Digest;
use super::model::{Fleet, Node};
use super::newest::newest;
use super::outliers::wide;
use super::sources::Gathered;
use super::summary::Point;

/// Writes the tables into a folder, and creates the folder if needed.
///
/// # Errors
///
/// Returns a sentence that names the file.
pub fn write(folder: &Path, gathered: &Gathered, fleet: &Fleet) -> Result<(), String> {
    std::fs::create_dir_all(folder)
        .map_err(|why| format!("cannot make the folder {}: {why}", folder.display()))?;
    let (digests, _) = newest(&gathered.digests);
    let rows: Vec<(&Node, &Digest)> = fleet.nodes.iter().zip(digests).collect();
    table(folder, "nodes", NODES, |to| {
        rows.iter().try_for_each(|(node, digest)| nodes(to, node, digest))
    })?;
    table(folder, "gpus", GPUS, |to| {
        rows.iter().try_for_each(|(node, digest)| gpus(to, node, digest))
    })?;
    table(folder, "links", LINKS, |to| {
        rows.iter().try_for_each(|(node, digest)| links(to, node, digest))
    })?;
    table(folder, "cells", CELLS, |to| {
        rows.iter().try_for_each(|(node, digest)| cells(to, node, digest))
    })?;
    table(folder, "findings", FINDINGS, |to| {
        rows.iter().try_for_each(|(node, _)| findings(to, node))
    })
}

/// Columns of the node table.
const NODES: &str = "node,verdict,file,started_at,machine,version,profile,cohort,signature,model,gpus,driver,cuda,kernel,\
                     vbios,links,topology,rack,tested,untested";
const GPUS: &str = "node,gpu,pci,uuid,serial,name,vbios,slot,link,link_possible";
const LINKS: &str = "node,upper,lower,kind,label,capacity_gbps,possible_gbps";
const CELLS: &str = "node,signature,probe,setup,class,bytes,source,destination,value,unit,percent";
const FINDINGS: &str = "node,code,severity,subject,message";

/// One value of a row.
enum Value<'a> {
    Text(&'a str),
    Number(f64),
    Count(u64),
    None,
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value<'_> {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

impl From<f64> for Value<'_> {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

fn table(
    folder: &Path,
    name: &str,
    columns: &str,
    rows: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), String> {
    let path = folder.join(format!("{name}.csv"));
    // The table of an earlier run stays as it is until this one is whole.
    let write = || {
        let mut file = tempfile::Builder::new()
            .prefix(".peerscope-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)?;
        let mut to = BufWriter::new(file.as_file_mut());
        writeln!(to, "{columns}")?;
        rows(&mut to)?;
        to.flush()?;
        drop(to);
        file.persist(&path).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|why: std::io::Error| format!("cannot write {}: {why}", path.display()))
}

/// Writes a row in RFC 4180 form; an unknown value is empty. A text that begins like a formula gets a `'` before it.
fn row<const N: usize>(to: &mut dyn Write, values: [Value<'_>; N]) -> std::io::Result<()> {
    for (at, value) in values.into_iter().enumerate() {
        if at > 0 {
            to.write_all(b",")?;
        }
        match value {
            Value::Text(text) => {
                // A spreadsheet would take such a text for a formula.
                let guard = if text.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
                if text.contains([',', '"', '\n', '\r']) || text.is_empty() {
                    write!(to, "\"{guard}{}\"", text.replace('"', "\"\""))?;
                } else {
                    write!(to, "{guard}{text}")?;
                }
            }
            Value::Number(number) => write!(to, "{number}")?,
            Value::Count(count) => write!(to, "{count}")?,
            Value::None => {}
        }
    }
    to.write_all(b"\n")
}

fn nodes(to: &mut dyn Write, node: &Node, digest: &Digest) -> std::io::Result<()> {
    let fact = |key: &str| Value::from(node.facts.get(key));
    row(
        to,
        [
            (&node.node).into(),
            super::digest::word(node.verdict).into(),
            (&node.file).into(),
            (&node.started_at).into(),
            (&node.machine).into(),
            (&digest.version).into(),
            node.profile.as_ref().into(),
            (node.cohort as u64).into(),
            (&node.signature).into(),
            fact("model"),
            fact("gpus"),
            digest.summary.driver_version.as_ref().into(),
            digest.summary.cuda_version.as_ref().into(),
            digest.summary.kernel_version.as_ref().into(),
            fact("vbios"),
            fact("links"),
            fact("topology"),
            fact("rack"),
            u64::from(node.tested).into(),
            u64::from(node.untested).into(),
        ],
    )
}

fn gpus(to: &mut dyn Write, node: &Node, digest: &Digest) -> std::io::Result<()> {
    digest.summary.gpus.iter().try_for_each(|gpu| {
        row(
            to,
            [
                (&node.node).into(),
                u64::from(gpu.index).into(),
                gpu.pci.as_ref().into(),
                gpu.uuid.as_ref().into(),
                gpu.serial.as_ref().into(),
                gpu.name.as_ref().into(),
                gpu.vbios.as_ref().into(),
                gpu.slot.as_ref().into(),
                gpu.link.as_ref().into(),
                gpu.link_possible.as_ref().into(),
            ],
        )
    })
}

fn links(to: &mut dyn Write, node: &Node, digest: &Digest) -> std::io::Result<()> {
    digest.summary.links.iter().try_for_each(|link| {
        row(
            to,
            [
                (&node.node).into(),
                (&link.upper).into(),
                (&link.lower).into(),
                (&link.kind).into(),
                (&link.label).into(),
                link.capacity_gbps.map(|rate| rate.0).into(),
                link.possible_gbps.map(|rate| rate.0).into(),
            ],
        )
    })
}

fn cells(to: &mut dyn Write, node: &Node, digest: &Digest) -> std::io::Result<()> {
    let kinds: Vec<_> = digest
        .summary
        .kinds
        .iter()
        .map(|kind| (kind, kind.what.setup(), kind.class.map(|class| class.to_string())))
        .collect();
    digest.summary.figures.iter().try_for_each(|figure: &Point| {
        let Some((kind, setup, class)) = kinds.get(usize::from(figure.kind)) else {
            return Ok(());
        };
        row(
            to,
            [
                (&node.node).into(),
                (&node.signature).into(),
                kind.what.probe().into(),
                setup.into(),
                class.as_ref().into(),
                kind.bytes.into(),
                figure.ends.gpus().map(|[source, _]| u64::from(source)).into(),
                figure.ends.gpus().map(|[_, destination]| u64::from(destination)).into(),
                figure.value.map(wide).into(),
                kind.what.unit().into(),
                figure.percent.map(wide).into(),
            ],
        )
    })
}

fn findings(to: &mut dyn Write, node: &Node) -> std::io::Result<()> {
    node.findings.iter().try_for_each(|found| {
        let (severity, subject) = (found.severity.to_string(), found.subject.to_string());
        row(
            to,
            [
                (&node.node).into(),
                (&found.code).into(),
                (&severity).into(),
                (&subject).into(),
                (&found.message).into(),
            ],
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_cannot_be_written_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let full = std::io::ErrorKind::StorageFull;
        table(folder.path(), "nodes", "a,b", |to| writeln!(to, "1,2")).unwrap();
        let failed = table(folder.path(), "nodes", "a,b", |to| {
            writeln!(to, "3,")?;
            Err(full.into())
        });
        assert!(failed.unwrap_err().starts_with("cannot write "));
        let path = folder.path().join("nodes.csv");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "a,b\n1,2\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn rows_are_quoted_where_they_must_be() {
        let mut text = Vec::new();
        row(
            &mut text,
            [
                "plain".into(),
                "a,b".into(),
                "say \"x\"\n".into(),
                Value::None,
                "".into(),
                0.1.into(),
                7_u64.into(),
                "=1+1".into(),
                "@x,y".into(),
                (-1.5).into(),
            ],
        )
        .unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "plain,\"a,b\",\"say \"\"x\"\"\n\",,\"\",0.1,7,'=1+1,\"'@x,y\",-1.5\n"
        );
    }

    #[test]
    fn every_row_of_every_table_has_its_columns() {
        let gathered =
            Gathered { digests: super::super::testing::fleet_of(3), ..Gathered::default() };
        let fleet = super::super::testing::assessed(&gathered);
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &gathered, &fleet).unwrap();
        for (name, least) in
            [("nodes", 3), ("gpus", 24), ("links", 24), ("cells", 168), ("findings", 0)]
        {
            let text = std::fs::read_to_string(folder.path().join(format!("{name}.csv"))).unwrap();
            let rows: Vec<usize> = text.lines().map(fields).collect();
            assert!(
                rows.len() > least && rows.iter().all(|fields| *fields == rows[0]),
                "{name}: {rows:?}"
            );
        }
    }

    /// Counts the fields of a line without line feeds.
    fn fields(line: &str) -> usize {
        let mut inside = false;
        1 + line
            .chars()
            .filter(|c| {
                inside ^= *c == '"';
                *c == ',' && !inside
            })
            .count()
    }
}
