//! Being told of forks.

/// Calls `handler` in each child that this process forks from now on, before the program goes on
/// there. `handler` must not allocate, lock or wait. Should the system have no room to remember it,
/// children go on as if nothing had happened.
pub(crate) fn call_in_forked_children(handler: extern "C" fn()) {
    // SAFETY: `handler` is a function that lives as long as this code does; the C library forgets it
    // when this code is unloaded.
    let result = unsafe { libc::pthread_atfork(None, None, Some(handler)) };
    if result != 0 {
        tracing::warn!("a forked child will not know that its agent does not run");
    }
}
