//! What programs will use between the GPUs.

use super::page::{Page, Paint};
use model::forecast::{AllReduceForecast, Engine, Forecast, PairsForecast, Runs, Transport};
use model::report::Report;
use model::units::{Bytes, MIB};

/// Most pairs that are named.
const SHOWN: usize = 4;

/// Columns of labels and texts.
const AT: (usize, usize) = (2, 16);

/// Writes the forecast, if there is one.
pub(super) fn write(page: &mut Page, report: &Report) {
    let Some(forecast) = &report.forecast else {
        return;
    };
    page.heading("Who will use what, by the rules of each program (not measured)");
    let nccl = &forecast.nccl;
    page.note(
        Paint::Strong,
        &format!(
            "NCCL {}, one process per GPU, one job on all GPUs{}",
            nccl.version,
            needs("; not known: ", &nccl.needs)
        ),
    );
    let pairs: usize = nccl.groups.iter().map(|group| group.pairs.len()).sum();
    for group in &nccl.groups {
        let label = transport(group.transport);
        let text = format!("{}{}", which(group, pairs), told(group));
        page.item(AT.0, AT.1, label, paint(group.transport), &text);
    }
    page.note(Paint::Strong, "All-reduce of their own");
    for engine in Engine::ALL {
        all_reduce(page, forecast, engine);
    }
}

fn transport(transport: Option<Transport>) -> &'static str {
    transport.map_or("not known", Transport::word)
}

const fn paint(transport: Option<Transport>) -> Paint {
    match transport {
        Some(Transport::Fails) => Paint::Error,
        _ => Paint::Strong,
    }
}

/// Returns the pairs of a group in a few words.
fn which(group: &PairsForecast, all: usize) -> String {
    let pairs = group.pairs.len();
    if pairs == all && pairs > 1 {
        return format!("all {pairs} pairs");
    }
    let named = group.pairs.iter().take(SHOWN);
    let named = named.map(|pair| format!("{}-{}", pair.source, pair.destination));
    let named: Vec<_> = named.collect();
    let more = match pairs.saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("GPUs {}{more}", named.join(", "))
}

/// Returns the protocols and what decides.
fn told(group: &PairsForecast) -> String {
    let protocols = match (group.transport, group.ll128) {
        (None | Some(Transport::Fails), _) => "",
        (_, Some(true)) => ", LL, LL128, Simple",
        (_, Some(false)) => ", LL, Simple",
        (_, None) => ", LL, Simple, perhaps LL128",
    };
    let one = match group.in_one_process {
        same if same == group.transport => String::new(),
        other => format!("; {} within one process", transport(other)),
    };
    let because = &group.because;
    let needs = needs(" Not known: ", &group.needs);
    format!("{protocols}: {because}{one}.{needs}")
}

fn needs(before: &str, needs: &[String]) -> String {
    match needs {
        [] => String::new(),
        needs => format!("{before}{}", needs.join("; ")),
    }
}

fn all_reduce(page: &mut Page, forecast: &Forecast, engine: Engine) {
    let of_engine = forecast.all_reduce.iter();
    let of_engine: Vec<_> = of_engine.filter(|one| one.engine == engine).collect();
    let alike = |one: &&AllReduceForecast, other: &&AllReduceForecast| {
        let of = |one: &AllReduceForecast| {
            (
                one.runs,
                one.up_to_bytes,
                one.because.clone(),
                one.needs.clone(),
                one.example.is_empty(),
            )
        };
        of(one) == of(other)
    };
    let mut label = engine.name();
    for run in of_engine.chunk_by(alike) {
        let sizes: Vec<_> = run.iter().map(|one| one.gpus.to_string()).collect();
        let Some(first) = run.first() else {
            continue;
        };
        let text = format!("{} GPUs: {}", sizes.join(", "), outcome(first));
        page.item(AT.0, AT.1, label, Paint::Strong, &text);
        label = "";
    }
}

fn outcome(one: &AllReduceForecast) -> String {
    let up_to = one
        .up_to_bytes
        .map_or_else(String::new, |bytes| format!(", messages below {}", size(bytes)));
    let runs = match one.runs {
        Some(Runs::Every) => format!("runs{up_to}: {}", one.because),
        Some(Runs::Some) => {
            let example: Vec<_> = one.example.iter().map(ToString::to_string).collect();
            format!(
                "runs with some, such as {}{up_to}; not with all: {}",
                example.join(" "),
                one.because
            )
        }
        Some(Runs::None) => format!("does not run: {}", one.because),
        None => format!("not known: {}", one.because),
    };
    let before = match one.runs {
        None => ". Needs ",
        Some(_) => ". Not tested here: ",
    };
    format!("{runs}{}", needs(before, &one.needs))
}

fn size(bytes: Bytes) -> String {
    match bytes.0.is_multiple_of(MIB) {
        true => bytes.to_string(),
        false => format!("{} MB", bytes.0 / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::Style;
    use super::super::text::lay_out;
    use super::*;
    use model::placement::Pair;

    fn group(pairs: u32, transport: Option<Transport>) -> PairsForecast {
        let pair = |destination| Pair { source: 0, destination };
        PairsForecast {
            pairs: (1..=pairs).map(pair).collect(),
            transport,
            in_one_process: transport,
            ll128: Some(false),
            because: "a fact".into(),
            needs: Vec::new(),
        }
    }

    #[test]
    fn pairs_that_are_alike_take_a_line() {
        let mut report = sample::healthy(8);
        let version = decide::Version::default();
        report.forecast = decide::forecast(&report, version).map(Box::new);
        let mut page = Page::new(true);
        write(&mut page, &report);
        let text = lay_out(&page, &Style::PLAIN);
        assert!(text.contains("all 28 pairs"), "{text}");
        assert!(text.lines().count() < 25, "{text}");
    }

    #[test]
    fn some_pairs_are_named_and_the_rest_is_counted() {
        let some = group(6, Some(Transport::Shm));
        assert_eq!(which(&some, 10), "GPUs 0-1, 0-2, 0-3, 0-4 and 2 more");
        assert_eq!(which(&group(1, None), 1), "GPUs 0-1");
        assert_eq!(told(&some), ", LL, Simple: a fact.");
        let mut unknown = group(1, None);
        unknown.ll128 = None;
        unknown.needs.push("something".into());
        assert_eq!(told(&unknown), ": a fact. Not known: something");
    }
}
