//! The file in which a recording ends. Its extension decides the format, as for `emberline profile`.

use std::path::{Path, PathBuf};

use api::TimelineAnswer;

use crate::args::ProfileFormat;
use crate::client::{Client, Query};
use crate::command::{profile, report};
use crate::exit::BadInput;
use crate::format;
use crate::output::check_writable;

/// The file in which a recording ends.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum RecordedFile {
    /// A report, with its data next to it.
    Report { document: PathBuf, json: PathBuf },
    /// The data of a report.
    ReportData(PathBuf),
    /// A profile of CPU time.
    Profile(ProfileFormat, PathBuf),
}

/// Result of a recording.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// The file was written: a line about it.
    Written(String),
    /// No agent has sent anything.
    NoAgent,
}

impl RecordedFile {
    /// The file of this name.
    ///
    /// # Errors
    /// [`BadInput`] for stdout and for an unknown extension; the text has the known ones.
    pub(super) fn of(file: &Path) -> Result<RecordedFile, BadInput> {
        if file.as_os_str() == "-" {
            let text =
                "a report of `emberline record` is a file; expected a name such as report.html";
            return Err(BadInput(text.to_owned()));
        }
        let file = file.to_owned();
        Ok(match format::of_file(&file)? {
            ProfileFormat::Html => RecordedFile::Report {
                json: report::json_path(&file),
                document: file,
            },
            ProfileFormat::Json => RecordedFile::ReportData(file),
            format => RecordedFile::Profile(format, file),
        })
    }

    /// Checks that it can be written later.
    ///
    /// # Errors
    /// If it cannot.
    pub(super) fn check_writable(&self) -> anyhow::Result<()> {
        match self {
            RecordedFile::Report { document, json } => {
                check_writable(document)?;
                check_writable(json)
            }
            RecordedFile::ReportData(file) | RecordedFile::Profile(_, file) => check_writable(file),
        }
    }

    /// Writes what the collector has of a range. `program` is the command line of what ran.
    ///
    /// # Errors
    /// If the collector does not answer or the file cannot be written, and [`BadInput`] if a profile would be empty.
    pub(super) fn write(
        &self,
        client: &Client,
        range: Query,
        program: Option<&str>,
    ) -> anyhow::Result<Outcome> {
        let timeline: TimelineAnswer = client.get_json("timeline", &range)?;
        if !report::has_data(client, &timeline, &range)? {
            return Ok(Outcome::NoAgent);
        }
        let line = match self {
            RecordedFile::Report { document, json } => {
                let files = report::Files::DocumentAndJson(document, json);
                let written = report::write_whole(client, range, program, files)?;
                format!(
                    "wrote {} ({} bytes) and {}",
                    document.display(),
                    written.bytes,
                    json.display()
                )
            }
            RecordedFile::ReportData(file) => {
                report::write_whole(client, range, program, report::Files::Json(file))?;
                format!("wrote {}", file.display())
            }
            RecordedFile::Profile(format, file) => {
                let shown = file.display();
                if !profile::write_cpu_time(client, range, *format, file)? {
                    let text = format!(
                        "no thread was sampled on a CPU, so {shown} was not written; a report (-o report.html) also \
                         has waiting time"
                    );
                    return Err(BadInput(text).into());
                }
                format!("wrote {shown}")
            }
        };
        Ok(Outcome::Written(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_decides_the_format() {
        let of = |name: &str| RecordedFile::of(Path::new(name));
        let report = RecordedFile::Report {
            document: "a/b.HTML".into(),
            json: "a/b.json".into(),
        };
        assert_eq!(of("a/b.HTML").unwrap(), report);
        assert_eq!(
            of("b.json").unwrap(),
            RecordedFile::ReportData("b.json".into())
        );
        for (name, format) in [
            ("b.svg", ProfileFormat::Svg),
            ("b.collapsed", ProfileFormat::Collapsed),
            ("b.speedscope.json", ProfileFormat::Speedscope),
            ("b.pb.gz", ProfileFormat::Pprof),
        ] {
            let expected = RecordedFile::Profile(format, name.into());
            assert_eq!(of(name).unwrap(), expected, "{name}");
        }
        for name in ["-", "report", "b.png", "b.htmlx"] {
            let BadInput(text) = of(name).unwrap_err();
            assert!(text.contains("html"), "{name}: {text}");
            assert!(!text.contains("--format"), "{name}: {text}");
        }
    }
}
