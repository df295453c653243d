//! Whether a program's file has names, source lines, inlined functions and unwind tables.

mod facts;

use std::fs;
use std::path::{Path, PathBuf};

use super::{Finding, Report};
use crate::exit::BadInput;
use facts::{DebugFile, Facts, Linking};

/// Checks a program, given by the path of its file or by a process id.
///
/// # Errors
/// [`BadInput`] if it does not exist or is no program.
pub(crate) fn examine(program: &str) -> Result<Report, BadInput> {
    let (file, name) = find(program)?;
    let facts = Facts::read(&file, &name)
        .map_err(|error| BadInput(format!("could not read {}: {error}", name.display())))?;
    Ok(Report {
        subject: name.display().to_string(),
        findings: findings(&facts),
    })
}

/// The file to read and its name. The file of a process is read through `/proc`: that one runs, even if
/// it was replaced, and it may be in a container.
fn find(program: &str) -> Result<(PathBuf, PathBuf), BadInput> {
    let path = Path::new(program);
    if path.exists() {
        return Ok((path.to_owned(), path.to_owned()));
    }
    let no_program = |reason: &str| {
        BadInput(format!(
            "{program}: {reason}; expected the path of a program or a process id"
        ))
    };
    if program.is_empty() || !program.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(no_program("no such file"));
    }
    let link = PathBuf::from(format!("/proc/{program}/exe"));
    let name = fs::read_link(&link)
        .map_err(|error| no_program(&format!("no such file, and no readable process ({error})")))?;
    Ok((link, name))
}

fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![kind(facts), functions(facts)];
    findings.push(lines(facts));
    findings.push(inlined(facts));
    findings.push(unwind(facts));
    findings.push(build_id(facts));
    findings
}

fn kind(facts: &Facts) -> Finding {
    let linking = match facts.linking {
        Linking::Dynamic => "dynamically linked",
        Linking::StaticPie => "statically linked, position independent",
        Linking::Static => "statically linked",
    };
    let found = format!("{}, {linking}", facts.machine);
    if facts.machine == "x86-64" {
        return Finding::ok("program", found);
    }
    Finding::bad(
        "program",
        found,
        "the agent samples x86-64 only; it stays off in this program",
    )
}

fn functions(facts: &Facts) -> Finding {
    let check = "functions";
    match (facts.functions, &facts.debug_file) {
        (1.., DebugFile::Read(path)) => Finding::ok(
            check,
            format!("{} names, in {}", facts.functions, path.display()),
        ),
        (1.., _) => Finding::ok(check, format!("{} names", facts.functions)),
        (0, DebugFile::Missing(name)) => Finding::bad(
            check,
            format!("stripped, and its debug file {name} was not found"),
            format!("put {name} next to the program, or below /usr/lib/debug"),
        ),
        (0, _) => {
            let except = match facts.exported {
                0 => String::new(),
                count => format!(", except {count} exported ones"),
            };
            let found = format!("stripped: no names, only module and offset{except}");
            let advice = if facts.is_rust {
                "Cargo.toml: [profile.release] strip = false; do not run `strip`"
            } else {
                "link without -s and do not run `strip`; or keep the names in a separate file:\n\
                 objcopy --only-keep-debug PROGRAM PROGRAM.debug && strip PROGRAM && \
                 objcopy --add-gnu-debuglink=PROGRAM.debug PROGRAM"
            };
            Finding::bad(check, found, advice)
        }
    }
}

fn lines(facts: &Facts) -> Finding {
    let check = "source lines";
    let advice = lines_advice(facts);
    match facts.units {
        _ if facts.compressed => Finding::ok(check, "compressed line tables"),
        Some(0) | None if facts.library_units > 0 => Finding::warn(
            check,
            "only of the Rust standard library, not of the program's code",
            advice,
        ),
        Some(0) | None => Finding::warn(check, "no line tables", advice),
        Some(units) => Finding::ok(check, format!("line tables of {units} compilation units")),
    }
}

fn inlined(facts: &Facts) -> Finding {
    let check = "inlined functions";
    if facts.compressed {
        return Finding::ok(check, "unknown: the tables are compressed");
    }
    if facts.inlined && facts.is_rust && !facts.modules {
        let found =
            "recorded without their modules (line tables only): names are guessed from files";
        return Finding::warn(check, found, lines_advice(facts));
    }
    if facts.inlined {
        return Finding::ok(check, "recorded");
    }
    let found = "not recorded: their time counts for the enclosing function";
    Finding::warn(check, found, lines_advice(facts))
}

fn lines_advice(facts: &Facts) -> &'static str {
    if facts.is_rust {
        "Cargo.toml: [profile.release] debug = 1, strip = false; it costs disk, not speed"
    } else {
        "compile with -g1; it costs disk, not speed"
    }
}

fn unwind(facts: &Facts) -> Finding {
    let check = "unwind tables";
    match (facts.unwind_table, facts.unwind_index) {
        (true, true) => Finding::ok(check, ".eh_frame with its index"),
        (true, false) => Finding::warn(
            check,
            ".eh_frame without .eh_frame_hdr",
            "link with -Wl,--eh-frame-hdr: stacks through this program may be [truncated]",
        ),
        (false, _) => Finding::bad(
            check,
            "no .eh_frame",
            "compile with -fasynchronous-unwind-tables, Rust with -C force-unwind-tables=yes: stacks \
             through this program are [truncated]",
        ),
    }
}

fn build_id(facts: &Facts) -> Finding {
    match &facts.build_id {
        Some(id) => Finding::ok("build id", id),
        None => Finding::warn(
            "build id",
            "none",
            "link with -Wl,--build-id, so that builds can be distinguished and debug files found",
        ),
    }
}

#[cfg(test)]
mod tests;
