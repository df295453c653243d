//! Whether the file at a module's path is the one that is loaded, for modules without a build id.

use super::Subject;

/// The kernel appends it to the path of a mapped file that was deleted or replaced.
const DELETED: &str = " (deleted)";

/// Whether the file that the process has mapped from this path is no longer there.
pub(super) fn is_replaced(subject: &Subject, path: &str) -> bool {
    subject
        .text("maps")
        .is_some_and(|maps| is_deleted_in(&maps, path))
}

fn is_deleted_in(maps: &str, path: &str) -> bool {
    maps.lines().any(|line| {
        let before = line
            .strip_suffix(DELETED)
            .and_then(|line| line.strip_suffix(path));
        before.is_some_and(|before| before.ends_with(' '))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_file_that_lost_its_name_is_known_by_its_path() {
        let maps = "7f00-7f10 r-xp 00000000 08:01 77 /opt/my app/x.so (deleted)\n\
            7f10-7f20 r-xp 00000000 08:01 78 /opt/my app/x.so\n\
            7f20-7f30 r-xp 00000000 08:01 79 /opt/y.so\n";
        for (path, deleted) in [
            ("/opt/my app/x.so", true),
            ("x.so", false),
            ("/opt/y.so", false),
            ("/opt/z.so", false),
        ] {
            assert_eq!(is_deleted_in(maps, path), deleted, "{path}");
        }
        assert!(!is_replaced(&Subject::default(), "/no/such/file"));
    }
}
