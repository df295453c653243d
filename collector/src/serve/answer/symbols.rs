//! Symbol files.

use base::limits::SYMBOL_STORE_BYTES_MAX;
use naming::{
    Fetch, FetchProgress, FetchState, FileError, ListedFile, Missing, Received, is_made_code,
};
use query::{Unnamed, format_time};

pub(crate) fn unnamed(unnamed: &Unnamed) -> api::Unnamed {
    let modules = unnamed.modules.iter().map(|module| {
        let (reason, help) = reason(&module.why, &module.build_id, &module.module);
        api::UnnamedModule {
            module: module.module.clone(),
            build_id: module.build_id.clone(),
            own_ns: module.own_ns,
            reason: reason.into(),
            help,
        }
    });
    api::Unnamed {
        total_ns: unnamed.total_ns,
        pending: unnamed.is_pending(),
        modules: modules.collect(),
    }
}

fn reason(why: &Missing, build_id: &str, module: &str) -> (&'static str, String) {
    match why {
        Missing::Pending => (
            "pending",
            "names are being read; ask again in a few seconds".to_owned(),
        ),
        Missing::NoFile => (
            "no_file",
            format!(
                "no symbols for build id {build_id}; run: emberline symbols upload FILE, with the \
                 file as it was before it was stripped, or its debug file; or ask a worker that has \
                 them: emberline symbols fetch {}",
                api::shell_quoted(build_id)
            ),
        ),
        Missing::NoFunction => (
            "no_function",
            format!("the symbols of build id {build_id} have no function there"),
        ),
        Missing::NoSegments => (
            "no_segments",
            format!(
                "the profile has offsets in the file, and the symbols of build id {build_id} do not \
                 say their addresses; run: emberline symbols upload FILE, with the program itself"
            ),
        ),
        Missing::Unusable(reason) => (
            "unusable",
            format!("the symbols of build id {build_id} cannot be used: {reason}"),
        ),
        Missing::NoBuildId if is_made_code(module) => (
            "no_build_id",
            format!(
                "a runtime made the code while the program ran, and did not name it in /tmp/{module}: \
                 `emberline record` says which option makes it do that"
            ),
        ),
        Missing::NoBuildId => (
            "no_build_id",
            "the module has no build id; link it with -Wl,--build-id".to_owned(),
        ),
    }
}

pub(crate) fn symbols(files: Vec<ListedFile>, fetches: Vec<Fetch>) -> api::SymbolsAnswer {
    let bytes = files.iter().map(|file| file.bytes).sum();
    let files = files.into_iter().map(|file| {
        let (detail, source_bytes, ranges, problem) = match file.facts {
            Ok(facts) => (
                facts.detail.name(),
                facts.source_bytes,
                facts.ranges,
                String::new(),
            ),
            Err(problem) => ("", 0, 0, problem),
        };
        api::SymbolFile {
            build_id: file.build_id,
            bytes: file.bytes,
            used_at: format_time(file.used_at),
            used_at_ns: file.used_at.unix_ns(),
            detail: detail.into(),
            source_bytes,
            ranges,
            problem,
        }
    });
    api::SymbolsAnswer {
        files: files.collect(),
        bytes,
        bytes_max: SYMBOL_STORE_BYTES_MAX,
        fetches: fetches.into_iter().map(fetch).collect(),
    }
}

fn fetch(Fetch { build_id, state }: Fetch) -> api::SymbolFetch {
    let (name, progress, problem) = match state {
        FetchState::Waiting => ("waiting", FetchProgress::default(), String::new()),
        FetchState::Running(progress) => ("running", progress, String::new()),
        FetchState::Failed(problem) => ("failed", FetchProgress::default(), problem),
    };
    let FetchProgress {
        worker,
        received,
        bytes,
    } = progress;
    api::SymbolFetch {
        build_id,
        state: name.into(),
        worker,
        received,
        bytes,
        problem,
    }
}

pub(crate) fn symbols_verified(
    files: usize,
    problems: Vec<(String, FileError)>,
) -> api::SymbolsVerifyAnswer {
    api::SymbolsVerifyAnswer {
        files,
        problems: problems
            .into_iter()
            .map(
                |(build_id, error): (String, FileError)| api::SymbolProblem {
                    build_id,
                    problem: error.to_string(),
                },
            )
            .collect(),
    }
}

pub(crate) fn symbols_received(received: Received) -> api::SymbolUploadAnswer {
    api::SymbolUploadAnswer {
        received: received.bytes,
        stored: received.is_stored,
        known: received.was_known,
    }
}

pub(crate) fn symbols_removed(files: Vec<ListedFile>) -> api::SymbolsGcAnswer {
    api::SymbolsGcAnswer {
        bytes: files.iter().map(|file| file.bytes).sum(),
        removed: files.into_iter().map(|file| file.build_id).collect(),
    }
}
