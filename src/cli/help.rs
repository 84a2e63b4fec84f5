//! Order and headings of options, examples and exit codes, for help and manual pages.

use clap::{Arg, Command};

/// The options of all commands in their order, below their headings; those without one are first.
const OPTIONS: [(Option<&str>, &[&str]); 4] = [
    (
        None,
        &[
            "machine",
            "gpus",
            "length",
            "fail_fast",
            "profile",
            "only",
            "skip",
            "memory",
            "overlap_bytes",
            "serial",
            "kind",
            "nodes",
            "since",
            "history",
            "number",
            "show",
        ],
    ),
    (
        Some("Judgement"),
        &["expect", "baseline", "no_history", "config", "fail_on", "exit_contract"],
    ),
    (
        Some("Output"),
        &["figures", "verbose", "tree", "format", "shell", "output", "export", "textfile", "color"],
    ),
    (
        Some("Time limits, and interrupted runs"),
        &["deadline", "driver_deadline", "wait", "journal"],
    ),
];

/// Examples: the command, a command line, what it does.
const EXAMPLES: [(&str, &str, &str); 18] = [
    ("check", "peerscope check", "Test this machine"),
    ("check", "peerscope check --machine demo", "See how faults are reported"),
    ("check", "peerscope check --profile quick -o r.json", "2 s, and keep the report"),
    ("topo", "peerscope topo --tree", "See how the GPUs are connected"),
    ("topo", "peerscope topo -o before.json", "Keep all facts before a job"),
    ("topo", "peerscope topo --baseline before.json", "What changed during the job"),
    ("diagnose", "nvidia-smi topo -m | peerscope diagnose -", "Judge what a tool prints"),
    ("diagnose", "peerscope diagnose lspci.txt dmesg.txt", "Judge files of one machine"),
    ("diagnose", "peerscope diagnose report.json --figures", "Show a saved report"),
    ("soak", "peerscope soak --for 2h -o soak.html", "Accept a server"),
    ("soak", "peerscope soak --for 1d --fail-fast", "End at the first fault"),
    ("soak", "peerscope soak --for 90s --machine demo", "Try it without a GPU"),
    ("watch", "peerscope watch", "Follow the job that runs"),
    ("watch", "peerscope watch --for 30s -o job.json", "Report on 30 s of it"),
    ("watch", "peerscope watch --format json", "A line a second, for other programs"),
    ("fleet", "peerscope fleet reports/", "Reports of a folder"),
    ("fleet", "peerscope fleet reports/ -o fleet.html", "A page to look at"),
    ("fleet", "peerscope fleet reports/ --nodes 'n[01-64]'", "Which nodes are missing"),
];

/// The exit codes of commands that judge a machine, and their meanings.
const JUDGED: [(&str, &str); 5] = [
    ("0", "healthy"),
    ("1", "a fault was found"),
    ("2", "wrong usage or internal error"),
    ("3", "not everything could be tested"),
    ("130", "interrupted; the report has what was measured by then"),
];

/// Returns the examples of a command: command lines, and what they do.
pub(crate) fn examples(command: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let of = EXAMPLES.iter().filter(move |(name, ..)| *name == command);
    of.map(|(_, line, what)| (*line, *what))
}

/// Returns the exit codes of a command, and their meanings.
pub(crate) fn exit_codes(command: &Command) -> impl Iterator<Item = (&'static str, &'static str)> {
    let judges = command.has_subcommands()
        || command.get_arguments().any(|arg| ["fail_on", "tree"].contains(&arg.get_id().as_str()));
    let of = JUDGED.iter().filter(move |(code, _)| judges || ["0", "2"].contains(code));
    of.map(move |(code, what)| (*code, if judges || *code == "2" { *what } else { "done" }))
}

/// Puts an option in its place.
pub(crate) fn placed(arg: Arg) -> Arg {
    let places = OPTIONS.iter().flat_map(|(heading, ids)| ids.iter().map(move |id| (*heading, id)));
    let place = places.enumerate().find(|(_, (_, id))| arg.get_id() == **id);
    match place {
        _ if arg.is_positional() => arg,
        Some((at, (Some(heading), _))) => arg.display_order(at).help_heading(heading),
        Some((at, _)) => arg.display_order(at),
        None => arg.display_order(usize::MAX),
    }
}

/// Adds the examples of a command to its help.
pub(crate) fn with_examples(command: Command) -> Command {
    let examples: Vec<_> = examples(command.get_name()).collect();
    let Some(longest) = examples.iter().map(|(line, _)| line.len()).max() else { return command };
    let lines = examples.iter().map(|(line, what)| format!("\n  {line:<longest$}  {what}"));
    command.after_help(format!("Examples:{}", lines.collect::<String>()))
}
