//! `explain`: prints a rule's manual page, or a line for each rule.

use super::output;
use crate::cli::{Cli, ExplainArgs};
use diagnose::{RULES, Rule};
use model::finding::Severity;
use model::nearest::did_you_mean;
use report::Level;
use report::wrap::wrap;

/// Widest page: longer lines are hard to read.
const WIDEST: usize = 100;
/// The last lines of a list of rules.
const LEGEND: &str = "E error, W warning, i information. 'peerscope explain CODE' explains one, 'peerscope \
     explain WORD' lists those about a word.";
/// The first section of a page that only `--verbose` shows.
const DETAILS: &str = "\n# How it is detected";

/// Runs `explain`.
///
/// # Errors
///
/// There is no such code, and no page with the word.
pub(super) fn run(cli: &Cli, args: &ExplainArgs) -> Result<u8, String> {
    let width = output::style(cli.color, Level::Short).width;
    let text = match &args.code {
        None => format!("{}\n{}\n", list(|_| true, width), wrap(LEGEND, width, 0, 0).join("\n")),
        Some(word) => match diagnose::explain(word) {
            Some(page) if args.verbose => lay_out(&page, width),
            Some(page) => {
                let short = page.split_once(DETAILS).map_or(&*page, |(short, _)| short);
                lay_out(short, width) + "\nDetection, parameters and sources: --verbose.\n"
            }
            None => found(word, width)?,
        },
    };
    output::print(&text)?;
    Ok(0)
}

/// Lists the rules with a word in their code or page.
///
/// # Errors
///
/// There is none.
fn found(word: &str, width: usize) -> Result<String, String> {
    let lower = word.to_lowercase();
    let has =
        |rule: &Rule| rule.id.contains(&*lower) || rule.page().to_lowercase().contains(&*lower);
    match list(has, width) {
        list if !list.is_empty() && !lower.trim().is_empty() => Ok(list),
        _ => Err(match did_you_mean(word, RULES.iter().map(|rule| &*rule.id)) {
            meant if meant.is_empty() => {
                format!(
                    "there is no code '{word}', and no page has that word; 'peerscope explain' lists all"
                )
            }
            meant => format!("there is no code '{word}'{meant}"),
        }),
    }
}

/// Returns a line for each of these rules, below their topics.
fn list(is_wanted: impl Fn(&Rule) -> bool, width: usize) -> String {
    let mut text = String::new();
    for (topic, rules) in diagnose::by_topic() {
        let wanted: Vec<_> = rules.into_iter().filter(|rule| is_wanted(rule)).collect();
        if wanted.is_empty() {
            continue;
        }
        let longest = wanted.iter().map(|rule| rule.id.len()).max().unwrap_or_default();
        text += &format!("{}{topic}\n", if text.is_empty() { "" } else { "\n" });
        for rule in wanted {
            let severity = match rule.severity {
                Severity::Error => 'E',
                Severity::Warning => 'W',
                Severity::Info => 'i',
            };
            let begin = format!("  {:<longest$}  {severity}  ", &*rule.id);
            let room = width.saturating_sub(begin.len());
            text += &format!("{begin}{}\n", cut(rule.summary().trim_end_matches('.'), room));
        }
    }
    text
}

/// Cuts a sentence behind a word if it does not fit.
fn cut(sentence: &str, room: usize) -> String {
    if sentence.chars().count() <= room {
        return sentence.to_owned();
    }
    let end = sentence.char_indices().nth(room.saturating_sub(3)).map_or(0, |(at, _)| at);
    let kept = sentence[..end].rsplit_once(' ').map_or("", |(kept, _)| kept);
    format!("{}...", kept.trim_end_matches([',', ':']))
}

/// Lays a page of Markdown out in lines of this width: headings, paragraphs, lists, rows of tables.
fn lay_out(page: &str, width: usize) -> String {
    let (width, mut out, mut indent) = (width.min(WIDEST), String::new(), 0);
    for block in page.trim_end().split("\n\n") {
        if let Some(heading) = block.strip_prefix("# ") {
            out += &format!("{heading}\n");
            indent = 2;
            continue;
        }
        let begin = if block.starts_with('|') { "\n|" } else { "\n- " };
        for item in block.replace(begin, &format!("\n{begin}")).split("\n\n") {
            let hanging = if item.starts_with(['-', '|']) { indent + 2 } else { indent };
            let text = item.split_whitespace().collect::<Vec<_>>().join(" ");
            out += &(wrap(&text, width, indent, hanging).join("\n") + "\n");
        }
        out.push('\n');
    }
    out.trim_end().to_owned() + "\n"
}
