//! Names of C++ functions.

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

use crate::names::BoundedName;

/// The longest name that is read, in bytes: templates of templates have longer ones, which nobody reads.
const MANGLED_BYTES_MAX: usize = 4 << 10;
/// The longest name that is written. A short one may stand for one of gigabytes.
const NAME_BYTES_MAX: usize = 1 << 10;
/// Nested parts of a name, each of which takes some frames of the stack.
const NESTING_MAX: u32 = 64;

/// The name in the source, with template arguments and without the types of arguments and result; `None` if it is not
/// one of C++, or too long. Clones that the compiler made have the name of their function.
pub(crate) fn demangled(linkage_name: &str) -> Option<String> {
    let is_cpp = linkage_name.starts_with("_Z") && linkage_name.len() <= MANGLED_BYTES_MAX;
    let function = linkage_name.split('.').next().filter(|_| is_cpp)?;
    let parse = ParseOptions::default().recursion_limit(NESTING_MAX);
    let symbol = BorrowedSymbol::new_with_options(function.as_bytes(), &parse).ok()?;
    let options = DemangleOptions::new()
        .no_params()
        .no_return_type()
        .recursion_limit(NESTING_MAX);
    let mut name = BoundedName::new(NAME_BYTES_MAX);
    symbol.structured_demangle(&mut name, &options).ok()?;
    Some(name.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_argument_types() {
        for (mangled, expected) in [
            ("_Z6crunchd", Some("crunch")),
            ("_ZN4node5StartEiPPc", Some("node::Start")),
            ("_ZN4shop7hottestIdEET_S1_d", Some("shop::hottest<double>")),
            (
                "_ZN4shop7hottestIdEET_S1_d.constprop.0",
                Some("shop::hottest<double>"),
            ),
            (
                "_ZNSt6vectorIiSaIiEE9push_backEOi",
                Some("std::vector<int, std::allocator<int> >::push_back"),
            ),
            ("_ZN1AC2ERKS_", Some("A::A")),
            ("_ZplRK1AS1_", Some("operator+")),
            ("main", None),
            ("_Z", None),
            ("", None),
            ("_ZN4node5Start", None),
        ] {
            assert_eq!(demangled(mangled).as_deref(), expected, "{mangled}");
        }
    }

    /// Each level doubles what it stands for.
    #[test]
    fn a_name_that_grows_without_end_is_not_written() {
        let mut arguments = "1A".to_owned();
        for _ in 0..40 {
            arguments = format!("1BI{arguments}S_E");
        }
        let growing = format!("_Z1fI{arguments}Evv");
        let deep = format!("_Z1fI{}iEvv", "P".repeat(3_000));
        let long = format!("_ZN{}Ev", format!("10{}", "a".repeat(10)).repeat(300));
        let huge = format!("_Z5000{}v", "a".repeat(5_000));
        for mangled in [growing, deep, long, huge] {
            assert_eq!(demangled(&mangled), None, "{mangled:.40}");
        }
    }
}
