//! A folder as `emberline store` sees it.

use std::fs;
use std::path::Path;

use store::StoreError;
use store::wal::WalError;

/// Checks the output of `emberline store` about a folder whose log has two files.
pub(super) fn looked_at_from_outside(folder: &Path) {
    let problems = || store::verify(&folder.into()).map(|verified| verified.problems);
    assert_eq!(problems().unwrap(), []);
    let name = "wal/00000000000000000001.wal";
    let path = folder.join(name);
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&path, &damaged).unwrap();
    let found = problems().unwrap();
    assert!(found.len() == 1 && found[0].name == name, "{found:?}");
    assert_eq!(fs::read(&path).unwrap(), damaged, "nothing is changed");

    let mut newer = whole.clone();
    newer[8] = 2;
    let crc = crc32fast::hash(&newer[..36]).to_le_bytes();
    newer[36..40].copy_from_slice(&crc);
    fs::write(&path, newer).unwrap();
    let reports = store::info(&folder.into()).unwrap().reports;
    assert!(
        reports.len() == 1 && reports[0].contains("has format 2"),
        "{reports:?}"
    );
    let versions = || fs::read_dir(folder.join("manifest")).unwrap().count();
    let before = versions();
    for error in [
        problems().unwrap_err(),
        store::compact(&folder.into()).unwrap_err(),
    ] {
        assert!(
            matches!(error, StoreError::Log(WalError::UnknownVersion { .. })),
            "{error}"
        );
    }
    assert_eq!(versions(), before);
    fs::remove_file(&path).unwrap();
    let found = problems().unwrap();
    assert!(found.len() == 1 && found[0].name == name, "{found:?}");
}
