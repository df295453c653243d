//! Compresses the page for the program, which is smaller by 0.3 MB than with its files as they are.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

const PAGE: &str = "page";

/// Not served: the command line writes it.
const REPORT: &str = "report.html";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={PAGE}");
    let output = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let mut paths = Vec::new();
    list(Path::new(PAGE), "", &mut paths)?;
    paths.sort();
    let mut served = String::from("[\n");
    for path in paths {
        let compressed = format!("{PAGE}/{path}.gz");
        compress(&Path::new(PAGE).join(&path), &output.join(&compressed))?;
        if path != REPORT {
            let file = format!("File {{ path: {path:?}, gzip: include_bytes!({compressed:?}) }}");
            writeln!(served, "    {file},")?;
        }
    }
    served.push_str("]\n");
    fs::write(output.join("page.rs"), served)?;
    Ok(())
}

/// Adds the paths of all files in a folder.
fn list(folder: &Path, prefix: &str, paths: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &format!("{path}/"), paths)?;
        } else {
            paths.push(path);
        }
    }
    Ok(())
}

/// Writes the gzip form of a file, which holds no time and no name.
fn compress(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let folder = to.parent().ok_or("the file is in a folder")?;
    fs::create_dir_all(folder)?;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&fs::read(from)?)?;
    fs::write(to, gzip.finish()?)?;
    Ok(())
}
