//! A command in a terminal.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::harness::{Running, wait_for};

/// A command in a terminal of 80 columns, and its output so far.
pub(crate) struct Terminal {
    pub(crate) process: Running,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    /// `script` provides the terminal; its size is set from within.
    pub(crate) fn start(command: &str) -> Terminal {
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--command"])
            .arg(format!("stty cols 80 rows 24; exec {command}"))
            .arg("/dev/null")
            .env("TERM", "xterm-256color")
            .env_remove("EMBERLINE_URL")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let writer = shown.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                *writer.lock().unwrap() += &String::from_utf8_lossy(&bytes[..count]);
            }
        });
        Terminal {
            process: Running::new(child),
            shown,
        }
    }

    /// The output, once it contains the text.
    pub(crate) fn until(&self, text: &str) -> String {
        wait_for(text, || {
            Some(self.shown.lock().unwrap().clone()).filter(|all| all.contains(text))
        })
    }
}
