//! Lists of nodes in Slurm's notation: `node[001-003,7],gpu1`.

use std::collections::BTreeSet;

/// Most names in a list: a list is typed by hand or written by Slurm, and no cluster is larger. Chosen.
const MOST: usize = 1 << 20;

/// Returns the names of a list, in its order.
///
/// # Errors
///
/// Returns the defect of the list.
pub fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for part in parts(list)? {
        if !part.is_empty() {
            each(part, &mut names)?;
        }
    }
    Ok(names)
}

/// Splits a list at its line ends, and at the commas outside of brackets.
fn parts(list: &str) -> Result<Vec<&str>, String> {
    let (mut inside, mut start, mut parts) = (false, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '[' if inside => return Err(format!("'{list}' has a bracket within brackets")),
            '[' => inside = true,
            ']' if !inside => return Err(format!("'{list}' closes a bracket that is not open")),
            ']' => inside = false,
            c if !inside && (c == ',' || c.is_whitespace()) => {
                parts.push(&list[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    if inside { Err(format!("'{list}' does not close its bracket")) } else { Ok(parts) }
}

/// Adds the names of `r[1-2]n[01-04]`.
fn each(part: &str, names: &mut Vec<String>) -> Result<(), String> {
    let mut heads = vec![String::new()];
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('[') {
        let (inner, after) = after.split_once(']').unwrap_or((after, ""));
        let numbers = numbers(inner).map_err(|why| format!("'{part}' {why}"))?;
        if heads.len().saturating_mul(numbers.len()) + names.len() > MOST {
            return Err(format!("'{part}' makes more than {MOST} names"));
        }
        heads = heads
            .iter()
            .flat_map(|head| numbers.iter().map(move |number| format!("{head}{before}{number}")))
            .collect();
        rest = after;
    }
    names.extend(heads.into_iter().map(|head| head + rest));
    Ok(())
}

/// Returns the numbers of `001-003,7`, each as wide as the first of its range.
fn numbers(inner: &str) -> Result<Vec<String>, String> {
    let mut numbers = Vec::new();
    for range in inner.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<usize>()
                .ok()
                .filter(|_| digits)
                .ok_or_else(|| format!("has '{range}', which is no range"))
        };
        let (from, to) = (number(first)?, number(last)?);
        if to < from || to - from >= MOST {
            return Err(format!("has '{range}', which is no range"));
        }
        let width = first.len();
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

/// A name cut at its last number: `rack7-` `012` `.site`.
struct Cut<'a> {
    head: &'a str,
    digits: &'a str,
    tail: &'a str,
}

fn cut(name: &str) -> Cut<'_> {
    // A domain is not part of the numbering.
    let host = name.split_once('.').map_or(name, |(host, _)| host);
    let end = host.rfind(|c: char| c.is_ascii_digit()).map_or(host.len(), |at| at + 1);
    let start = host[..end].trim_end_matches(|c: char| c.is_ascii_digit()).len();
    Cut { head: &name[..start], digits: &name[start..end], tail: &name[end..] }
}

/// Returns the part before the last number of a name. Names of one rack share it if the rack's number comes before the
/// node's, such as `r7n` of `r7n012`.
pub fn head(name: &str) -> &str {
    cut(name).head
}

/// Returns names in Slurm's notation, each once and in order: `node[001-003,007]`.
pub fn fold<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: BTreeSet<&str> = names.into_iter().collect();
    let mut cuts: Vec<(Cut<'_>, Option<u64>)> = names
        .into_iter()
        .map(|name| {
            let cut = cut(name);
            let number = cut.digits.parse().ok();
            (cut, number)
        })
        .collect();
    cuts.sort_by(|(one, a), (other, b)| {
        (one.head, one.tail, a, one.digits).cmp(&(other.head, other.tail, b, other.digits))
    });
    let same = |one: &(Cut<'_>, _), other: &(Cut<'_>, _)| {
        one.0.head == other.0.head && one.0.tail == other.0.tail
    };
    let groups = cuts.chunk_by(same).map(|group| {
        let Cut { head, tail, digits } = &group[0].0;
        if group.len() == 1 {
            return format!("{head}{digits}{tail}");
        }
        let runs: Vec<_> = group.chunk_by(|one, next| follows(one, next)).map(run).collect();
        format!("{head}[{}]{tail}", runs.join(","))
    });
    groups.collect::<Vec<_>>().join(",")
}

/// Returns true if the second name continues a range that ends in the first: `09` and `10`, but not `9` and `010`.
fn follows((one, a): &(Cut<'_>, Option<u64>), (next, b): &(Cut<'_>, Option<u64>)) -> bool {
    let width = one.digits.len();
    let expected = a.and_then(|a| a.checked_add(1));
    expected.is_some()
        && expected == *b
        && expected.is_some_and(|number| format!("{number:0width$}") == next.digits)
}

fn run(run: &[(Cut<'_>, Option<u64>)]) -> String {
    match run {
        [first, .., last] => format!("{}-{}", first.0.digits, last.0.digits),
        run => run.iter().map(|(cut, _)| cut.digits).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(names: &[&str]) -> String {
        fold(names.iter().copied())
    }

    #[test]
    fn lists_are_read_as_slurm_writes_them() {
        for (list, names) in [
            ("node[001-003,7],gpu1", vec!["node001", "node002", "node003", "node7", "gpu1"]),
            ("r[1-2]n[09-10]-ib", vec!["r1n09-ib", "r1n10-ib", "r2n09-ib", "r2n10-ib"]),
            ("a, b\nc", vec!["a", "b", "c"]),
            ("", vec![]),
            ("n[8-11]", vec!["n8", "n9", "n10", "n11"]),
        ] {
            assert_eq!(expand(list).unwrap(), names, "{list}");
        }
    }

    #[test]
    fn a_list_that_makes_no_sense_says_why() {
        for list in [
            "n[1-",
            "n]1",
            "n[[1]]",
            "n[b-c]",
            "n[3-1]",
            "n[]",
            "n[1-99999999]",
            "n[1-2000]m[1-2000]",
            "n[+1]",
        ] {
            assert!(expand(list).is_err(), "{list}");
        }
    }

    #[test]
    fn names_are_folded_as_slurm_folds_them() {
        for (names, list) in [
            (&["node003", "node001", "node002", "node007"][..], "node[001-003,007]"),
            (&["n9", "n10", "n11"], "n[9-11]"),
            (&["n09", "n10", "n9"], "n[09,9-10]"),
            (&["login", "login"], "login"),
            (&["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
            (&["a1.site7.org", "a2.site7.org"], "a[1-2].site7.org"),
            (&["17", "18"], "[17-18]"),
            (&["knoten", "größe1", "größe2"], "größe[1-2],knoten"),
            (&[], ""),
        ] {
            assert_eq!(folded(names), list, "{names:?}");
        }
        assert_eq!(
            folded(&["n18446744073709551615", "n99999999999999999999"]).matches(',').count(),
            1
        );
    }

    #[test]
    fn what_is_folded_is_read_back() {
        let names: Vec<String> = (0..300)
            .step_by(7)
            .flat_map(|n| [format!("n{n:03}"), format!("n{n}"), format!("r{n}c{n}")])
            .collect();
        let all: BTreeSet<String> = names.iter().cloned().collect();
        let back: BTreeSet<String> =
            expand(&fold(names.iter().map(String::as_str))).unwrap().into_iter().collect();
        assert_eq!(back, all);
    }

    #[test]
    fn a_rack_is_what_stands_before_the_last_number() {
        assert_eq!((head("r7n012"), head("login"), head("é1x2")), ("r7n", "login", "é1x"));
    }
}
