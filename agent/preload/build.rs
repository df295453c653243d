//! Compiles the functions of a variable number of arguments, and links the library. It is stripped: its own debug
//! information would be read in every program, to name the agent's threads.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/sys/execl.c");
    println!("cargo::rustc-link-arg-cdylib=-Wl,--strip-all");
    // Calls within the library reach its own functions, also where the program has one of that name.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-Bsymbolic-functions");
    cc::Build::new()
        .file("src/sys/execl.c")
        .warnings_into_errors(true)
        .compile("emberline_execl");
}
