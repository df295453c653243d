//! The page's colors: a crate, a task and a phase have the same color in a picture as on the page, in
//! both themes. `colors.json` holds both to it, and `collector/ui/src/core/colors.ts` says why these.

use std::collections::BTreeMap;

use profiler_core::{Frame, FrameKind, Profile};

use crate::symbols::crate_of;

/// A color as red, green and blue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Rgb(pub(crate) u8, pub(crate) u8, pub(crate) u8);

impl Rgb {
    /// The color as `#rrggbb`.
    pub(crate) fn hex(self) -> String {
        let Rgb(red, green, blue) = self;
        format!("#{red:02x}{green:02x}{blue:02x}")
    }
}

/// A color in the light and in the dark theme.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Themed {
    pub(crate) light: Rgb,
    pub(crate) dark: Rgb,
}

/// Color of the root.
pub(crate) const ROOT: Themed = Themed {
    light: Rgb(226, 220, 212),
    dark: Rgb(58, 55, 52),
};
/// Color of frames that are neither functions, tasks nor phases.
const OTHER: Themed = Themed {
    light: Rgb(207, 201, 193),
    dark: Rgb(74, 71, 68),
};
/// Color of tasks that are none, such as `[no task]`.
const NO_TASK: Themed = Themed {
    light: Rgb(179, 173, 165),
    dark: Rgb(79, 76, 73),
};

const TASK_HUES: [f64; 8] = [135.0, 163.0, 192.0, 220.0, 249.0, 277.0, 306.0, 335.0];
const TASK_CHROMAS: [f64; 3] = [0.12, 0.08, 0.15];
const PHASE_HUES: [f64; 5] = [20.0, 38.0, 56.0, 74.0, 92.0];

/// The colors of a profile's frames.
#[derive(Debug)]
pub(crate) struct Palette<'a> {
    /// The index of each task's color.
    tasks: BTreeMap<&'a str, usize>,
}

impl<'a> Palette<'a> {
    /// Assigns colors to the tasks of a profile.
    pub(crate) fn of(profile: &'a Profile) -> Palette<'a> {
        let frames = profile.nodes().iter().map(|node| profile.frame(node.frame));
        Palette::of_tasks(
            frames
                .filter(|frame| frame.kind == FrameKind::Task)
                .map(|frame| frame.function),
        )
    }

    /// Assigns colors in sorted order: the first free one from the name's own hue on. All hues are used
    /// before a second color of one.
    fn of_tasks(names: impl Iterator<Item = &'a str>) -> Palette<'a> {
        const HUES: usize = TASK_HUES.len();
        const COLORS: usize = HUES * TASK_CHROMAS.len();
        let mut names: Vec<&str> = names.collect();
        // As the page sorts, by UTF-16.
        names.sort_by(|one, other| one.encode_utf16().cmp(other.encode_utf16()));
        names.dedup();
        let mut is_used = [false; COLORS];
        let mut tasks = BTreeMap::new();
        for name in names {
            let own = hash(name) as usize % HUES;
            let order = (0..COLORS).map(|at| at - at % HUES + (own + at) % HUES);
            let index = order
                .into_iter()
                .find(|index| !is_used[*index])
                .unwrap_or(own);
            is_used[index] = true;
            tasks.insert(name, index);
        }
        Palette { tasks }
    }

    /// The color of a frame.
    pub(crate) fn color(&self, frame: &Frame<&str>) -> Themed {
        match frame.kind {
            FrameKind::Task => self.task(frame.function),
            FrameKind::Phase => phase(frame.function),
            FrameKind::Function | FrameKind::Unresolved => of_crate(crate_of(frame)),
            _ => OTHER,
        }
    }

    /// The color of each node, after that of the root. Many nodes have the same frame.
    pub(crate) fn colors(&self, profile: &Profile) -> Vec<Themed> {
        let mut by_frame = vec![None; profile.symbols().frame_count() as usize];
        let colors = profile.nodes().iter().map(|node| {
            let color = &mut by_frame[node.frame.0 as usize];
            *color.get_or_insert_with(|| self.color(&profile.frame(node.frame)))
        });
        [ROOT].into_iter().chain(colors).collect()
    }

    fn task(&self, name: &str) -> Themed {
        if name.starts_with('[') {
            return NO_TASK;
        }
        let index = self.tasks.get(name).copied().unwrap_or_default();
        let hue = index % TASK_HUES.len();
        let step = index / TASK_HUES.len() % TASK_CHROMAS.len();
        let is_deep = (hue + step) % 2 == 1;
        let darker = if step == 2 { 0.06 } else { 0.0 };
        let shade = |deep: f64, high: f64| {
            let lightness = if is_deep { deep } else { high };
            oklch(lightness - darker, TASK_CHROMAS[step], TASK_HUES[hue])
        };
        Themed {
            light: shade(0.69, 0.8),
            dark: shade(0.42, 0.515),
        }
    }
}

fn of_crate(name: &str) -> Themed {
    let hue = f64::from(hash(name) % 360);
    let shift = f64::from(hash(&format!("{name}/")) % 5) * 0.012;
    Themed {
        light: oklch(0.8 + shift, 0.085, hue),
        dark: oklch(0.44 + shift, 0.085, hue),
    }
}

/// Steps of the scale of changes to each side of no change.
const CHANGE_SHADES: f64 = 6.0;

/// The color of a weight that changed: red if it grew, blue if it shrank.
pub(crate) fn change(before: f64, after: f64) -> Themed {
    let sum = before + after;
    let change = if sum > 0.0 {
        (after - before) / sum
    } else {
        0.0
    };
    let shade = (change * CHANGE_SHADES).round() / CHANGE_SHADES;
    let size = shade.abs().sqrt();
    let hue = if shade > 0.0 { 50.0 } else { 250.0 };
    let chroma = 0.14 * size;
    Themed {
        light: oklch(0.92 - 0.16 * size, chroma, hue),
        dark: oklch(0.36 + 0.2 * size, chroma, hue),
    }
}

fn phase(name: &str) -> Themed {
    let number = hash(name);
    let [light, dark, chroma, hue] = match name {
        "queue" => [0.9, 0.5, 0.1, 98.0],
        "serialize" => [0.64, 0.36, 0.08, 75.0],
        "deserialize" => [0.76, 0.44, 0.08, 85.0],
        "transfer" => [0.72, 0.5, 0.16, 25.0],
        "disk-read" => [0.82, 0.52, 0.13, 62.0],
        "disk-write" => [0.7, 0.42, 0.13, 62.0],
        "execute" => [0.84, 0.46, 0.03, 250.0],
        _ => {
            let hue = PHASE_HUES[(number >> 1) as usize % PHASE_HUES.len()];
            let is_even = number.is_multiple_of(2);
            [
                if is_even { 0.84 } else { 0.7 },
                if is_even { 0.5 } else { 0.41 },
                0.1,
                hue,
            ]
        }
    };
    Themed {
        light: oklch(light, chroma, hue),
        dark: oklch(dark, chroma, hue),
    }
}

/// FNV-1a over UTF-16, as JavaScript counts characters.
fn hash(name: &str) -> u32 {
    name.encode_utf16().fold(0x811c_9dc5, |sum, unit| {
        (sum ^ u32::from(unit)).wrapping_mul(0x0100_0193)
    })
}

/// An OKLCH color; the hue is in degrees. The constants are those of the definition of OKLab.
fn oklch(lightness: f64, chroma: f64, hue: f64) -> Rgb {
    let angle = hue.to_radians();
    let a = chroma * angle.cos();
    let b = chroma * angle.sin();
    let l = (lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
    let m = (lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
    let s = (lightness - 0.089_484_177_5 * a - 1.291_485_548 * b).powi(3);
    Rgb(
        byte(4.076_741_662_1 * l - 3.307_711_591_3 * m + 0.230_969_929_2 * s),
        byte(-1.268_438_004_6 * l + 2.609_757_401_1 * m - 0.341_319_396_5 * s),
        byte(-0.004_196_086_3 * l - 0.703_418_614_7 * m + 1.707_614_701 * s),
    )
}

/// One linear channel as a byte of sRGB.
fn byte(linear: f64) -> u8 {
    let part = if linear <= 0.003_130_8 {
        12.92 * linear
    } else {
        1.055 * linear.powf(1.0 / 2.4) - 0.055
    };
    (255.0 * part.clamp(0.0, 1.0)).round() as u8
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// Contents of `colors.json`, which the page's tests read, too.
    #[derive(Deserialize)]
    struct Colors {
        tasks: Vec<Named>,
        crates: Vec<Named>,
        phases: Vec<Named>,
    }

    /// A name with its colors in both themes, `#rrggbb`.
    #[derive(Deserialize)]
    struct Named {
        name: String,
        light: String,
        dark: String,
    }

    impl Named {
        fn check(&self, color: Themed) {
            assert_eq!(
                [color.light.hex(), color.dark.hex()],
                [self.light.as_str(), &self.dark],
                "{}",
                self.name
            );
        }
    }

    #[test]
    fn colors_are_those_of_the_page() {
        let Colors {
            tasks,
            crates,
            phases,
        } = serde_json::from_str(include_str!("../colors.json")).unwrap();
        let names = tasks.iter().map(|task| task.name.as_str());
        let palette = Palette::of_tasks(names.filter(|name| !name.starts_with('[')));
        tasks
            .iter()
            .for_each(|task| task.check(palette.task(&task.name)));
        crates.iter().for_each(|one| one.check(of_crate(&one.name)));
        phases.iter().for_each(|one| one.check(phase(&one.name)));
    }
}
