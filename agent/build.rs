//! Sets `cfg(sampler)` where the agent has a sampler. Everywhere else, and with
//! `--cfg emberline_no_sampler`, the crate compiles to an agent that does nothing.
//!
//! `Cargo.toml` repeats the condition for the dependencies of the sampler.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(sampler)");
    let [os, arch, env] = ["OS", "ARCH", "ENV"]
        .map(|part| env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default());
    let is_supported = os == "linux" && env == "gnu" && ["aarch64", "x86_64"].contains(&&*arch);
    let is_disabled = env::var_os("CARGO_CFG_EMBERLINE_NO_SAMPLER").is_some();
    if is_supported && !is_disabled {
        println!("cargo::rustc-cfg=sampler");
    }
}
