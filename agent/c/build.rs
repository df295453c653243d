//! Names the version of the interface in the library, keeps it in the process for good, and strips it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Threads of the agent run its code, and handlers of signals may at any time: `dlclose` must not unload it.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-soname,libemberline.so.0");
    // Its own debug information would be read in every program, to name the agent's threads.
    println!("cargo::rustc-link-arg-cdylib=-Wl,--strip-debug");
}
