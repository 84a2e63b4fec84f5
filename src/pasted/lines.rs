//! Text as people paste it → lines as a tool printed them: without colours, quotes, fences, tables of Markdown, and without the
//! tags of ranks, pods and hosts, with tabs and other spaces alike. All readers see lines as they come out here.

use std::borrow::Cow;

/// A line of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// Its number in the input, from 1.
    pub number: u32,
    /// Its text, without what pasting added.
    pub text: Cow<'a, str>,
}

impl Line<'_> {
    /// Removes what stands before this place. What it stood before may have been pasted before.
    fn cut(&mut self, at: usize) {
        self.text = match std::mem::take(&mut self.text) {
            Cow::Borrowed(text) => cleaned(text.get(at..).unwrap_or_default()),
            Cow::Owned(text) => {
                Cow::Owned(cleaned(text.get(at..).unwrap_or_default()).into_owned())
            }
        };
    }
}

/// Longest line that is looked at, bytes. What tools print in a line is far shorter; the rest is cut.
const LONGEST: usize = 1 << 16;

/// Splits a text into lines and removes what pasting added.
pub(crate) fn lines(text: &str) -> Vec<Line<'_>> {
    // A serial console may end lines with CR alone.
    let is_serial = !text.contains('\n') && text.matches('\r').count() > 2;
    let all = text.split(if is_serial { '\r' } else { '\n' }).zip(1..);
    let cleaned = all.map(|(line, number)| Line { number, text: cleaned(line) });
    let mut lines: Vec<Line<'_>> = cleaned.collect();
    without_pipes(&mut lines);
    without_hosts(&mut lines);
    lines
}

/// Makes plain rows of Markdown's tables: a rule of dashes and pipes, the line above it, and those below.
fn without_pipes(lines: &mut [Line<'_>]) {
    let is_rule = |text: &str| {
        text.matches('|').count() > 1
            && text.contains("--")
            && text.chars().all(|c| "|-: ".contains(c))
    };
    let mut inside = false;
    for at in 0..lines.len() {
        let below = lines.get(at + 1).is_some_and(|next| is_rule(&next.text));
        let Some(line) = lines.get_mut(at) else { break };
        inside = line.text.contains('|') && (inside || below);
        if inside {
            let is_rule = is_rule(&line.text);
            let plain = if is_rule { String::new() } else { line.text.replace('|', " ") };
            line.text = Cow::Owned(plain);
        }
    }
}

/// Fewest lines behind the name of one host.
const FEWEST_OF_HOST: usize = 3;

/// Removes the name of a host that a remote shell puts in front of each line: `node1: GPU0  X`.
fn without_hosts(lines: &mut [Line<'_>]) {
    let host = |text: &str| {
        let (name, behind) = text.trim_start().split_once(": ")?;
        let is_host = name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.contains(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
            && !name.starts_with("nvidia-")
            && !is_name(name);
        is_host.then_some(text.len() - behind.len() - 2)
    };
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let Some(length) = host(&line.text) else {
            at += 1;
            continue;
        };
        let name = line.text.get(..length + 1).unwrap_or_default().to_owned();
        let of_host = |line: &&mut Line<'_>| line.text.starts_with(&name);
        let run = lines.iter_mut().skip(at).take_while(of_host).collect::<Vec<_>>();
        at += run.len().max(1);
        if run.len() >= FEWEST_OF_HOST {
            for line in run {
                // The space behind the name belongs to it, others to the line.
                let has_space =
                    line.text.get(name.len()..).is_some_and(|rest| rest.starts_with(' '));
                line.cut(name.len() + usize::from(has_space));
            }
        }
    }
}

fn cleaned(line: &str) -> Cow<'_, str> {
    let mut line = line.trim_end_matches(['\r', ' ']);
    if line.len() > LONGEST {
        let end = (0..=LONGEST).rfind(|at| line.is_char_boundary(*at));
        line = &line[..end.unwrap_or(0)];
    }
    let odd = |c: char| c.is_control() || (!c.is_ascii() && c.is_whitespace());
    let line = match without_colours(line) {
        plain if plain.contains(odd) => Cow::Owned(without_escapes(&plain)),
        plain => plain,
    };
    match line {
        Cow::Borrowed(line) => without_tags(line),
        Cow::Owned(line) => Cow::Owned(without_tags(&line).into_owned()),
    }
}

/// Removes what stands around the line of a tool: marks of quotations and code, tags of ranks, pods and containers. A record
/// of the journal becomes its message.
fn without_tags(mut line: &str) -> Cow<'_, str> {
    loop {
        line = without_quotes(line).trim_end();
        let start = line.trim_start();
        if start.starts_with("```") || start.starts_with("~~~") {
            return Cow::Borrowed("");
        }
        if let Some(rest) = start.strip_prefix('`').or_else(|| start.strip_prefix("- ")) {
            line = rest.trim_end_matches('`');
            continue;
        }
        if start.starts_with("{\"") && line.contains("\"MESSAGE\":") {
            return message(start).map_or(Cow::Borrowed(line), Cow::Owned);
        }
        let is_rank =
            |tag: &str| !tag.is_empty() && tag.bytes().all(|c| c.is_ascii_digit() || c == b',');
        let tagged = start.strip_prefix('[').and_then(|line| line.split_once(']'));
        let bare = match tagged {
            // A tag in front of each part of a row: `[0] 8 2 float sum -1[0] 16.1`.
            Some((tag, rest))
                if is_rank(tag)
                    && ["0", "1"].iter().any(|c| rest.contains(&format!("{c}[{tag}]"))) =>
            {
                return Cow::Owned(rest.replace(&format!("[{tag}]"), " "));
            }
            // `[0] `, `[1,0]<stdout>:`
            Some((tag, "")) if is_rank(tag) => Some(""),
            Some((tag, rest)) if is_rank(tag) => {
                rest.strip_prefix("<stdout>:").or_else(|| rest.strip_prefix(' '))
            }
            // `[pod/name/container] `
            Some((tag, rest)) if tag.contains('/') && !tag.contains(' ') => {
                rest.is_empty().then_some("").or_else(|| rest.strip_prefix(' '))
            }
            // `name-1  | ` of containers that were started together.
            _ => start.split_once(" |").and_then(|(name, rest)| {
                let fits = is_container(name.trim_end());
                fits.then(|| rest.strip_prefix(' ').unwrap_or(rest))
            }),
        };
        match bare {
            Some(rest) => line = rest,
            None => return Cow::Borrowed(line),
        }
    }
}

fn is_container(name: &str) -> bool {
    name.contains(['-', '_'])
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Returns the message of a record of `journalctl -o json`, as the kernel's log has it.
fn message(record: &str) -> Option<String> {
    let record: serde_json::Value = serde_json::from_str(record).ok()?;
    let text = record.get("MESSAGE")?.as_str()?;
    let time = ["_SOURCE_MONOTONIC_TIMESTAMP", "__MONOTONIC_TIMESTAMP"];
    let time = time.iter().find_map(|key| record.get(key)?.as_str()?.parse::<u64>().ok());
    let text = text.replace('\n', " ");
    let kernel = record.get("SYSLOG_IDENTIFIER").is_some_and(|name| name == "kernel");
    Some(match time.filter(|_| kernel) {
        Some(time) => format!("[{}.{:06}] {text}", time / 1_000_000, time % 1_000_000),
        None => text,
    })
}

/// Removes colours whose escape was lost on the way: `[4m`, `[1;32m`, `[0m`.
fn without_colours(line: &str) -> Cow<'_, str> {
    if !["[0m", "[0;0m", "[m"].iter().any(|end| line.contains(end)) || line.contains('\u{1b}') {
        return Cow::Borrowed(line);
    }
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('[') {
        plain.push_str(&rest[..at]);
        let inside = &rest[at + 1..];
        let behind = inside.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        // `[mem 0x…]` is no colour.
        rest =
            behind.strip_prefix('m').filter(|_| !inside.starts_with("mem")).unwrap_or_else(|| {
                plain.push('[');
                inside
            });
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

/// Removes the marks of a quotation, `> ` once for each level.
fn without_quotes(mut line: &str) -> &str {
    while let Some(rest) = line.trim_start().strip_prefix('>') {
        line = rest.strip_prefix(' ').unwrap_or(rest);
    }
    line
}

/// Removes escape sequences of terminals and other control characters, and makes each tab and odd space a plain one.
fn without_escapes(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => match rest.next() {
                // A control sequence ends with a letter or one of @ [ \ ] ^ _ ` { | } ~ (ECMA-48).
                Some('[') => while rest.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
                // A command ends with a bell or with escape and backslash.
                Some(']') => while rest.next().is_some_and(|c| c != '\u{7}' && c != '\\') {},
                _ => {}
            },
            '\u{8}' => drop(plain.pop()),
            // A terminal writes over the line from its start.
            '\r' => plain.clear(),
            c if c.is_whitespace() => plain.push(' '),
            c if c.is_control() => {}
            c => plain.push(c),
        }
    }
    plain
}

/// Returns true for the name of a GPU or of a network adapter in a matrix.
pub(crate) fn is_name(word: &str) -> bool {
    let numbered = |start: &str| {
        let rest = word.strip_prefix(start).unwrap_or_default();
        !rest.is_empty() && rest.len() < 4 && rest.bytes().all(|byte| byte.is_ascii_digit())
    };
    numbered("GPU") || numbered("NIC") || numbered("mlx5_") || numbered("mlx4_")
}

/// Returns the command of a line that a shell printed: after a prompt, or after `+` as `set -x` prints it.
pub(crate) fn command(line: &str) -> Option<&str> {
    let line = line.trim();
    if let Some(traced) = line.strip_prefix("+ ") {
        return Some(traced.trim());
    }
    let bare = ["nvidia-smi ", "lspci ", "dmesg", "./", "sudo ", "CUDA_VISIBLE_DEVICES="];
    if bare.iter().any(|start| line.starts_with(start)) {
        return Some(line);
    }
    // `user@host:~$ command`, `[root@host ~]# command`, `$ command`.
    let at = line.bytes().take(LONGEST_PROMPT).position(|c| matches!(c, b'$' | b'#' | b'%'))?;
    let (prompt, rest) = line.split_at(at);
    let command = rest[1..].trim();
    let is_prompt = prompt.is_empty() || prompt.contains('@') || prompt.ends_with([' ', ']']);
    (is_prompt && !command.is_empty()).then_some(command)
}

/// Longest prompt of a shell.
const LONGEST_PROMPT: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str) -> Vec<String> {
        lines(text).iter().map(|line| line.text.clone().into_owned()).collect()
    }

    #[test]
    fn what_pasting_adds_is_removed() {
        let pasted = "```text\r\n> > GPU0\tX\n\u{1b}[1;32mGPU1\u{1b}[0m\u{a0}NV18  \n>quoted\n```\n\u{1b}]0;title\u{7}end";
        assert_eq!(clean(pasted), ["", "GPU0 X", "GPU1 NV18", "quoted", "", "end"]);
        assert_eq!(lines("a\nb")[1].number, 2);
        assert_eq!(clean("12%\r100% done"), ["100% done"]);
        let long = "é".repeat(100_000);
        assert!(clean(&long)[0].len() <= LONGEST);
    }

    #[test]
    fn commands_are_found_after_prompts() {
        for (line, wanted) in [
            ("root@node1:~# nvidia-smi topo -p2p r", Some("nvidia-smi topo -p2p r")),
            ("[me@node ~]$ lspci -vv", Some("lspci -vv")),
            ("$ dmesg", Some("dmesg")),
            ("+ nvidia-smi topo -p2p w", Some("nvidia-smi topo -p2p w")),
            ("nvidia-smi topo -m", Some("nvidia-smi topo -m")),
            ("GPU0  X  NV18", None),
            ("  NV#  = Connection traversing a bonded set of # NVLinks", None),
            ("$", None),
        ] {
            assert_eq!(command(line), wanted, "{line}");
        }
    }
}
