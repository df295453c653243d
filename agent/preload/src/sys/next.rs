//! The C library's functions behind those that are exported here.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::mem::transmute_copy;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next function of a name in the loader's order, of type `F`.
pub(super) struct Next<F> {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
    function: PhantomData<F>,
}

/// The name of a function, with the 0 at its end.
pub(super) const fn name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name ends in its only 0"),
    }
}

impl<F: Copy> Next<F> {
    /// # Safety
    /// `F` is the type of the function pointer of that name in the C library.
    pub(super) const unsafe fn new(name: &'static CStr) -> Next<F> {
        Next {
            name,
            address: AtomicPtr::new(ptr::null_mut()),
            function: PhantomData,
        }
    }

    /// Looks the function up, because later a forked child may call it, in which the loader's lock is held.
    pub(super) fn resolve(&self) -> *mut c_void {
        // SAFETY: the name is a string that ends in a 0.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Release);
        found
    }

    /// The function; `None` if the C library has none of that name.
    pub(super) fn get(&self) -> Option<F> {
        let known = self.address.load(Ordering::Acquire);
        // Constructors of other libraries may run before ours.
        let address = if known.is_null() {
            self.resolve()
        } else {
            known
        };
        if address.is_null() {
            return None;
        }
        // SAFETY: the address of a function, of type `F` by the contract of `new`.
        Some(unsafe { transmute_copy::<*mut c_void, F>(&address) })
    }
}
