//! Fork handlers.

/// Calls `handler` in each child that this process forks from now on, before `fork` returns there.
/// `handler` must not allocate, lock or wait. If the C library has no memory to register it, this
/// logs a warning and children keep the parent's state.
pub fn call_in_forked_children(handler: extern "C" fn()) {
    // SAFETY: `handler` is a function that lives as long as this code does; the C library forgets
    // it when this code is unloaded.
    let result = unsafe { libc::pthread_atfork(None, None, Some(handler)) };
    if result != 0 {
        tracing::warn!("cannot register a fork handler; forked children will not reset the agent");
    }
}
