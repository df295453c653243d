//! The library that `emberline record` and `emberline run` load into programs, with an agent of its own.

use std::ffi::c_void;
use std::mem::transmute;

use crate::fork::without_fork;

/// Ends the library's agent in this process, because the program starts one of its own. Waits for its last flush, at most
/// three seconds.
pub fn hand_over() {
    // The loader's lock, which a child that is forked meanwhile would keep.
    let found = without_fork(|| {
        // SAFETY: the name is a string that ends in a 0.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"emberline_preload_hand_over".as_ptr()) }
    });
    if !found.is_null() {
        // SAFETY: a function of that name is the library's, of this type, and no process unloads it.
        let function = unsafe { transmute::<*mut c_void, extern "C" fn()>(found) };
        function();
    }
}
