//! Work that a runtime does while others wait for it.

use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::{Kind, Problem};

struct Slot<T> {
    outcome: Mutex<Option<Result<T, Problem>>>,
    bell: Condvar,
}

impl<T> Slot<T> {
    fn fill(&self, outcome: Result<T, Problem>) {
        let mut place = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        place.get_or_insert(outcome);
        drop(place);
        self.bell.notify_all();
    }
}

/// Fills the slot if the task ends without doing so: who waits must not wait for ever.
struct Promise<T>(Arc<Slot<T>>);

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.0.fill(Err(Problem::at_once(Kind::Other, "the work was broken off", "")));
    }
}

/// Work on its way. Dropping it cancels the work.
pub struct Pending<T> {
    slot: Arc<Slot<T>>,
    task: AbortHandle,
    pid: u32,
}

impl<T: Clone + Send + 'static> Pending<T> {
    /// Begin the work.
    pub fn begin(
        runtime: &Handle,
        work: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Self {
        let slot = Arc::new(Slot { outcome: Mutex::new(None), bell: Condvar::new() });
        let promise = Promise(Arc::clone(&slot));
        let task = runtime.spawn(async move {
            let outcome = work.await;
            promise.0.fill(outcome);
        });
        Self { slot, task: task.abort_handle(), pid: std::process::id() }
    }

    /// The outcome, if it is there.
    pub fn outcome(&self) -> Option<Result<T, Problem>> {
        self.slot.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same after waiting for at most so long.
    pub fn outcome_within(&self, time: Duration) -> Option<Result<T, Problem>> {
        let place = self.slot.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.slot.bell.wait_timeout_while(place, time, |outcome| outcome.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

impl<T> Pending<T> {
    /// Whether the outcome is there.
    pub fn is_ready(&self) -> bool {
        self.slot.outcome.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        // The parent's work is not a child's to cancel, and its scheduler may be locked for ever.
        if self.pid == std::process::id() {
            self.task.abort();
        }
    }
}
