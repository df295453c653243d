//! `emberline completions` and `emberline man`: made from the definition of the command line.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::output::{print, write_file};

pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    print(&completion_script(args.shell))
}

pub(crate) fn man(args: &ManArgs) -> anyhow::Result<()> {
    let mut cli = Cli::command();
    cli.build();
    match &args.folder {
        None => print(&page(&Man::new(cli))?),
        Some(folder) => {
            fs::create_dir_all(folder)
                .with_context(|| format!("could not create {}", folder.display()))?;
            write_pages(cli, folder)
        }
    }
}

fn completion_script(shell: Shell) -> Vec<u8> {
    let mut cli = Cli::command();
    let name = cli.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli, name, &mut script);
    script
}

/// Writes the page of `command` and those of the commands below it.
fn write_pages(command: clap::Command, folder: &Path) -> anyhow::Result<()> {
    let commands: Vec<_> = command
        .get_subcommands()
        .filter(|below: &&clap::Command| !below.is_hide_set() && below.get_name() != "help")
        .cloned()
        .collect();
    let man = Man::new(command);
    write_file(&folder.join(man.get_filename()), &page(&man)?)?;
    commands
        .into_iter()
        .try_for_each(|command| write_pages(command, folder))
}

fn page(man: &Man) -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render(&mut page)
        .context("could not render the manual page")?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// Returns the output of `program` for `input` on stdin, which it must accept without a complaint; `None` if
    /// it is not installed.
    fn accepted_output(program: &str, args: &[&str], input: &[u8]) -> Option<Vec<u8>> {
        let mut child = Command::new(program)
            .args(args)
            // A missing locale is a complaint of `man`.
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && complaint.is_empty(),
            "{program}: {complaint}"
        );
        Some(output.stdout)
    }

    #[test]
    fn completions_are_valid_scripts_with_every_command() {
        for (shell, program) in [
            (Shell::Bash, "bash"),
            (Shell::Zsh, "zsh"),
            (Shell::Fish, "fish"),
        ] {
            let script = completion_script(shell);
            let text = String::from_utf8(script.clone()).unwrap();
            for command in Cli::command()
                .get_subcommands()
                .filter(|c| !c.is_hide_set())
            {
                assert!(text.contains(command.get_name()), "{program}: {command}");
            }
            accepted_output(program, &["-n"], &script);
        }
    }

    #[test]
    fn each_shown_command_has_a_page_that_renders() {
        let folder = tempfile::tempdir().unwrap();
        let pages = folder.path().join("man/man1");
        man(&ManArgs {
            folder: Some(pages.clone()),
        })
        .unwrap();
        for name in ["emberline", "emberline-profile", "emberline-token-new"] {
            assert!(pages.join(format!("{name}.1")).is_file(), "{name}");
        }
        assert!(
            !pages.join("emberline-fleet-worker.1").exists(),
            "a hidden command"
        );

        let profile = fs::read(pages.join("emberline-profile.1")).unwrap();
        if let Some(text) = accepted_output("man", &["-l", "-"], &profile) {
            let text = String::from_utf8(text).unwrap();
            assert!(
                text.contains("SYNOPSIS") && text.contains("--format"),
                "{text}"
            );
        }
    }
}
