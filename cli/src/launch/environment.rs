//! The environment of a program: that of this command, in its order and with entries that are no variables. The standard
//! library would sort it, and leave these out.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use super::sys;

/// The environment with which this process began.
const OWN: &str = "/proc/self/environ";

/// A variable that a program has with another value than this process, or not at all.
struct Change {
    name: OsString,
    value: Option<OsString>,
}

/// Lets a command start its program with the environment of this process, and the command's changes behind it.
///
/// # Errors
/// If the environment cannot be read, or a text has a 0.
pub(super) fn keep(command: &mut Command) -> io::Result<()> {
    let own = fs::read(OWN)?;
    let changes: Vec<Change> = command
        .get_envs()
        .map(|(name, value)| Change {
            name: name.to_owned(),
            value: value.map(OsStr::to_owned),
        })
        .collect();
    let arguments: Result<Vec<CString>, _> = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(|argument| CString::new(argument.as_bytes()))
        .collect();
    sys::exec_with(command, arguments?, changed(&own, &changes)?);
    Ok(())
}

/// Entries that end with a 0, without those of changed variables, and then these.
fn changed(own: &[u8], changes: &[Change]) -> io::Result<Vec<CString>> {
    let is_changed = |entry: &&[u8]| {
        let name_end = entry.iter().position(|byte| *byte == b'=');
        name_end.is_some_and(|end| {
            changes
                .iter()
                .any(|change| change.name.as_bytes() == &entry[..end])
        })
    };
    let entries = own
        .strip_suffix(b"\0")
        .map(|own| own.split(|byte| *byte == 0));
    let kept = entries
        .into_iter()
        .flatten()
        .filter(|entry| !is_changed(entry));
    let added = changes.iter().filter_map(|change| {
        let value = change.value.as_ref()?;
        Some([change.name.as_bytes(), b"=", value.as_bytes()].concat())
    });
    let all = kept.map(<[u8]>::to_vec).chain(added);
    Ok(all.map(CString::new).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_in_their_order_and_changes_come_last() {
        let change = |name: &str, value: Option<&str>| Change {
            name: name.into(),
            value: value.map(OsString::from),
        };
        let changes = [
            change("LD_PRELOAD", Some("/lib/x.so")),
            change("GONE", None),
        ];
        for (own, expected) in [
            (
                "Z=1\0NO-VARIABLE\0A=first\0LD_PRELOAD=/y.so\0A=second\0GONE=1\0\0=x\0",
                "Z=1 NO-VARIABLE A=first A=second  =x LD_PRELOAD=/lib/x.so",
            ),
            ("", "LD_PRELOAD=/lib/x.so"),
        ] {
            let all = changed(own.as_bytes(), &changes).unwrap();
            let texts: Vec<_> = all.iter().map(|entry| entry.to_str().unwrap()).collect();
            assert_eq!(texts.join(" "), expected);
        }
    }
}
