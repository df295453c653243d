//! Where the library is.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::exit::BadInput;

const LIBRARY: &str = "libemberline_preload.so";
/// Names the library's file.
const LIBRARY_VARIABLE: &str = "EMBERLINE_PRELOAD";
/// From the program's folder. The first is where cargo builds it together with the program; a copy next to the program
/// is older if only that was built.
const FOLDERS: [&str; 3] = ["deps", "", "../lib/emberline"];

/// Returns the library's file.
///
/// # Errors
/// [`BadInput`] if it is missing, or if its path cannot be passed to the loader.
pub(super) fn find() -> Result<PathBuf, BadInput> {
    let program = env::current_exe().ok();
    let folder = program.as_deref().and_then(Path::parent);
    find_from(env::var_os(LIBRARY_VARIABLE), folder)
}

fn find_from(named: Option<OsString>, own_folder: Option<&Path>) -> Result<PathBuf, BadInput> {
    let files: Vec<PathBuf> = match named.filter(|named| !named.is_empty()) {
        Some(named) => vec![named.into()],
        None => {
            let own = own_folder.into_iter();
            own.flat_map(|own| FOLDERS.map(|folder| own.join(folder).join(LIBRARY)))
                .collect()
        }
    };
    let found = files
        .iter()
        .find_map(|file| file.canonicalize().ok())
        .ok_or_else(|| {
            let names: Vec<_> = files
                .iter()
                .map(|file| file.display().to_string())
                .collect();
            let looked = names.join(", ");
            BadInput(format!(
                "{LIBRARY} is missing: looked for {looked}; set {LIBRARY_VARIABLE} to its path"
            ))
        })?;
    // The loader's list has no way to quote them.
    if found.to_string_lossy().contains([' ', ':']) {
        let text = format!(
            "{} has a space or a colon in its path; copy it and set {LIBRARY_VARIABLE}",
            found.display()
        );
        return Err(BadInput(text));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_library_is_found_where_builds_and_packages_have_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let bin = root.join("bin");
        for folder in ["bin/deps", "lib/emberline", "my folder"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let error = find_from(None, Some(&bin)).unwrap_err().to_string();
        assert!(error.contains("bin/libemberline_preload.so"), "{error}");
        for place in ["lib/emberline", "bin", "bin/deps"] {
            let file = root.join(place).join(LIBRARY);
            fs::write(&file, "").unwrap();
            assert_eq!(
                find_from(None, Some(&bin)).unwrap(),
                file,
                "before the earlier ones"
            );
        }
        let named = root.join("my folder").join(LIBRARY);
        fs::write(&named, "").unwrap();
        let error = find_from(Some(named.clone().into()), Some(&bin)).unwrap_err();
        assert!(error.to_string().contains("a space or a colon"), "{error}");
        let missing = find_from(Some("/no/such.so".into()), Some(&bin)).unwrap_err();
        assert!(missing.to_string().contains("/no/such.so"), "{missing}");
    }
}
