//! Plots the results of profilers with one time axis, as an HTML page or an SVG file.
//!
//! [`Source`] is a copy of a profiler's results; everything after it is a pure function.

mod caches;
mod color;
mod lanes;
mod page;
mod picture;
mod resources;
mod source;
mod tasks;
mod text;
mod time;

use std::path::{Path, PathBuf};

use self::picture::Picture;
use self::source::Source;
use super::cache_profiler::CacheProfiler;
use super::profiler::Profiler;
use super::resources::ResourceProfiler;

/// Writes the results of `profilers` to a file as plots, one below the other, with one time axis: a
/// page for `.html` or `.htm`, a picture for `.svg`. An existing file is replaced.
///
/// The page is a single file that loads nothing; its content security policy forbids it. In both
/// formats each task name has one color in all plots, and tooltips explain the element under the
/// pointer. The page can be zoomed. Past 20,000 rectangles the shortest tasks are drawn in groups; the
/// picture notes how many, and the table below it has exact sums.
///
/// # Errors
/// If the file name has another extension, or the file cannot be written.
///
/// ```no_run
/// use emberline_diagnostics::{CacheProfiler, Profiler, ResourceProfiler, visualize};
///
/// let tasks = Profiler::new();
/// let resources = ResourceProfiler::new();
/// let caches = CacheProfiler::bytes();
/// // … scopes of all three, and the work …
/// visualize(&[&tasks, &resources, &caches], "run.html")?;
/// # Ok::<(), emberline_diagnostics::VisualizeError>(())
/// ```
pub fn visualize(profilers: &[&dyn Plot], path: impl AsRef<Path>) -> Result<(), VisualizeError> {
    let path = path.as_ref();
    let extension = path
        .extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or_default();
    let is_page = ["html", "htm"]
        .iter()
        .any(|each| extension.eq_ignore_ascii_case(each));
    if !is_page && !extension.eq_ignore_ascii_case("svg") {
        return Err(VisualizeError::Extension { path: path.into() });
    }
    let sources: Vec<Source> = profilers.iter().map(|profiler| profiler.source()).collect();
    let picture = Picture::of(&sources);
    let text = if is_page {
        page::html(&picture)
    } else {
        picture.svg_file()
    };
    std::fs::write(path, text).map_err(|source| VisualizeError::Write {
        path: path.into(),
        source,
    })
}

/// A profiler that [`visualize`] can draw: [`Profiler`], [`ResourceProfiler`], [`CacheProfiler`].
pub trait Plot: sealed::Sealed {}

impl<P: sealed::Sealed> Plot for P {}

/// Why [`visualize`] wrote nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VisualizeError {
    /// The file name has no known extension.
    #[error("unknown extension of `{}`; expected .html, .htm or .svg", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("cannot write the plots to `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

mod sealed {
    pub trait Sealed {
        fn source(&self) -> super::source::Source;
    }
}

impl sealed::Sealed for Profiler {
    fn source(&self) -> Source {
        self.read(|results, omitted, observed| Source::Tasks {
            results: results.to_vec(),
            omitted,
            observed,
        })
    }
}

impl sealed::Sealed for ResourceProfiler {
    fn source(&self) -> Source {
        self.read(|results, omitted, observed| Source::Resources {
            results: results.to_vec(),
            omitted,
            observed,
        })
    }
}

impl sealed::Sealed for CacheProfiler {
    fn source(&self) -> Source {
        let metric_name = self.metric_name().to_owned();
        self.read(|results, counts, observed| Source::Caches {
            results: results.cloned().collect(),
            metric_name,
            counts,
            observed,
        })
    }
}
