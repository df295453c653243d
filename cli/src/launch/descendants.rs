//! Processes that this one has started, and those that they have.

use outside::parent_of;

/// Most parents of a process that are followed.
const PARENTS_MAX: usize = 64;

/// Whether a process was started by this one, or by one that was. Not if a parent has ended in between: the system has
/// given its children to another process.
pub(crate) fn is_descendant(process: u32) -> bool {
    let own = std::process::id();
    let parents = std::iter::successors(parent_of(process), |parent| parent_of(*parent));
    parents.take(PARENTS_MAX).any(|parent| parent == own)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_of_children_are_descendants_and_others_are_not() {
        let mut shell = Command::new("sh")
            .args(["-c", "sh -c 'echo $$; read end'; true"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = shell.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let grandchild: u32 = line.trim().parse().unwrap();
        assert_ne!(parent_of(grandchild), Some(std::process::id()));
        assert!(is_descendant(shell.id()));
        assert!(is_descendant(grandchild));
        assert!(!is_descendant(std::process::id()));
        assert!(!is_descendant(1));
        assert!(!is_descendant(u32::MAX));
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
}
