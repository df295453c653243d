//! Generates the wire's Rust code from its `.proto` file. The result is committed, so that users
//! need neither this nor protoc; the test below fails when the two differ.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result};

const PACKAGE: &str = "emberline.v1";

/// One generated file: where it is committed and what it must contain.
pub struct Generated {
    /// Path from the workspace's root.
    pub path: &'static str,
    /// The Rust source.
    pub source: String,
}

/// Writes every generated file into the work tree.
///
/// # Errors
/// If the `.proto` file does not compile or a file cannot be written.
pub fn write() -> Result<()> {
    for file in generate()? {
        let path = root().join(file.path);
        fs::write(&path, file.source).with_context(|| format!("writing {}", path.display()))?;
        println!("wrote {}", file.path);
    }
    Ok(())
}

/// Generates messages for profiler-core, the client for the agent, the server for the collector.
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
        builder.build_server(false).extern_path(".emberline.v1", "::profiler_core::wire::v1")
    })?;
    let server = make(|builder| {
        builder.build_client(false).extern_path(".emberline.v1", "::profiler_core::wire::v1")
    })?;
    Ok(vec![
        Generated { path: "profiler-core/src/wire/v1.rs", source: messages },
        Generated { path: "agent/src/ship/client.rs", source: client },
        Generated { path: "collector/src/serve/server.rs", source: server },
    ])
}

/// The workspace's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the workspace").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows that the committed wire code is what the `.proto` file gives.
    #[test]
    fn generated_code_is_up_to_date() {
        for file in generate().unwrap() {
            let committed = fs::read_to_string(root().join(file.path)).unwrap();
            assert!(committed == file.source, "{} is stale: run `cargo xtask proto`", file.path);
        }
    }
}
