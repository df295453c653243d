//! Profilers' results as one picture with one time axis: a page that opens from disk, or an SVG.
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

/// Writes `profilers`' results to a file as plots, one below the other, with one time axis: `.html`
/// (or `.htm`) is a page, `.svg` a picture alone. What is there is replaced.
///
/// The page is one file that opens from disk: it loads nothing, and forbids itself to. In both,
/// tasks of one name have one colour, in the tasks' plot and in the caches', and what lies under the
/// pointer is explained. The page can be zoomed. So that it stays small, tasks are drawn together
/// where there are more than 20,000 to draw, the shortest first; the picture says how many, and the
/// table below it has exact sums.
///
/// # Errors
/// If the file's name ends otherwise, or it cannot be written.
///
/// ```no_run
/// use emberline_agent::diagnostics::{CacheProfiler, Profiler, ResourceProfiler, visualize};
///
/// let (tasks, resources) = (Profiler::new(), ResourceProfiler::new());
/// let caches = CacheProfiler::bytes();
/// // … scopes of the three, and the work …
/// visualize(&[&tasks, &resources, &caches], "run.html")?;
/// # Ok::<(), emberline_agent::diagnostics::VisualizeError>(())
/// ```
pub fn visualize(profilers: &[&dyn Plot], path: impl AsRef<Path>) -> Result<(), VisualizeError> {
    let path = path.as_ref();
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let is_page = ["html", "htm"].iter().any(|each| extension.eq_ignore_ascii_case(each));
    if !is_page && !extension.eq_ignore_ascii_case("svg") {
        return Err(VisualizeError::Extension { path: path.into() });
    }
    let sources: Vec<Source> = profilers.iter().map(|profiler| profiler.source()).collect();
    let picture = Picture::of(&sources);
    let text = if is_page { page::html(&picture) } else { picture.svg_file() };
    std::fs::write(path, text).map_err(|source| VisualizeError::Write { path: path.into(), source })
}

/// A profiler that [`visualize`] can draw: [`Profiler`], [`ResourceProfiler`], [`CacheProfiler`].
pub trait Plot: sealed::Sealed {}

impl<P: sealed::Sealed> Plot for P {}

/// Why [`visualize`] wrote nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VisualizeError {
    /// The file's name does not say which format is wanted.
    #[error("`{}` ends neither in .html nor in .svg: give it the ending of the format", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be written.
    #[error("could not write the plots to `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
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
        self.read(|results, omitted, watched| Source::Tasks {
            results: results.to_vec(),
            omitted,
            watched,
        })
    }
}

impl sealed::Sealed for ResourceProfiler {
    fn source(&self) -> Source {
        self.read(|results, omitted, watched| Source::Resources {
            results: results.to_vec(),
            omitted,
            watched,
        })
    }
}

impl sealed::Sealed for CacheProfiler {
    fn source(&self) -> Source {
        let metric_name = self.metric_name().to_owned();
        self.read(|results, counts, watched| Source::Caches {
            results: results.cloned().collect(),
            metric_name,
            counts,
            watched,
        })
    }
}
