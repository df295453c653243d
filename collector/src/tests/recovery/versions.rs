//! Files of version 1, of unknown versions, and the folder on the real disk.

use super::*;

/// Version 1 of the format, as it is on people's disks. If this fails, the format has changed: give it a
/// new version, and go on reading this one.
#[test]
fn the_bytes_of_version_1_are_read() {
    let expected = golden_fleet();
    let written = lock(&expected.disk.0).files["00000000000000000001.wal"].clone();
    // For a format that is not released yet.
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(GOLDEN, &written).unwrap();
    }
    let bytes = fs::read(GOLDEN).unwrap();
    let name = "00000000000000000001.wal".to_owned();
    let collector = open(&SimDisk::of([(name, bytes.clone())].into()));
    assert_eq!(held(&collector), held(&expected.collector));
    let view = |collector: &Collector| {
        let epoch = fleet(collector, &Default::default(), at(0))
            .epochs
            .remove(0);
        (
            epoch.agent,
            epoch.account,
            epoch.acked_seq,
            epoch.clock,
            epoch.ticks,
            epoch.running,
        )
    };
    assert_eq!(view(&collector), view(&expected.collector));
    assert_eq!(collector.ingest.log.as_ref().unwrap().found.damages, 0);
    assert_eq!(written, bytes, "this version writes the same");
}

fn golden_fleet() -> Fleet {
    let mut fleet = Fleet::new(1);
    fleet.collector.log().limit_files(u64::MAX);
    fleet.flush(&[0], "load;main;parse:3");
    fleet.flush(&[0], "[no task];idle");
    fleet
}

#[test]
fn an_unknown_version_is_rejected_and_left_unchanged() {
    let mut bytes = fs::read(GOLDEN).unwrap();
    bytes[8] = 2;
    let crc = crc32fast::hash(&bytes[..36]).to_le_bytes();
    bytes[36..40].copy_from_slice(&crc);
    let mut files: Files = lock(&golden_fleet().disk.0).files.clone();
    files.insert("00000000000000000002.wal".to_owned(), bytes);
    let disk = SimDisk::of(files.clone());
    let error = starts::start_on_disk(Objects::memory(), disk.clone()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the log file 00000000000000000002.wal has format 2, but this version of Emberline reads \
         format 1 only; nothing was changed: use the version that wrote it"
    );
    let sim = lock(&disk.0);
    assert_eq!(
        (&sim.files, &sim.operations[..]),
        (&files, &[] as &[Operation])
    );
}

/// The real disk: a folder, its lock, and the thread that writes.
#[test]
fn a_folder_survives_a_restart_and_has_one_collector() {
    let folder = tempfile::tempdir().unwrap();
    let first = Collector::open_folder(settings(), folder.path()).unwrap();
    let mut agent = AgentSide::new(0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let attached = first
            .ingest
            .attach(&state::testing::account(), agent.worker.hello(), at(50))
            .await
            .unwrap();
        agent.worker.count("load;main", State::Cpu, 5);
        let flush = agent.worker.flush(1, vec![]);
        let dictionary = agent.worker.dictionary().unwrap();
        assert_eq!(
            first
                .ingest
                .receive_dictionary(&attached.attachment, &dictionary, at(50)),
            Ok(None)
        );
        let answer = first
            .ingest
            .receive_flush(&attached.attachment, &flush, at(50))
            .await;
        assert!(matches!(answer, Ok(Kind::Ack(_))), "{answer:?}");
    });
    let second = Collector::open_folder(settings(), folder.path()).unwrap_err();
    assert!(
        second.to_string().contains("in use by another collector"),
        "{second}"
    );
    let before = held(&first);
    first.ingest.log.as_ref().unwrap().close();
    drop(first);
    let third = Collector::open_folder(settings(), folder.path()).unwrap();
    assert_eq!((held(&third), before.len()), (before, 1));
    third.ingest.log.as_ref().unwrap().close();
    drop(third);
    inspected::looked_at_from_outside(folder.path());
}

fn settings() -> Settings {
    Settings {
        clock: Clock::from_fn(|| at(50)),
        ..Settings::default()
    }
}
