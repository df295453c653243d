use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use api::{SqlAnswer, SqlCell, SqlFormat};
use datafusion::execution::TempFileFactory as _;
use tempfile::TempDir;

use super::*;

/// A store with files of each table, which the collector's tests keep.
const GOLDEN: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../collector/store/golden/store-1"
);

/// Wrong bits in each table's files.
const FLIPS_EACH: usize = 4;

/// Numbers that name something: they are never subtracted.
const IDS: [&str; 8] = [
    "node",
    "parent",
    "epoch",
    "id",
    "task_id",
    "thread_id",
    "pid",
    "line",
];

#[test]
fn errors_name_what_is_wrong_in_one_line() {
    let told = |error: DataFusionError| explain(error).to_string();
    let plan = DataFusionError::Plan("DDL not supported: CreateView\nmore".to_owned());
    assert!(told(plan).starts_with("DDL not supported: CreateView; queries only read: SELECT"));
    let memory = DataFusionError::ResourcesExhausted("sort\n2".to_owned());
    let most = operator_memory_bytes() >> 20;
    assert!((192..=512).contains(&most), "{most}");
    let expected = format!("the query needs more than the {most} MiB that it may take: sort 2;");
    assert!(told(memory).starts_with(&expected));
}

/// A copy of the golden store.
fn golden() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(Path::new(GOLDEN), folder.path());
    folder
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn ask_as(folder: &Path, query: &str, format: SqlFormat) -> anyhow::Result<Vec<u8>> {
    let stores = open(Some(folder), None, &[]).unwrap();
    let asked = SqlRequest {
        query: query.to_owned(),
        format,
        rows: Some(1_000_000),
    };
    Ok(answer(stores, &asked, None)?.content)
}

fn ask(folder: &Path, query: &str) -> SqlAnswer {
    let content = ask_as(folder, query, SqlFormat::Json).unwrap();
    serde_json::from_slice(&content).unwrap()
}

/// The error of a query.
fn rejection(folder: &Path, query: &str) -> String {
    let error = ask_as(folder, query, SqlFormat::Json).unwrap_err();
    assert!(error.is::<BadInput>(), "{query}: {error}");
    error.to_string()
}

fn row(folder: &Path, query: &str) -> Vec<SqlCell> {
    ask(folder, query).rows.swap_remove(0)
}

fn whole(cell: &SqlCell) -> i128 {
    match cell {
        SqlCell::Integer(number) => (*number).into(),
        SqlCell::Unsigned(number) => (*number).into(),
        other => panic!("{other:?} is no whole number"),
    }
}

/// The files of each table that the manifest names.
fn files(folder: &Path) -> Vec<(String, Vec<PathBuf>)> {
    let snapshot = StoreSnapshot::read(&StoreLocation::from(folder)).unwrap();
    let tables = snapshot.tables().into_iter().map(|table| {
        let paths = table.files.iter().map(|file| folder.join(&file.path));
        (table.name, paths.collect::<Vec<_>>())
    });
    tables.filter(|(_, files)| !files.is_empty()).collect()
}

/// An answer without the names of damaged files. Rows of several files have no order.
fn sorted_rows(answer: &SqlAnswer) -> Vec<String> {
    let mut rows: Vec<String> = answer.rows.iter().map(|row| format!("{row:?}")).collect();
    rows.sort();
    rows
}

#[test]
fn a_wrong_bit_and_a_missing_file_are_named_or_change_nothing() {
    let folder = golden();
    let mut flips = 0;
    let mut named = 0;
    for (number, (table, files)) in files(folder.path()).into_iter().enumerate() {
        let query = format!("SELECT * FROM store.{table}");
        let sound = ask(folder.path(), &query);
        assert_eq!(sound.corrupt_files, [""; 0], "{table}");
        for turn in 0..=FLIPS_EACH {
            let file = &files[turn % files.len()];
            let content = fs::read(file).unwrap();
            let mut damaged = content.clone();
            damaged[(number * 7_919 + turn * content.len() / FLIPS_EACH) % content.len()] ^=
                1 << ((number + turn) % 8);
            match turn {
                FLIPS_EACH => fs::remove_file(file).unwrap(),
                _ => fs::write(file, damaged).unwrap(),
            }
            let found = ask(folder.path(), &query);
            let path = file.strip_prefix(folder.path()).unwrap().to_str().unwrap();
            let is_named = found.corrupt_files == [path];
            let is_equal = sorted_rows(&found) == sorted_rows(&sound);
            assert!(is_named || is_equal, "{path}: {:?}", found.corrupt_files);
            flips += 1;
            named += usize::from(is_named);
            fs::write(file, content).unwrap();
        }
    }
    assert!(
        flips >= 200 && named > flips / 2,
        "{named} of {flips} are named"
    );
}

#[test]
fn a_damaged_version_of_the_manifest_is_named() {
    let folder = golden();
    let mut versions: Vec<PathBuf> = fs::read_dir(folder.path().join("manifest"))
        .unwrap()
        .map(|v| v.unwrap().path())
        .collect();
    versions.sort();
    let newest = versions.pop().unwrap();
    assert!(!versions.is_empty());
    let mut content = fs::read(&newest).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    fs::write(&newest, content).unwrap();
    let found = ask(folder.path(), "SELECT count(*) FROM samples");
    let path = newest
        .strip_prefix(folder.path())
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    assert!(
        found.corrupt_files.contains(&path),
        "{:?}",
        found.corrupt_files
    );
}

#[test]
fn sums_and_their_differences_are_signed_numbers() {
    let store = golden();
    let folder = store.path();
    let sum = whole(&row(folder, "SELECT sum(weight_ns) FROM samples")[0]);
    assert!(sum > 2);
    let texts = [
        ("coalesce(sum(weight_ns), 0)", sum),
        ("sum(weight_ns) - 1", sum - 1),
        ("sum(weight_ns) / 2", sum / 2),
        ("0 - sum(weight_ns)", -sum),
        (
            "coalesce(sum(weight_ns) FILTER (WHERE state = 'none'), 0) - sum(weight_ns)",
            -sum,
        ),
        (
            "sum(weight_ns) FILTER (WHERE state = 'none') IS NULL AND NULL",
            0,
        ),
        ("sum(weight_ns - 2 * weight_ns)", -sum),
        ("CAST(sum(weight_ns) AS DECIMAL(20, 0)) - 1", sum - 1),
    ];
    for (text, expected) in texts {
        match &row(folder, &format!("SELECT {text} FROM samples"))[0] {
            SqlCell::Null => assert_eq!(expected, 0, "{text}"),
            cell => assert_eq!(whole(cell), expected, "{text}"),
        }
    }
    let average = &row(
        folder,
        "SELECT avg(weight_ns), sum(weight_ns) * 0.5 FROM samples",
    );
    assert!(
        average
            .iter()
            .all(|cell| matches!(cell, SqlCell::Number(_))),
        "{average:?}"
    );
    let decimals = ask(
        folder,
        "SELECT CAST(-1.5 AS DECIMAL(9, 2)) AS a, CAST(7 AS DECIMAL(38, 0)) AS b",
    );
    assert_eq!(
        decimals.rows,
        [[SqlCell::Number(-1.5), SqlCell::Unsigned(7)]]
    );
    assert!(
        decimals
            .columns
            .iter()
            .all(|column| column.type_name == "decimal")
    );
}

/// Each number of each view that is no id.
#[test]
fn numbers_of_all_views_can_be_subtracted() {
    let folder = golden();
    let mut checked = 0;
    for view in [
        "samples",
        "stacks",
        "tasks",
        "phases",
        "transfers",
        "resources",
        "workers",
    ] {
        let columns = ask(folder.path(), &format!("SELECT * FROM {view} LIMIT 1")).columns;
        let numbers: Vec<&str> = columns
            .iter()
            .filter(|column| column.type_name == "integer")
            .map(|column| column.name.as_str())
            .filter(|name| !IDS.contains(name))
            .collect();
        let differences: Vec<String> = numbers
            .iter()
            .map(|name| format!("min({name}) - max({name}) - 1"))
            .collect();
        let cells = row(
            folder.path(),
            &format!("SELECT {} FROM {view}", differences.join(", ")),
        );
        for (name, cell) in numbers.iter().zip(cells) {
            let is_negative = cell == SqlCell::Null || whole(&cell) < 0;
            assert!(is_negative, "{view}.{name}: {cell:?}");
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked} columns");
}

/// Sums are taken of the numbers in files, before they are signed and joined with names.
#[test]
fn a_sum_of_a_view_reads_the_smallest_table() {
    let folder = golden();
    let plan = ask(
        folder.path(),
        "EXPLAIN SELECT task, sum(weight_ns) FROM samples GROUP BY task",
    );
    let text = format!("{:?}", plan.rows);
    assert!(
        text.contains("tables/totals_1m/") && !text.contains("tables/samples_1m"),
        "{text}"
    );
}

#[test]
fn files_of_sorts_have_no_names_and_a_limit() {
    const MOST: u64 = 300_000;
    let folder = tempfile::tempdir().unwrap();
    let files = SpillFiles::new(folder.path().to_owned(), MOST);
    let file = files.create_temp_file("a test").unwrap();
    let mut writer = file.open_writer().unwrap();
    let content: Vec<u8> = (0..200_000u32).map(|byte| byte as u8).collect();
    for part in content.chunks(70_001) {
        writer.write_all(part).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(file.size(), Some(200_000));
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        0,
        "a file has a name"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let read = runtime.block_on(async {
        let mut parts = file.read_stream().unwrap();
        let mut read = Vec::new();
        while let Some(part) = parts.next().await {
            read.extend(part.unwrap());
        }
        read
    });
    assert_eq!(read, content);
    let other = files.create_temp_file("a test").unwrap();
    let mut other_writer = other.open_writer().unwrap();
    let refused = other_writer.write_all(&content).unwrap_err().to_string();
    assert!(refused.contains("of files that it may take"), "{refused}");
    // The space of a file that is not used any more is free.
    drop((file, writer));
    other_writer.write_all(&content).unwrap();
}

#[test]
fn errors_name_what_was_meant_and_what_is_allowed() {
    let folder = golden();
    for (query, expected) in [
        ("SELECT summ(weight_ns) FROM samples", "Did you mean 'sum'?"),
        ("SELECT * FROM sample", "Did you mean 'samples'?"),
        ("SELECT * FROM store.nothing", "not found; SHOW TABLES"),
        (
            "INSERT INTO samples VALUES (1)",
            "INSERT; queries only read",
        ),
        (
            "EXPLAIN INSERT INTO samples VALUES (1)",
            "queries only read",
        ),
        ("SHOW ALL", "SHOW; queries only read"),
        ("SHOW TABLES EXTENDED", "found: EXTENDED"),
    ] {
        let error = rejection(folder.path(), query);
        assert!(error.contains(expected), "{query}: {error}");
        assert!(!error.contains('\n') && error.len() < 1_000, "{error}");
    }
    let described = ask(folder.path(), "DESCRIBE samples");
    assert!(described.rows.len() > 5);
}

/// A chain of operators is a tree of that depth. Lists are not.
#[test]
fn operators_have_a_limit_and_lists_have_none() {
    let folder = golden();
    for chain in [
        format!("SELECT 1{}", "+1".repeat(15_000)),
        format!("SELECT 1 WHERE 0=1{}", " or 0=2".repeat(6_000)),
        format!("SELECT 1{}", " UNION SELECT 1".repeat(3_000)),
        format!("SELECT 1{}", "::int".repeat(9_000)),
    ] {
        let error = rejection(folder.path(), &chain);
        assert!(error.contains("operators; at most 1000"), "{error}");
    }
    let chain = format!("SELECT 1{}", "+1".repeat(300));
    assert_eq!(whole(&row(folder.path(), &chain)[0]), 301);
    let numbers: Vec<String> = (0..9_000).map(|number| number.to_string()).collect();
    let list = format!("SELECT 7 IN ({})", numbers.join(","));
    assert_eq!(row(folder.path(), &list), [SqlCell::Boolean(true)]);
}

#[test]
fn show_tables_lists_views_first_and_in_order() {
    let folder = golden();
    let names: Vec<String> = ask(folder.path(), "SHOW TABLES")
        .rows
        .iter()
        .map(|row| format!("{:?} {:?}", row[1], row[2]))
        .collect();
    assert!(names.len() > 60 && names[0].contains("public"), "{names:?}");
    assert!(names.is_sorted(), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("information_schema")));
}

#[test]
fn labels_and_stacks_are_found_by_their_names_and_numbers() {
    let folder = golden();
    let labels = ask(
        folder.path(),
        "SELECT labels FROM workers WHERE labels <> '{}'",
    );
    let SqlCell::Text(text) = &labels.rows[0][0] else {
        panic!("{labels:?}")
    };
    let known: std::collections::BTreeMap<String, String> = serde_json::from_str(text).unwrap();
    let (key, value) = known.iter().next().unwrap();
    let query = format!("SELECT count(*) FROM workers WHERE json_get(labels, '{key}') = '{value}'");
    assert!(whole(&row(folder.path(), &query)[0]) > 0, "{query}");
    let missing =
        "SELECT json_get(labels, 'no such label'), json_get(NULL, 'a') FROM workers LIMIT 1";
    assert_eq!(row(folder.path(), missing), [SqlCell::Null, SqlCell::Null]);
    let stacks = row(
        folder.path(),
        "SELECT stack(1) AS a, stack(CAST(1 AS BIGINT UNSIGNED)) AS b, stack(-1) AS c",
    );
    assert_eq!(stacks[0], stacks[1]);
    assert!(
        matches!(stacks[0], SqlCell::Text(_)) && stacks[2] == SqlCell::Null,
        "{stacks:?}"
    );
}

#[test]
fn files_tell_null_from_an_empty_text_and_have_intervals() {
    let folder = golden();
    let query = "SELECT NULL AS \"a,b\", '' AS c, 'x,\"y' AS d, 1.5 AS e, INTERVAL '1 hour' AS f, \
                 TIMESTAMP '2026-11-28T07:59:00Z' AS g";
    let csv = ask_as(folder.path(), query, SqlFormat::Csv).unwrap();
    let text = String::from_utf8(csv).unwrap();
    assert_eq!(
        text,
        "\"a,b\",c,d,e,f,g\n,\"\",\"x,\"\"y\",1.5,1 hours,2026-11-28T07:59:00Z\n"
    );
    let empty = ask_as(folder.path(), "SELECT 1 AS a WHERE false", SqlFormat::Csv).unwrap();
    assert_eq!(empty, b"a\n");
    let parquet = ask_as(folder.path(), query, SqlFormat::Parquet).unwrap();
    assert!(parquet.starts_with(b"PAR1"));
}
