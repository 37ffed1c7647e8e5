//! How many requests a store gets at once: fewer after it asked to slow down, then slowly more again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// At most so many requests at once.
pub const MOST: usize = 64;
/// A limit is changed at most so often, because many answers belong to one moment.
const PAUSE: Duration = Duration::from_secs(1);

struct Count {
    active: usize,
    limit: usize,
    changed: Option<Instant>,
}

/// Lets in as many requests as the store bears.
pub struct Gate {
    count: Mutex<Count>,
    left: Notify,
}

/// One request that was let in.
pub struct Pass(Arc<Gate>);

impl Gate {
    /// Open for the most requests.
    pub fn new() -> Arc<Self> {
        let count = Mutex::new(Count { active: 0, limit: MOST, changed: None });
        Arc::new(Self { count, left: Notify::new() })
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait to be let in.
    pub async fn enter(self: &Arc<Self>) -> Pass {
        loop {
            {
                let mut count = self.count();
                if count.active < count.limit {
                    count.active = count.active.saturating_add(1);
                    return Pass(Arc::clone(self));
                }
            }
            // A request that left before this line is not missed: the notice is kept for who asks next.
            self.left.notified().await;
        }
    }

    /// The store asked for fewer requests.
    pub fn slow_down(&self) {
        let mut count = self.count();
        if count.changed.is_none_or(|time| time.elapsed() >= PAUSE) {
            count.limit = (count.limit / 2).max(1);
            count.changed = Some(Instant::now());
        }
    }

    /// How many requests are let in at once.
    pub fn limit(&self) -> usize {
        self.count().limit
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut count = self.0.count();
        count.active = count.active.saturating_sub(1);
        let mut places = 1;
        if count.limit < MOST && count.changed.is_some_and(|time| time.elapsed() >= PAUSE) {
            count.limit = count.limit.saturating_add(1);
            count.changed = Some(Instant::now());
            places = 2;
        }
        drop(count);
        (0..places).for_each(|_| self.0.left.notify_one());
    }
}
