//! The hostile worker on another allocator than the C library's.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[path = "main.rs"]
mod worker;

fn main() -> anyhow::Result<()> {
    worker::main()
}
