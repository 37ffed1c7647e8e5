//! What belongs to one process. Threads and connections do not survive a fork: a child leaves what its
//! parent made where it is, and makes its own.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use tokio::runtime::{Builder, Handle, Runtime};

use super::{Kind, Problem};

struct Owned<T> {
    pid: u32,
    value: T,
}

/// A value that is made once in each process. No locks: a fork may happen while one is held.
pub struct PerProcess<T>(AtomicPtr<Owned<T>>);

impl<T> PerProcess<T> {
    /// Nothing is made yet.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// This process's value, or None before it was made.
    pub fn get(&self) -> Option<&T> {
        // SAFETY: the pointer is null or came from `Box::into_raw` in `get_or_make`. Only `drop`, which
        // has the value for itself, frees it: what a fork leaves behind is never freed.
        let owned = unsafe { self.0.load(Ordering::Acquire).as_ref() };
        owned.filter(|owned| owned.pid == std::process::id()).map(|owned| &owned.value)
    }

    /// This process's value, made now if it has none. Of several that are made at once, one is kept.
    pub fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        let before = self.0.load(Ordering::Acquire);
        // SAFETY: as in `get`.
        if let Some(owned) = unsafe { before.as_ref() }
            && owned.pid == std::process::id()
        {
            return Ok(&owned.value);
        }
        let made = Box::into_raw(Box::new(Owned { pid: std::process::id(), value: make()? }));
        match self.0.compare_exchange(before, made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: `made` is valid and is kept.
            Ok(_) => Ok(unsafe { &(*made).value }),
            Err(theirs) => {
                // SAFETY: `made` was not shared; `theirs` is kept, and another thread of this process
                // made it, because a fork leaves a child only one thread.
                unsafe {
                    drop(Box::from_raw(made));
                    Ok(&(*theirs).value)
                }
            }
        }
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        if self.get().is_some() {
            // SAFETY: this process made it by `Box::into_raw`, and nobody else has it any more.
            drop(unsafe { Box::from_raw(*self.0.get_mut()) });
        }
    }
}

// SAFETY: it hands out `&T` to all threads, and a T that one thread made may be dropped by another.
unsafe impl<T: Send + Sync> Sync for PerProcess<T> {}
// SAFETY: the pointer owns a T.
unsafe impl<T: Send> Send for PerProcess<T> {}

static RUNTIME: PerProcess<Runtime> = PerProcess::new();

/// The threads that wait for stores, started at first use.
pub fn runtime() -> Result<&'static Handle, Problem> {
    let made = RUNTIME.get_or_make(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Builder::new_multi_thread()
            .worker_threads(if cores >= 8 { 2 } else { 1 })
            .max_blocking_threads(16)
            .thread_name("penstock-store")
            .enable_all()
            .build()
    });
    match made {
        Ok(runtime) => Ok(runtime.handle()),
        Err(error) => Err(Problem::at_once(
            Kind::Other,
            format!("the threads that wait for stores cannot be started: {error}"),
            "",
        )),
    }
}
