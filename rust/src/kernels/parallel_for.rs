//! Runs the jobs of one call on several threads. The threads end with the call, so that none exist
//! when the process forks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::wire::{Fault, FaultKind};

/// Run all jobs, started in order, on `threads` threads, each with its own state. After a fault, no new job
/// starts. Of several faults, that of the first job is returned, whatever the timing.
pub fn parallel_for<S, J: Send, R: Send>(
    jobs: impl Iterator<Item = J> + Send,
    num_jobs: usize,
    threads: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, J) -> Result<R, Fault> + Sync,
) -> Result<Vec<R>, Fault> {
    let queue = Mutex::new(jobs.enumerate());
    let stopped = AtomicBool::new(false);
    let run = || {
        let mut state = state();
        let mut done = Vec::new();
        while !stopped.load(Ordering::Relaxed) {
            let next = queue.lock().ok().and_then(|mut queue| queue.next());
            let Some((number, job)) = next else { break };
            match work(&mut state, job) {
                Ok(result) => done.push((number, result)),
                Err(fault) => {
                    stopped.store(true, Ordering::Relaxed);
                    return Err((number, fault.in_record(number)));
                }
            }
        }
        Ok(done)
    };
    let threads = threads.clamp(1, num_jobs.max(1));
    let panicked = || (0, Fault::new(FaultKind::Structure, 0, "a thread has panicked"));
    let outcomes = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut outcomes = vec![run()];
        for other in others {
            outcomes.push(other.join().unwrap_or_else(|_| Err(panicked())));
        }
        outcomes
    });
    let mut done = Vec::with_capacity(num_jobs);
    let mut first: Option<(usize, Fault)> = None;
    for outcome in outcomes {
        match outcome {
            Ok(some) => done.extend(some),
            Err(fault) if first.as_ref().is_none_or(|(number, _)| fault.0 < *number) => {
                first = Some(fault);
            }
            Err(_) => {}
        }
    }
    if let Some((_, fault)) = first {
        return Err(fault);
    }
    done.sort_unstable_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
