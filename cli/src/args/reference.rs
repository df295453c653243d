//! The commands that describe the command line to shells and to `man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// `emberline completions`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline completions bash > /etc/bash_completion.d/emberline\n  \
    emberline completions zsh > ~/.zfunc/_emberline  with ~/.zfunc in fpath\n  \
    emberline completions fish > ~/.config/fish/completions/emberline.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell that reads the script.
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// `emberline man`
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    emberline man | man -l -               read the page of the program\n  \
    emberline man ~/.local/share/man/man1  a page for each command\n\n\
    With the folder installed: man emberline-profile")]
pub(crate) struct ManArgs {
    /// Write a page for each command into this folder, which is created if missing. Without it, the
    /// page of the program goes to stdout.
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}
