//! NCCL's variables, as the environment of the check had them.

/// The variables that were set. `None` if they are not known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Variables<'a>(pub Option<&'a [String]>);

impl<'a> Variables<'a> {
    /// Returns the value of a variable.
    pub(crate) fn get(self, name: &str) -> Option<&'a str> {
        let set = self.0.unwrap_or_default();
        set.iter().find_map(|variable| {
            let (found, value) = variable.split_once('=')?;
            (found == name).then_some(value)
        })
    }

    /// Returns the number at the beginning of a value, 0 if there is none, as C's `strtoll` reads it; `None` if the
    /// variable is not set or empty, as NCCL then keeps its default.
    pub(crate) fn number(self, name: &str) -> Option<i64> {
        let value = self.get(name)?.trim_start();
        if value.is_empty() {
            return None;
        }
        let (sign, digits) = match value.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, value.strip_prefix('+').unwrap_or(value)),
        };
        let (digits, radix) = match (digits.get(..2), digits.starts_with('0')) {
            (Some("0x" | "0X"), _) => (&digits[2..], 16),
            (_, true) => (digits, 8),
            _ => (digits, 10),
        };
        let end = digits.find(|letter: char| !letter.is_digit(radix));
        let number = &digits[..end.unwrap_or(digits.len())];
        Some(sign * i64::from_str_radix(number, radix).unwrap_or(0))
    }

    /// Returns a variable as it was set.
    pub(crate) fn written(self, name: &str) -> String {
        format!("{name}={}", self.get(name).unwrap_or_default())
    }
}

/// NCCL's kinds of paths between GPUs, nearest first (src/graph/topo.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Level {
    Local,
    NvLink,
    /// NVLinks through a third GPU.
    Bridged,
    Pix,
    Pxb,
    Phb,
    Sys,
}

impl Level {
    /// Returns NCCL's word.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Local => "LOC",
            Self::NvLink => "NVL",
            Self::Bridged => "NVB",
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Sys => "SYS",
        }
    }

    /// Returns the level that a value of NCCL_P2P_LEVEL means: a word, or one of the old numbers. `None` if NCCL ignores it.
    pub(crate) fn of(value: &str) -> Option<Self> {
        const OLD: [Level; 6] =
            [Level::Local, Level::Pix, Level::Pxb, Level::Phb, Level::Sys, Level::Sys];
        let words =
            [Self::Local, Self::NvLink, Self::Bridged, Self::Pix, Self::Pxb, Self::Phb, Self::Sys];
        match value {
            // No two GPUs have these kinds of paths.
            "C2C" => return Some(Self::Bridged),
            "PXN" | "P2C" => return Some(Self::Pxb),
            _ => {}
        }
        let word = words.into_iter().find(|level| level.word() == value);
        word.or_else(|| {
            let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
            let old: usize = digits.parse().ok()?;
            OLD.get(old.min(OLD.len() - 1)).copied()
        })
    }
}

/// What NCCL_PROTO says of LL128.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Nothing: the default.
    Nothing,
    /// It is used on every path.
    Always,
    /// It is not used.
    Never,
    /// It depends on the collective.
    Depends,
}

/// Reads NCCL_PROTO: a list of what is used, or after `^` of what is not.
pub(crate) fn ll128(value: Option<&str>) -> Asked {
    let Some(value) = value.map(str::trim).filter(|value| !value.is_empty()) else {
        return Asked::Nothing;
    };
    if value.contains([':', ';']) {
        return Asked::Depends;
    }
    let (excluded, list) = match value.strip_prefix('^') {
        Some(list) => (true, list),
        None => (false, value),
    };
    let named = list.split(',').any(|word| word.trim().eq_ignore_ascii_case("ll128"));
    match (excluded, named) {
        (true, true) | (false, false) => Asked::Never,
        // What is not excluded is switched on everywhere, LL128 too.
        (true, false) | (false, true) => Asked::Always,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_nccl_reads_them() {
        let read = |value: &str| {
            let set = [format!("NCCL_X={value}")];
            Variables(Some(&set)).number("NCCL_X")
        };
        let cases = [
            ("1", Some(1)),
            ("", None),
            ("yes", Some(0)),
            ("-2", Some(-2)),
            ("0x10", Some(16)),
            ("1 # off", Some(1)),
            ("99999999999999999999", Some(0)),
        ];
        for (value, number) in cases {
            assert_eq!(read(value), number, "{value:?}");
        }
        assert_eq!(Variables(None).number("NCCL_X"), None);
    }

    #[test]
    fn words_and_old_numbers_are_levels() {
        let cases = [
            ("LOC", Some(Level::Local)),
            ("NVL", Some(Level::NvLink)),
            ("SYS", Some(Level::Sys)),
            ("0", Some(Level::Local)),
            ("2", Some(Level::Pxb)),
            ("9", Some(Level::Sys)),
            ("sys", None),
            ("", None),
            ("NET", None),
        ];
        for (value, level) in cases {
            assert_eq!(Level::of(value), level, "{value:?}");
        }
    }

    #[test]
    fn a_list_of_protocols_switches_ll128_on_or_off_everywhere() {
        let cases = [
            (None, Asked::Nothing),
            (Some("Simple"), Asked::Never),
            (Some("LL,ll128"), Asked::Always),
            (Some("^LL128"), Asked::Never),
            (Some("^LL"), Asked::Always),
            (Some("^LL128;allreduce:LL128"), Asked::Depends),
        ];
        for (value, asked) in cases {
            assert_eq!(ll128(value), asked, "{value:?}");
        }
    }
}
