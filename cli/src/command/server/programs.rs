//! `emberline-sql`, a program of its own for queries in SQL and for sums on a cluster: where it is, and its arguments.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use collector::{ClusterProgram, SqlProgram, SumCluster};

use crate::args::ClusterArgs;
use crate::exit::BadInput;

const SQL_PROGRAM: &str = "emberline-sql";

/// Returns the path of `emberline-sql`.
///
/// # Errors
/// [`BadInput`] if it is not installed.
pub(crate) fn installed_sql_program() -> Result<PathBuf, BadInput> {
    sql_program_path().ok_or_else(|| {
        BadInput(format!(
            "this needs the program {SQL_PROGRAM}, which is neither next to emberline nor in PATH; run: \
             cargo install --path sql\nqueries to a collector (--url) do not need it here"
        ))
    })
}

fn sql_program_path() -> Option<PathBuf> {
    let own = env::current_exe().ok();
    find(
        own.as_deref().and_then(Path::parent),
        &env::var_os("PATH").unwrap_or_default(),
    )
}

/// Looks in the folder of this program, then in those of `path`.
fn find(own_folder: Option<&Path>, path: &OsStr) -> Option<PathBuf> {
    // A relative folder would be another one in each working directory.
    let listed = env::split_paths(path).filter(|folder| folder.is_absolute());
    let folders = own_folder.map(Path::to_owned).into_iter().chain(listed);
    folders
        .map(|folder| folder.join(SQL_PROGRAM))
        .find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    fs::metadata(file)
        .is_ok_and(|facts: fs::Metadata| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

/// The program that has a cluster sum large tables, if there is a cluster. `store` says where the stores are.
///
/// # Errors
/// [`BadInput`] if the program is not installed.
pub(crate) fn cluster_program(
    store: Option<Vec<OsString>>,
    args: &ClusterArgs,
) -> Result<Option<Arc<dyn SumCluster>>, BadInput> {
    let Some(arguments) = store.filter(|_| args.scheduler.is_some()) else {
        return Ok(None);
    };
    let program = installed_sql_program()?;
    Ok(Some(Arc::new(ClusterProgram::new(
        program,
        arguments,
        args.distribute_over(),
    ))))
}

/// The cluster of queries as arguments of the program.
pub(crate) fn cluster_arguments(args: &ClusterArgs) -> Vec<OsString> {
    let Some(scheduler) = &args.scheduler else {
        return Vec::new();
    };
    vec![
        "--scheduler".into(),
        scheduler.to_string().into(),
        "--distribute-over".into(),
        args.distribute_over().to_string().into(),
    ]
}

/// A store's folder as arguments of the program.
pub(crate) fn data_arguments(data: &Path) -> Vec<OsString> {
    vec!["--data".into(), data.into()]
}

/// How a collector with this store, if any, answers queries in SQL.
pub(crate) fn sql_program(store: Option<Vec<OsString>>) -> Option<SqlProgram> {
    store.map(|store| SqlProgram {
        program: sql_program_path(),
        store,
    })
}

/// A size as the value of an option of `emberline`.
pub(crate) fn size_argument(bytes: u64) -> String {
    // Sizes are given in one of the two.
    match bytes % 1_000_000 {
        0 => format!("{}MB", bytes / 1_000_000),
        _ => format!("{}MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a file with these permissions, and its folders.
    fn file(folder: &Path, mode: u32) -> PathBuf {
        let file = folder.join(SQL_PROGRAM);
        fs::create_dir_all(folder).unwrap();
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn the_program_is_next_to_this_one_or_in_the_first_folder_of_the_path_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let [own, text, first, second] =
            ["own", "text", "first", "second"].map(|name| folder.path().join(name));
        let path = env::join_paths([&text, &folder.path().join("none"), &first, &second]).unwrap();
        assert_eq!(find(Some(&own), &path), None);
        file(&text, 0o644);
        fs::create_dir_all(own.join(SQL_PROGRAM)).unwrap();
        assert_eq!(
            find(Some(&own), &path),
            None,
            "a text and a folder are no programs"
        );
        let in_second = file(&second, 0o755);
        assert_eq!(find(Some(&own), &path), Some(in_second));
        let in_first = file(&first, 0o755);
        assert_eq!(find(None, &path), Some(in_first));
        fs::remove_dir(own.join(SQL_PROGRAM)).unwrap();
        let next_to_it = file(&own, 0o755);
        assert_eq!(find(Some(&own), &path), Some(next_to_it));
    }

    #[test]
    fn relative_folders_of_the_path_are_not_searched() {
        let folder = env::current_dir().unwrap();
        let folder = tempfile::tempdir_in(folder).unwrap();
        file(folder.path(), 0o755);
        let relative = Path::new(folder.path().file_name().unwrap());
        assert!(is_program(&relative.join(SQL_PROGRAM)));
        assert_eq!(find(None, relative.as_os_str()), None);
        assert_eq!(find(None, OsStr::new("")), None);
    }
}
