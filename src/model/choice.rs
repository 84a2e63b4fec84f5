//! Enums of which a user chooses a value by its name.

/// An enum whose values a user names.
pub trait Choice: Copy + PartialEq + Send + Sync + 'static {
    /// All of them, in the order of `--help`.
    const ALL: &'static [Self];

    /// Returns the name as it is written.
    fn name(self) -> &'static str;

    /// Returns what `--help` says of it.
    fn help(self) -> &'static str;
}

/// Declares such an enum, each value with its name. Its comment is what `--help` says.
#[macro_export]
macro_rules! choices {
    ($(#[$about:meta])* $choice:ident {
        $($(#[doc = $help:literal])+ $value:ident = $name:literal),* $(,)?
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $choice {
            $($(#[doc = $help])+ $value,)*
        }

        impl $crate::choice::Choice for $choice {
            const ALL: &'static [Self] = &[$(Self::$value),*];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)*
                }
            }

            fn help(self) -> &'static str {
                match self {
                    $(Self::$value => concat!($($help),+).trim().trim_end_matches('.'),)*
                }
            }
        }
    };
}
