//! Text that is cut, wrapped, quoted, coloured or broken.

use proptest::prelude::*;

use super::samples::ALL;
use super::*;
use model::reading::Reading;

fn read_text(text: &str) -> Result<Machine, String> {
    let input = Input { name: "in".to_owned(), text: text.to_owned(), ..Input::default() };
    read(&[input]).map_err(|why| why.to_string())
}

/// Returns everything but the places of lines.
fn said(machine: &Machine) -> (Snapshot, Option<Measurements>) {
    let mut snapshot = machine.snapshot.clone();
    // What is pasted around output is not understood, and said.
    snapshot.problems.clear();
    (snapshot, machine.measurements.clone())
}

/// What pasting does to a text and a reader must not see.
#[derive(Debug, Clone, Copy)]
enum Paste {
    Quoted,
    QuotedTwice,
    Fenced,
    Coloured,
    Windows,
    Spaces,
    OddSpaces,
    Indented,
    OfHost,
    OfRank,
    OfProcess,
    OfPod,
    OfContainer,
    InCode,
}

/// All kinds.
const ANY_PASTE: &[Paste] = &[
    Paste::Quoted,
    Paste::QuotedTwice,
    Paste::Fenced,
    Paste::Coloured,
    Paste::Windows,
    Paste::Spaces,
    Paste::OddSpaces,
    Paste::Indented,
    Paste::OfHost,
    Paste::OfRank,
    Paste::OfProcess,
    Paste::OfPod,
    Paste::OfContainer,
    Paste::InCode,
];

fn pasted(text: &str, how: Paste) -> String {
    let each = |with: &dyn Fn(&str) -> String| text.lines().map(with).collect::<String>();
    match how {
        Paste::Quoted => each(&|line| format!("> {line}\n")),
        Paste::QuotedTwice => each(&|line| format!("> > {line}\n")),
        Paste::Fenced => format!("Here it is:\n\n```text\n{text}```\n\nregards\n"),
        Paste::Coloured => each(&|line| format!("\u{1b}[1;32m{line}\u{1b}[0m\u{1b}[K\n")),
        Paste::Windows => each(&|line| format!("{line}\r\n")),
        Paste::Spaces => text.replace('\t', "        "),
        Paste::OddSpaces => text.replace(' ', "\u{a0}"),
        Paste::OfHost => each(&|line| format!("gpu-01: {line}\n")),
        Paste::OfRank => each(&|line| format!("[0] {line}\n")),
        Paste::OfProcess => each(&|line| format!("[1,0]<stdout>:{line}\n")),
        Paste::OfPod => each(&|line| format!("[pod/gpu-x7k2p/main] {line}\n")),
        Paste::OfContainer => each(&|line| format!("worker-1  | {line}\n")),
        Paste::InCode => each(&|line| format!("`{line}`\n")),
        Paste::Indented => each(&|line| format!("    {line}\n")),
    }
}

#[test]
fn what_pasting_adds_changes_nothing_that_is_read() {
    use Paste::Indented;
    for (kind, text) in ALL {
        let plain = said(&read_text(text).unwrap());
        for how in ANY_PASTE.iter().copied() {
            // A tree and a command line are told by where they begin.
            if matches!((how, *kind), (Indented, "smi-p2p-read")) {
                continue;
            }
            let again = read_text(&pasted(text, how)).map(|machine| said(&machine));
            assert!(again.as_ref() == Ok(&plain), "{kind}, {how:?}");
        }
    }
}

/// Returns each known fact of a machine as text.
fn facts(machine: &Machine) -> Vec<String> {
    let snapshot = serde_json::to_value(&machine.snapshot).unwrap();
    let mut found = Vec::new();
    for (gpu, at) in snapshot["gpus"].as_array().unwrap().iter().zip(0..) {
        for (key, value) in gpu.as_object().unwrap() {
            let plain = value.is_string() || value.is_number() || value.is_boolean();
            if plain && key != "index" {
                found.push(format!("{at} {key} {value}"));
            }
        }
    }
    let cells = machine.measurements.iter().flat_map(|measured| &measured.peer);
    found.extend(
        cells.map(|cell| format!("{} {:?} {:?}", cell.pair, cell.setup, cell.achieved_gbps)),
    );
    found
}

#[test]
fn a_text_that_was_cut_after_a_line_says_no_more_than_the_whole() {
    for (kind, text) in ALL {
        let whole = facts(&read_text(text).unwrap());
        let lines: Vec<&str> = text.lines().collect();
        for end in 1..lines.len() {
            let part = lines[..end].join("\n") + "\n";
            let Ok(machine) = read_text(&part) else {
                continue;
            };
            // Access decides which way a copy took, and a higher generation may follow.
            let more: Vec<String> = facts(&machine)
                .into_iter()
                .filter(|fact| {
                    !whole.contains(fact)
                        && !fact.contains("pcie_generation ")
                        && *kind != "p2p-bandwidth"
                })
                .collect();
            assert_eq!(more, [""; 0], "{kind}, {end} lines");
        }
    }
}

#[test]
fn a_text_whose_head_was_cut_says_no_more_than_the_whole() {
    for (kind, text) in ALL {
        let whole = facts(&read_text(text).unwrap());
        let lines: Vec<&str> = text.lines().collect();
        for start in 1..lines.len() {
            let Ok(machine) = read_text(&lines[start..].join("\n")) else {
                continue;
            };
            // Without the first GPU, the others have other numbers.
            let bare = |facts: &[String]| -> Vec<String> {
                let of_gpu = |fact: &String| fact.split_once(' ').map(|(_, fact)| fact.to_owned());
                facts.iter().filter_map(of_gpu).collect()
            };
            let (part, known) = (bare(&facts(&machine)), bare(&whole));
            let more: Vec<&String> = part.iter().filter(|fact| !known.contains(fact)).collect();
            let is_other =
                matches!(*kind, "p2p-bandwidth" | "lspci" | "smi-p2p-read" | "simple-p2p");
            assert!(more.is_empty() || is_other, "{kind}, from line {start}: {more:?}");
        }
    }
}

/// Breaks lines as a terminal of this width does.
fn wrapped(text: &str, width: usize) -> String {
    let wrap = |line: &str| {
        let chars: Vec<char> = line.chars().collect();
        let parts = chars.chunks(width).map(|part| part.iter().collect::<String>());
        parts.collect::<Vec<_>>().join("\n") + "\n"
    };
    text.lines().map(wrap).collect()
}

#[test]
fn matrices_that_a_terminal_broke_are_read_whole() {
    let gpus = 16;
    let names: Vec<String> = (0..gpus).map(|gpu| format!("GPU{gpu}")).collect();
    let row = |own: usize| {
        let cells = (0..gpus).map(|other| if own == other { " X   " } else { " NV12" });
        format!("GPU{own:<3}{}  0-63\n", cells.collect::<String>())
    };
    let topo = format!("       {}\n{}", names.join(" "), (0..gpus).map(row).collect::<String>());
    let number =
        |row: usize, column: usize| format!("{:6.2} ", 20.0 + (row * gpus + column) as f64 / 100.0);
    let line = |row: usize| {
        format!("{row:6} {}\n", (0..gpus).map(|column| number(row, column)).collect::<String>())
    };
    let head: String = (0..gpus).map(|column| format!("{column:6} ")).collect();
    let rates = format!(
        "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D{head}\n{}",
        (0..gpus).map(line).collect::<String>()
    );
    for text in [&topo, &rates] {
        let plain = said(&read_text(text).unwrap());
        for width in [66, 72, 80, 100, 118] {
            let again = read_text(&wrapped(text, width)).map(|machine| said(&machine));
            let counts = |(snapshot, measured): &(Snapshot, Option<Measurements>)| {
                let peer = measured.as_ref().map_or(0, |measured| measured.peer.len());
                (snapshot.bonds.len(), snapshot.gpus.len(), peer)
            };
            assert!(
                again.as_ref() == Ok(&plain),
                "{width}: {:?} {:?}",
                again.as_ref().map(counts),
                counts(&plain)
            );
        }
    }
}

#[test]
fn lines_that_a_terminal_broke_say_nothing_else() {
    // A GPU whose line was broken is not there: the next one has its number.
    let unnumbered = |machine: &Machine| {
        let facts = facts(machine).into_iter();
        facts.map(|fact| fact.split_once(' ').unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    for (kind, text) in ALL {
        let machine = read_text(text).unwrap();
        let mut whole = unnumbered(&machine);
        // Without its bridge, the link of a function is one of its GPU.
        for function in &machine.snapshot.pci {
            let facts = [
                ("pcie_width", function.width.get().map(|lanes| lanes.number())),
                ("pcie_generation", function.generation.get().map(|number| number.number())),
                ("pcie_width_max", function.width_max.get().map(|lanes| lanes.number())),
                (
                    "pcie_generation_device_max",
                    function.generation_max.get().map(|number| number.number()),
                ),
            ];
            let known =
                facts.iter().filter_map(|(key, value)| Some(format!("{key} {}", (*value)?)));
            whole.extend(known);
        }
        for width in 60..=140 {
            let Ok(machine) = read_text(&wrapped(text, width)) else {
                continue;
            };
            let mut more = unnumbered(&machine);
            more.retain(|fact| !whole.contains(fact));
            // A name whose end is in the next line.
            let is_part = |fact: &String| {
                let start = fact.trim_end_matches('"');
                start.starts_with("name \"N") && whole.iter().any(|known| known.starts_with(start))
            };
            more.retain(|fact| !is_part(fact));
            // Access decides which way a copy took.
            let has_ways = matches!(*kind, "simple-p2p" | "p2p-bandwidth");
            more.retain(|fact| !(has_ways && fact.contains("Setup")));
            assert_eq!(more, [""; 0], "{kind}, {width} columns");
        }
    }
}

#[test]
fn nothing_is_known_that_the_input_does_not_say() {
    for (kind, text) in ALL {
        let machine = read_text(text).unwrap();
        let reasons = serde_json::to_value(&machine.snapshot).unwrap();
        let unknown = reasons["host"]["unknown"].as_object();
        for (key, why) in unknown.into_iter().flatten() {
            assert_eq!(why, "not read: not in the input", "{kind}, {key}");
        }
        for gpu in &machine.snapshot.gpus {
            // The table has them.
            assert!(
                *kind == "smi-table" || !matches!(&gpu.ecc_uncorrected, Reading::Known(_)),
                "{kind}"
            );
        }
        assert!(!machine.pasted.missing.is_empty(), "{kind}");
    }
}

#[test]
fn odd_input_is_read_without_harm() {
    let long = "GPU0 ".repeat(100_000);
    let brackets = "{\"nvbandwidth\": ".to_owned() + &"[".repeat(100_000);
    let many: String =
        (0..3000).map(|gpu| format!("GPU {gpu}: NVIDIA X (UUID: GPU-{gpu:08x}-1)\n")).collect();
    let switches = "-[0000:00]-+-01.0-[01-ff]--".repeat(2000);
    let loops = "00:01.0 PCI bridge: X\n\tBus: primary=00, secondary=00, subordinate=ff\n";
    for text in [
        "",
        "\n",
        "\0",
        "GPU0",
        "GPU0\nGPU0",
        &long,
        &brackets,
        &many,
        &switches,
        loops,
        "   D\\D",
        "| NVIDIA-SMI |",
    ] {
        let _ = read_text(text);
    }
    assert!(read_text(&many).unwrap_err().contains("3000 GPUs"));
}

#[test]
fn sections_that_begin_in_every_line_end() {
    let begins = [
        "{\"nvbandwidth\": {",
        "GPU 00000000:3B:00.0",
        "# nThread 1 nGpus 2 minBytes 8",
        "\tGPU0\tGPU1\tCPU Affinity",
        "   D\\D     0      1",
    ];
    for line in begins {
        // Without a bound this takes minutes for each of them: the time limit of the whole run is the guard.
        let _ = read_text(&format!("{line}\n").repeat(10_000));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pasting_several_times_changes_nothing_that_is_read(
        base in 0..ALL.len(),
        how in proptest::collection::vec(proptest::sample::select(ANY_PASTE), 1..5),
    ) {
        let (kind, text) = ALL[base];
        // A tree and a command line are told by where they begin.
        let fits = |paste: &&Paste| !matches!((paste, kind), (Paste::Indented, "smi-p2p-read"));
        // Nobody numbers lines twice, or those of a host; a rank has one tag; three backticks are a fence.
        let times = |is_it: fn(&Paste) -> bool| how.iter().filter(|paste| is_it(paste)).count();
        prop_assume!(times(|paste| matches!(paste, Paste::InCode)) < 2);
        prop_assume!(times(|paste| matches!(paste, Paste::OfHost)) < 2);
        prop_assume!(times(|paste| matches!(paste, Paste::OfRank | Paste::OfProcess)) < 2);
        let again = how.iter().filter(fits).fold(text.to_owned(), |text, how| pasted(&text, *how));
        let said_again = read_text(&again).map(|machine| said(&machine));
        prop_assert!(said_again == Ok(said(&read_text(text).unwrap())), "{}, {:?}\n{}", kind, how, again);
    }

    #[test]
    fn broken_text_is_read_without_harm(base in 0..ALL.len(), edits in fuzz::edits(6)) {
        let text = fuzz::edited(ALL[base].1.as_bytes(), &edits);
        let _ = read_text(&String::from_utf8_lossy(&text));
    }
}

#[test]
#[ignore = "scripts/fuzz runs it"]
fn fuzz_pasted_text() {
    let strategy = (0..ALL.len(), 0..ALL.len(), fuzz::edits(8));
    fuzz::run("pasted, text", 0.5, &strategy, |(one, other, edits)| {
        let both = [ALL[one].1, ALL[other].1].concat();
        let text = fuzz::edited(both.as_bytes(), &edits);
        match read_text(&String::from_utf8_lossy(&text)) {
            Ok(machine) => serde_json::to_string(&machine.snapshot)
                .map(drop)
                .map_err(|error| error.to_string()),
            Err(why) => fuzz::assert_is_sentence(&format!("x {why}")),
        }
    });
}

#[test]
fn what_is_more_than_a_machine_says_is_refused_with_the_line() {
    // Only the memory of what is kept is bounded, so that the text is small and what it says is large.
    let functions: String = (0..400_000)
        .map(|n| format!("{:04x}:{:02x}:{:02x}.0 A: B\n", n / 8192, n / 32 % 256, n % 32))
        .collect();
    let why = read_text(&functions).unwrap_err();
    assert!(why.contains("says more than a machine has, up to line "), "{why}");
    let why = read_text(&"\n".repeat(2_000_001)).unwrap_err();
    assert!(why.contains("more than 2000000 lines"), "{why}");
    let names: String = (0..20_100)
        .map(|n| {
            format!("[ 1.0] NVRM: GPU at PCI:0000:3b:00: GPU-{n:08x}-0000-0000-0000-000000000000\n")
        })
        .collect();
    let why = read_text(&names).unwrap_err();
    assert!(why.contains("more than 20000 names of GPUs, up to line "), "{why}");
}

#[test]
fn what_was_cut_off_is_a_problem() {
    let input =
        Input { name: "log.gz".to_owned(), text: super::samples::QUERY.to_owned(), is_cut: true };
    let machine = read(&[input]).unwrap();
    assert_eq!(machine.snapshot.problems, ["log.gz was cut off, or cannot be unpacked"]);
}

#[test]
fn a_line_of_buses_without_end_is_read_without_harm() {
    let line = "-[0000:00]-".to_owned() + &"-01.0-[01-ff]".repeat(5000);
    let _ = read_text(&(line + "\n"));
}
