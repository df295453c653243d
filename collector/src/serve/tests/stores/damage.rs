//! A file of a store that is not as it was written is named by each answer of a reader that it changes.

use super::*;

/// Queries whose answers name what is missing.
const NAMING: [&str; 11] = [
    "profile?{all}&state=all&threads=all",
    "profile?{all}&thread=pool",
    "timeline?{all}&state=all",
    "tasks?{all}",
    "tasks?{all}&summary=true",
    "tasks/durations?{all}&task=load",
    "thread-time?{all}",
    "transfers?{all}",
    "transfers?{all}&summary=true",
    "resources?{all}&step=10s",
    "progress?{all}",
];

/// Files by kind: each of the log, versions, and those of each table.
fn files_by_kind(store: &Path) -> Vec<Vec<std::path::PathBuf>> {
    let log = entries(&store.join("wal"))
        .into_iter()
        .map(|file| vec![file]);
    let mut kinds: Vec<_> = log.chain([entries(&store.join("manifest"))]).collect();
    kinds.extend(
        entries(&store.join("tables"))
            .iter()
            .map(|table| entries(table)),
    );
    kinds.retain(|files| !files.is_empty());
    kinds
}

fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
}

async fn answer_all(reader: &Running) -> Vec<Value> {
    let mut all = Vec::new();
    for query in NAMING {
        let path = format!("/api/v1/{}", query.replace("{all}", ALL));
        let answer = get(reader.address, &path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        all.push(sorted(serde_json::from_str(&answer.body).unwrap()));
    }
    all
}

/// An answer without the names of what is missing.
fn without_names(answer: &Value) -> Value {
    let mut answer = answer.clone();
    answer.as_object_mut().unwrap().remove("corrupt_files");
    answer
}

#[tokio::test]
async fn a_wrong_bit_in_any_file_is_named_by_each_answer_that_it_changes() {
    let TwoStores {
        whole: _whole,
        parts,
        mut workers,
        place,
        folder: _folder,
    } = TwoStores::start().await;
    for second in 0..4 {
        for worker in &mut workers {
            worker.ship().await;
        }
        if second == 1 {
            seal(&parts[0]).await;
            seal(&parts[1]).await;
        }
    }
    // As it is on the disk, with a log.
    let left = TempDir::new().unwrap();
    copy_folder(place.path(), left.path());
    let reader = follow(left.path()).await;
    let sound = answer_all(&reader).await;
    assert!(
        sound
            .iter()
            .all(|answer| answer["corrupt_files"] == json!([])),
        "{sound:?}"
    );
    reader.end().await;
    let mut flips = 0;
    for (number, files) in files_by_kind(&left.path().join("c1"))
        .into_iter()
        .enumerate()
    {
        let file = &files[files.len() - 1];
        let content = std::fs::read(file).unwrap();
        let mut damaged = content.clone();
        damaged[(number * 7_919 + content.len() / 2) % content.len()] ^= 1 << (number % 8);
        std::fs::write(file, damaged).unwrap();
        let reader = follow(left.path()).await;
        for (query, (answer, sound)) in NAMING
            .iter()
            .zip(answer_all(&reader).await.iter().zip(&sound))
        {
            let is_named = answer["corrupt_files"]
                .as_array()
                .unwrap()
                .iter()
                .any(|name| name.as_str().unwrap().starts_with("c1/"));
            let is_equal = without_names(answer) == without_names(sound);
            assert!(
                is_equal || is_named,
                "{}: {query}: {answer}",
                file.display()
            );
        }
        reader.end().await;
        std::fs::write(file, content).unwrap();
        flips += 1;
    }
    assert!(flips > 50, "{flips} files");
}
