//! `emberline resources`

use std::collections::BTreeSet;

use api::ResourcesAnswer;

use crate::args::{ResourcesArgs, ResourcesFormat, word};
use crate::client::{Client, Query};
use crate::command::report::{self, Part, Scope};
use crate::command::{range_query, rows};
use crate::format;
use crate::output::{json_line, put, say, say_wrapped};
use crate::view::View as _;

pub(crate) fn run(args: &ResourcesArgs) -> anyhow::Result<()> {
    let file = args.output.file();
    let format = format::choose(args.format, file)?;
    let client = Client::new(&args.url.url)?;
    if format == ResourcesFormat::Html {
        let scope = Scope::of(&args.range, Some("resources"));
        return report::write_parts(&client, &scope, file, |same_range| {
            // The ranges of several runs differ.
            let is_one = args.and_run.is_empty();
            let range = if is_one {
                same_range.clone()
            } else {
                range_query(&args.range)
            };
            vec![Part {
                name: "resources",
                path: "resources",
                query: query(range, args),
            }]
        });
    }
    let query = query(range_query(&args.range), args);
    if matches!(format, ResourcesFormat::Csv | ResourcesFormat::Parquet) {
        if format != ResourcesFormat::Csv {
            rows::reject_terminal(&word(format), file, &format!("resources.{}", word(format)))?;
        }
        return rows::write(
            &client,
            "resources",
            &query.with("format", word(format)),
            file,
        );
    }
    let body = client.get("resources", &query)?.body;
    if format == ResourcesFormat::Json {
        return put(file, &json_line(body));
    }
    let mut answer: ResourcesAnswer = client.parse(&body)?;
    once_per_machine(&mut answer);
    let are_hidden = args.measure.is_empty() && hide_limits(&mut answer);
    answer.notes().iter().for_each(|note| say_wrapped(note));
    if are_hidden {
        say("limits are hidden; --measure host_cpus shows one");
    }
    put(file, answer.text().as_bytes())
}

fn query(range: Query, args: &ResourcesArgs) -> Query {
    range
        .with_each("run", &args.and_run)
        .with_each("measure", &args.measure)
        .with_each("step", &args.step)
        .with_each("align", args.align.then_some("true"))
}

/// Removes limits, and returns whether there were any.
fn hide_limits(answer: &mut ResourcesAnswer) -> bool {
    let total = answer.series.len();
    answer.series.retain(|series| !is_limit(&series.measure));
    answer.series.len() < total
}

/// Whether a measure is a limit of another one.
fn is_limit(measure: &str) -> bool {
    measure.ends_with("_max") || measure.ends_with("_cpus")
}

/// Keeps the measures of a machine once: all its workers report them.
fn once_per_machine(answer: &mut ResourcesAnswer) {
    let mut seen = BTreeSet::new();
    answer.series.retain_mut(|series| {
        let is_of_machine =
            series.measure.starts_with("host_") || series.measure.ends_with("_pressure");
        if !is_of_machine || series.host.is_empty() {
            return true;
        }
        series.worker.clone_from(&series.host);
        seen.insert((
            series.host.clone(),
            series.run.clone(),
            series.measure.clone(),
        ))
    });
}

#[cfg(test)]
mod tests {
    use api::ResourceSeries;

    use super::*;

    #[test]
    fn a_machine_has_each_of_its_measures_once() {
        let mut answer = ResourcesAnswer {
            series: vec![
                series("w-1", "h", "host_cpu"),
                series("w-1", "h", "threads"),
                series("w-2", "h", "host_cpu"),
                series("w-2", "h", "threads"),
                series("w-3", "other", "cpu_pressure"),
                series("w-4", "", "host_cpu"),
            ],
            ..ResourcesAnswer::default()
        };
        once_per_machine(&mut answer);
        let rows: Vec<String> = answer
            .series
            .iter()
            .map(|one| format!("{} {}", one.worker, one.measure))
            .collect();
        let expected = [
            "h host_cpu",
            "w-1 threads",
            "w-2 threads",
            "other cpu_pressure",
            "w-4 host_cpu",
        ];
        assert_eq!(rows, expected);
        assert!(is_limit("host_cpus") && is_limit("descriptors_max") && !is_limit("host_cpu"));
    }

    fn series(worker: &str, host: &str, measure: &'static str) -> ResourceSeries {
        ResourceSeries {
            worker: worker.to_owned(),
            host: host.to_owned(),
            measure: measure.into(),
            ..ResourceSeries::default()
        }
    }
}
