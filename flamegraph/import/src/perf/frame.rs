//! Frames of stacks: `address symbol+0xoffset (module)`.

use profiler_core::{CodePlace, Frame, FrameKind};

/// The frame of a line; `None` if the line has none, such as a line with a source.
pub(super) fn frame(line: &str) -> Option<Frame<&str>> {
    // simpleperf has a tab behind the address.
    let address = line.split([' ', '\t']).next().filter(|word| is_hex(word));
    let rest = match address {
        Some(address) => line[address.len()..].trim(),
        // Without addresses, only a module tells a function from a source.
        None if line.ends_with(')') => line,
        None => return None,
    };
    let parts = parts(rest);
    if address.is_none() && parts.module.is_empty() {
        return None;
    }
    let inlined = parts.module == "inlined";
    // `perf script -F +dsoff` appends an offset to the module.
    let place = Offset::split(parts.module);
    let module = match place.name {
        "inlined" | "[unknown]" | "unknown" => "",
        path => path,
    };
    let function = Offset::split(parts.symbol).name;
    if function.is_empty() || function == "[unknown]" {
        let offset = place
            .number
            .map(|number| CodePlace::FileOffset(number).number());
        return Some(Frame {
            kind: FrameKind::Unresolved,
            module,
            offset: offset.unwrap_or(0),
            ..Frame::function("", "", 0)
        });
    }
    Some(Frame {
        module,
        inlined,
        ..Frame::function(function, "", 0)
    })
}

/// Whether a line that is not indented is a frame, as some texts on the web have them: `address symbol (module)`.
pub(super) fn is_bare(line: &str) -> bool {
    let (address, rest) = line.split_once([' ', '\t']).unwrap_or_default();
    is_hex(address) && rest.contains('(') && rest.ends_with(')')
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A name, and the number after `+0x` behind it.
struct Offset<'l> {
    name: &'l str,
    number: Option<u64>,
}

impl<'l> Offset<'l> {
    fn split(text: &'l str) -> Offset<'l> {
        match text.rsplit_once("+0x") {
            Some((name, digits)) if is_hex(digits) => Offset {
                name,
                number: u64::from_str_radix(digits, 16).ok(),
            },
            _ => Offset {
                name: text,
                number: None,
            },
        }
    }
}

struct Parts<'l> {
    symbol: &'l str,
    module: &'l str,
}

impl<'l> Parts<'l> {
    /// The parts of a text whose bracket opens here, without the closing one.
    fn split(open: &'l str, at: usize) -> Parts<'l> {
        Parts {
            symbol: open[..at].trim(),
            module: &open[at..].trim_start()[1..],
        }
    }
}

/// A symbol and the module in brackets behind it. Both may have blanks and brackets themselves:
/// `f(int (*)(int))+0x1 (/opt/my app (old)/a.so (deleted))`.
fn parts(text: &str) -> Parts<'_> {
    let whole = Parts {
        symbol: text,
        module: "",
    };
    let Some(open) = text.strip_suffix(')') else {
        return whole;
    };
    // Behind an offset, all is the module.
    let after_offset = open.match_indices("+0x").find_map(|(at, mark)| {
        let digits = &open[at + mark.len()..];
        let length = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
        let is_offset = length > 0 && digits[length..].starts_with(" (");
        is_offset.then_some(at + mark.len() + length)
    });
    if let Some(at) = after_offset {
        return Parts::split(open, at);
    }
    if open.starts_with('(') {
        return Parts::split(open, 0);
    }
    let of_path = [" (/", " (["]
        .iter()
        .filter_map(|start| open.find(start))
        .min();
    match of_path.or_else(|| open.rfind(" (")) {
        Some(at) => Parts::split(open, at),
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: [&str; 2]) {
        let frame = frame(line).unwrap_or_else(|| panic!("{line:?} is a frame"));
        assert_eq!([frame.function, frame.module], expected, "{line:?}");
    }

    #[test]
    fn names_of_functions_and_modules_stay_whole() {
        for symbol in [
            "f",
            "operator()(int) const",
            "std::vector<int, std::allocator<int> >::push_back(int const&)",
            "f(int (*)(int), char (&) [4])",
            "<impl Fn<(A,)> for F>::call",
            "lambda (copy) [clone .cold]",
            "a+0x",
            "main.(*T).run",
        ] {
            for module in [
                "/opt/a",
                "/opt/my app/a (1).so",
                "/opt/a.so (deleted)",
                "/memfd:jit (deleted)",
                "[kernel.kallsyms]",
                "[guest.kernel.kallsyms]",
                "//anon",
                "[vdso]",
            ] {
                check(&format!("55d0 {symbol}+0x1f ({module})"), [symbol, module]);
                check(&format!("55d0 {symbol} ({module})"), [symbol, module]);
                check(&format!("{symbol}+0x1f ({module})"), [symbol, module]);
                check(&format!("55d0 [unknown] ({module})"), ["", module]);
            }
            check(&format!("55d0 {symbol} (inlined)"), [symbol, ""]);
        }
        check("55d0", ["", ""]);
        check("55d0 f", ["f", ""]);
        check(
            "55d0\tArt::run(int*) const (/system/lib/libart.so)",
            ["Art::run(int*) const", "/system/lib/libart.so"],
        );
        check("55d0 f+0x12", ["f", ""]);
        check("55d0 (/opt/a)", ["", "/opt/a"]);
        check("55d0 [unknown] ([unknown])", ["", ""]);
        for source in ["main.c:12", "/opt/my app/main.c:12", "??:0"] {
            assert_eq!(frame(source), None, "{source}");
        }
    }

    #[test]
    fn offsets_in_modules_are_kept_for_code_without_a_name() {
        let unknown = frame("7f12 [unknown] (/lib/libc.so.6+0x26010)").unwrap();
        assert_eq!(unknown.module, "/lib/libc.so.6");
        assert_eq!(unknown.offset, CodePlace::FileOffset(0x2_6010).number());
        check(
            "7f12 read+0x10 (/lib/libc.so.6+0x26010)",
            ["read", "/lib/libc.so.6"],
        );
    }
}
