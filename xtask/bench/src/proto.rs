//! Generates the wire's Rust code from its `.proto` file. The result is committed, so that users need
//! neither this program nor protoc; the test below fails if they differ.

use std::{env, fs};

use anyhow::{Context, Result};

use xtask::root;

const PACKAGE: &str = "emberline.v1";

/// Where the generated files are committed: messages, and the client of simulated agents. Agent and
/// collector speak gRPC without generated code.
const GENERATED_PATHS: [&str; 2] = [
    "profiler-core/src/wire/v1.rs",
    "tests/simulation/src/client.rs",
];

/// One generated file: where it is committed and what it must contain.
struct Generated {
    /// Path from the workspace's root.
    path: &'static str,
    /// The Rust source.
    source: String,
}

/// Writes every generated file into the work tree.
///
/// # Errors
/// If the `.proto` file does not compile or a file cannot be written.
pub(crate) fn write() -> Result<()> {
    for file in generate()? {
        let path = root().join(file.path);
        fs::write(&path, file.source).with_context(|| format!("writing {}", path.display()))?;
        println!("wrote {}", file.path);
    }
    Ok(())
}

/// Generates messages for profiler-core and the client for simulated agents.
fn generate() -> Result<Vec<Generated>> {
    let directory = root().join("profiler-core/proto");
    let descriptors = protox::compile(["emberline.proto"], [directory])?;
    let make = |configure: fn(tonic_prost_build::Builder) -> tonic_prost_build::Builder| {
        let out = env::temp_dir().join(format!("emberline-proto-{}", std::process::id()));
        fs::create_dir_all(&out)?;
        configure(tonic_prost_build::configure())
            .emit_rerun_if_changed(false)
            .out_dir(&out)
            .compile_fds(descriptors.clone())?;
        let source = fs::read_to_string(out.join(format!("{PACKAGE}.rs")))?;
        fs::remove_dir_all(&out)?;
        anyhow::Ok(source)
    };
    let messages = make(|builder| builder.build_client(false).build_server(false))?;
    let client = make(|builder| {
        builder
            .build_server(false)
            .codec_path("super::super::codec::SmallCodec")
            .extern_path(".emberline.v1", "::profiler_core::wire::v1")
    })?;
    let sources = [messages, client];
    Ok(GENERATED_PATHS
        .into_iter()
        .zip(sources)
        .map(|(path, source)| Generated { path, source })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The committed code equals the code generated from the `.proto` file.
    #[test]
    fn generated_code_is_up_to_date() {
        for file in generate().unwrap() {
            let committed = fs::read_to_string(root().join(file.path)).unwrap();
            assert!(
                committed == file.source,
                "{} is stale: run `cargo xtask proto`",
                file.path
            );
        }
    }
}
