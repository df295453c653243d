//! `emberline doctor`

use anyhow::bail;

use crate::args::{DoctorArgs, DoctorFormat};
use crate::doctor::{Level, collector, machine, program};
use crate::output::print;

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let report = match &args.program {
        Some(program) => program::examine(program)?,
        None => {
            let mut report = machine::examine();
            report.findings.extend(collector::examine(&args.url.url)?);
            report
        }
    };
    print(&match args.format {
        DoctorFormat::Text => report.text().into_bytes(),
        DoctorFormat::Json => report.json()?,
    })?;
    match report.count(Level::Bad) {
        0 => Ok(()),
        bad => bail!("{bad} of {} checks are bad", report.findings.len()),
    }
}
