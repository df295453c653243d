//! Stable colors: the same name has the same color in every graph. Text on them is black, so all of
//! them are light.

use profiler_core::{Frame, FrameKind, Weight};

use crate::owner::owner;

/// A color as red, green and blue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rgb(pub(crate) u8, pub(crate) u8, pub(crate) u8);

/// Color of the root.
pub(crate) const ROOT: Rgb = Rgb(222, 222, 226);

/// Color of frames that are not functions: `[no task]`, `[truncated]` and similar.
const MARKER: Rgb = Rgb(201, 203, 209);

/// Minimum luminance: black text on it has a contrast of 7, the highest level of WCAG.
const LUMINANCE_MIN: f64 = 0.31;

/// Hue of Rust's standard libraries: a calm blue-gray, because they are everywhere and rarely the
/// point.
const LIBRARY_HUE: f64 = 215.0;

/// Color of a frame whose subtree weighs `total`. The hue identifies the crate, library or task,
/// the lightness the function; the larger the share of waiting, the paler.
pub(crate) fn color(frame: &Frame<&str>, total: Weight) -> Rgb {
    let label = frame.label();
    let (hue, saturation, lightness) = match frame.kind {
        FrameKind::Group | FrameKind::Task | FrameKind::Phase => (hue(&label), 0.78, 0.64),
        FrameKind::Agent | FrameKind::Thread => (265.0, 0.30, 0.74),
        FrameKind::Function => function(&label, frame),
        FrameKind::Unresolved => (hue(&owner(frame)), 0.25, 0.76),
        FrameKind::NoTask | FrameKind::Truncated | FrameKind::Overflow => return MARKER,
    };
    let waiting = total.wait_ns() as f64 / total.total_ns().max(1) as f64;
    // A task that only waits keeps its hue: it is what a reader looks for first.
    let fade = if frame.kind == FrameKind::Task { 0.15 } else { 0.55 };
    let saturation = saturation * (1.0 - fade * waiting);
    let lightness = lightness + (0.93 - lightness) * fade * waiting;
    // Blue and violet look darker than yellow of the same lightness.
    (0..12)
        .map(|step| from_hsl(hue, saturation, lightness + 0.02 * f64::from(step)))
        .find(|color| luminance(*color) >= LUMINANCE_MIN)
        .unwrap_or(MARKER)
}

fn function(label: &str, frame: &Frame<&str>) -> (f64, f64, f64) {
    // Adjacent siblings of one crate must differ.
    let lightness = 0.68 + (hash(label) % 9) as f64 * 0.012;
    match &*owner(frame) {
        "std" | "core" | "alloc" => (LIBRARY_HUE, 0.28, lightness),
        name if frame.file.is_empty() && !label.contains("::") => (hue(name), 0.35, lightness),
        name => (hue(name), 0.62, lightness),
    }
}

/// A hue in degrees that depends only on `name`.
fn hue(name: &str) -> f64 {
    (hash(name) % 360) as f64
}

/// FNV-1a with a final mix, because short names differ in their last bits only. Implemented here,
/// because the standard library's hashes may change between releases.
fn hash(name: &str) -> u64 {
    let sum = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (sum ^ (sum >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24
}

/// Relative luminance from 0 to 1, as WCAG defines it except for its linear toe.
fn luminance(Rgb(red, green, blue): Rgb) -> f64 {
    let linear = |byte: u8| (f64::from(byte) / 255.0).powf(2.2);
    0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)
}

/// Converts from hue in degrees, and saturation and lightness from 0 to 1.
fn from_hsl(hue: f64, saturation: f64, lightness: f64) -> Rgb {
    let chroma = (1.0 - (2.0 * lightness - 1.0).abs()) * saturation;
    let sector = hue / 60.0;
    let second = chroma * (1.0 - (sector % 2.0 - 1.0).abs());
    let (red, green, blue) = match sector as u32 {
        0 => (chroma, second, 0.0),
        1 => (second, chroma, 0.0),
        2 => (0.0, chroma, second),
        3 => (0.0, second, chroma),
        4 => (second, 0.0, chroma),
        _ => (chroma, 0.0, second),
    };
    let byte = |part: f64| ((part + lightness - chroma / 2.0) * 255.0).round() as u8;
    Rgb(byte(red), byte(green), byte(blue))
}

#[cfg(test)]
mod tests {
    use profiler_core::State;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn colors_never_change_and_waiting_is_paler() {
        let frame = Frame::function("faer::mul", "", 0);
        let busy = color(&frame, Weight::of(State::Cpu, 1));
        let idle = color(&frame, Weight::of(State::Sleep, 1));
        assert_eq!((busy, idle), (Rgb(133, 226, 220), Rgb(199, 223, 222)));
    }

    proptest! {
        #[test]
        fn black_text_is_readable_on_every_color(name: String, task: bool, wait in 0..2u64) {
            let frame = if task { Frame::task(&name) } else { Frame::function(&name, "", 0) };
            let color = color(&frame, Weight::of(State::Cpu, 1) + Weight::of(State::Lock, wait));
            prop_assert!((luminance(color) + 0.05) / 0.05 >= 7.0);
            prop_assert!(color != MARKER);
        }
    }
}
