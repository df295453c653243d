//! A stripped library of assembly: its symbols have no sizes, most functions have none, and no table describes them.

use super::*;

const SOURCE: &str = "
    .text
    .p2align 4
    .globl exported
exported:
    mov %rdi, %rax
    ret
    .p2align 4
hidden:
    mov %rsi, %rax
    ret
    .p2align 4
another:
    mov %rdx, %rax
    ret
";

#[test]
fn functions_of_assembly_stay_apart() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("assembly.s");
    let library = folder.path().join("libassembly.so");
    fs::write(&source, SOURCE).unwrap();
    run(
        "cc",
        &[&"-shared", &"-nostdlib", &"-s", &"-o", &library, &source],
    );
    let cache = ChunkCache::new(None).unwrap();
    let start = Elf::open(&library, &cache)
        .unwrap()
        .section(".text")
        .unwrap()
        .address;
    drop(cache);
    let names = |offset: u64| {
        let found = resolved_by(
            Resolver::default(),
            &module(&library),
            [start + offset].into_iter(),
        );
        found[0][0].label()
    };
    let start_at = |offset: u64| format!("libassembly.so+{:#x}", start + offset);
    for (offset, expected) in [
        (0, "exported".to_owned()),
        (3, "exported".to_owned()),
        (16, start_at(16)),
        (19, start_at(16)),
        (35, start_at(32)),
    ] {
        assert_eq!(names(offset), expected, "{offset}");
    }
}
