//! Rules on the documentation: links lead somewhere, another document links to each one, and the README needs two
//! commands.

use std::collections::BTreeSet;

use super::finding::Finding;

/// Commands that a new user types, and nothing else.
const SET_UP: [&str; 2] = ["cargo demo", "cargo xtask test"];

/// Checks that what the document at `path` links to exists. `exists` is called with paths from the
/// root. Headings inside a file are not checked.
pub(super) fn check_links(path: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut findings = Vec::new();
    for (line, number) in lines_outside_code(text) {
        for target in targets(&line) {
            let file = target.split(['#', '?']).next().unwrap_or_default();
            let is_elsewhere = file.is_empty() || file.contains("://") || file.contains(':');
            if !is_elsewhere && !exists(&join(folder, file)) {
                findings.push(Finding {
                    rule: "links",
                    path: path.into(),
                    line: number,
                    text: format!("links to `{target}`, which does not exist"),
                });
            }
        }
    }
    findings
}

/// The documents, and those that another document links to.
#[derive(Default)]
pub(super) struct Documents {
    paths: Vec<String>,
    linked: BTreeSet<String>,
}

impl Documents {
    /// Notes the document at `path` and its links.
    pub(super) fn read(&mut self, path: &str, text: &str) {
        self.paths.push(path.into());
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (line, _) in lines_outside_code(text) {
            let files = targets(&line)
                .into_iter()
                .filter_map(|target| target.split(['#', '?']).next())
                .map(|file| join(folder, file))
                .filter(|file| file != path);
            self.linked.extend(files);
        }
    }

    /// Checks that a reader can reach each document in `docs`. Packages show their own README.
    pub(super) fn check(&self) -> Vec<Finding> {
        self.paths
            .iter()
            .filter(|path| path.starts_with("docs/") && !self.linked.contains(*path))
            .map(|path| Finding {
                rule: "links",
                path: path.clone(),
                line: 0,
                text: "no other document links to it".into(),
            })
            .collect()
    }
}

/// Checks that the first block of commands holds the two of [`SET_UP`] and no other, but for getting
/// the source.
pub(super) fn check_readme(text: &str) -> Vec<Finding> {
    let commands = first_commands(text);
    let mut wanted: Vec<&str> = SET_UP.to_vec();
    let mut surplus = Vec::new();
    for command in &commands {
        match wanted.iter().position(|wanted| wanted == command) {
            Some(index) => drop(wanted.remove(index)),
            None => surplus.push(*command),
        }
    }
    let missing = wanted
        .iter()
        .map(|command| format!("the first block of commands lacks `{command}`"));
    let surplus = surplus
        .iter()
        .map(|command| format!("`{command}` is a third command to set up; two must do"));
    missing
        .chain(surplus)
        .map(|text| Finding {
            rule: "readme",
            path: "README.md".into(),
            line: 0,
            text,
        })
        .collect()
}

/// The commands in the first shell block.
fn first_commands(text: &str) -> Vec<&str> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line: &&str| {
        line.strip_prefix("```")
            .is_some_and(|language| ["sh", "bash", "shell", "console"].contains(&language))
    });
    lines
        .take_while(|line| !line.starts_with("```"))
        .map(|line| line.trim_start_matches("$ "))
        .map(|line| line.split('#').next().unwrap_or(line).trim())
        .filter(|command| !command.is_empty())
        .filter(|command| !command.starts_with("git clone ") && !command.starts_with("cd "))
        .collect()
}

/// Lines outside fenced blocks, without `code`, with their numbers.
fn lines_outside_code(text: &str) -> impl Iterator<Item = (String, usize)> {
    let mut in_code = false;
    text.lines().zip(1..).filter_map(move |(line, number)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        let prose = line.split('`').step_by(2).collect();
        (!in_code && !is_fence).then_some((prose, number))
    })
}

/// Returns the link targets of a line: `[text](target)`, `[name]: target`, `src="target"`, `href="target"`.
fn targets(line: &str) -> Vec<&str> {
    let mut targets = between(line, "](", &[')', ' ']);
    targets.extend(between(line, "src=\"", &['"']));
    targets.extend(between(line, "href=\"", &['"']));
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        targets.push(target.trim());
    }
    targets
}

fn between<'a>(line: &'a str, open: &str, close: &[char]) -> Vec<&'a str> {
    line.split(open)
        .skip(1)
        .filter_map(|rest| rest.split(close).next())
        .collect()
}

/// `file` as seen from `folder`, as a path from the root.
fn join(folder: &str, file: &str) -> String {
    let (start, file) = match file.strip_prefix('/') {
        Some(file) => ("", file),
        None => (folder, file),
    };
    let mut parts: Vec<&str> = start.split('/').filter(|part| !part.is_empty()).collect();
    for part in file.split('/') {
        match part {
            "." | "" => {}
            // A path that leaves the root exists on no other machine.
            ".." if parts.is_empty() => return format!("outside the root: {file}"),
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
