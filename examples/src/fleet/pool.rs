//! A few threads that live as long as their role, so that a task stream has one row per thread and
//! not one per batch.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use anyhow::{Context as _, bail};

use super::context::Context;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take jobs from one queue; they end when the pool is dropped.
pub(crate) struct Pool {
    /// `None` only while dropping: closing the queue ends the threads.
    queue: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts at most `threads` threads: fewer if the worker's share of the machine is smaller.
    pub(crate) fn new(context: &Context, name: &str, threads: usize) -> anyhow::Result<Self> {
        let (queue, jobs) = mpsc::channel::<Job>();
        let jobs = Arc::new(Mutex::new(jobs));
        let threads = (0..context.threads(threads))
            .map(|index| {
                let jobs = Arc::clone(&jobs);
                let context = context.clone();
                Builder::new()
                    .name(format!("{name}-{index}"))
                    .spawn(move || run_jobs(&jobs, &context))
            })
            .collect::<Result<_, _>>()
            .with_context(|| format!("could not start the threads of {name}"))?;
        Ok(Self {
            queue: Some(queue),
            threads,
        })
    }

    /// Applies `work` to every item on the pool's threads, and returns the results in the items'
    /// order.
    ///
    /// # Errors
    /// If `work` panicked for an item.
    pub(crate) fn map<T, U>(
        &self,
        items: Vec<T>,
        work: impl Fn(T) -> U + Clone + Send + 'static,
    ) -> anyhow::Result<Vec<U>>
    where
        T: Send + 'static,
        U: Send + 'static,
    {
        let (sender, results) = mpsc::channel();
        let expected = items.len();
        let Some(queue) = &self.queue else {
            bail!("the pool has ended")
        };
        for (index, item) in items.into_iter().enumerate() {
            let sender = sender.clone();
            let work = work.clone();
            // A closed receiver wants no result; not the job's fault.
            let job = Box::new(move || drop(sender.send((index, work(item)))));
            queue
                .send(job)
                .map_err(|_| anyhow::anyhow!("all threads of the pool have ended"))?;
        }
        // Only jobs hold senders now. One that panics drops its sender, so this loop always ends.
        drop(sender);
        let mut done: Vec<(usize, U)> = results.into_iter().collect();
        if done.len() < expected {
            bail!("{} of {expected} jobs panicked", expected - done.len());
        }
        done.sort_by_key(|(index, _)| *index);
        Ok(done.into_iter().map(|(_, result)| result).collect())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            // `map` has already reported a thread that panicked.
            let _ = thread.join();
        }
    }
}

fn run_jobs(jobs: &Mutex<Receiver<Job>>, context: &Context) {
    loop {
        // A separate statement: the lock must be free while the job runs.
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => job(),
            Err(_) => return,
        }
        context.rest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results come in the order of the items, whichever thread took them.
    #[test]
    fn results_keep_the_order_of_the_items() {
        let pool = Pool::new(&Context::new(0, 0), "test", 3).unwrap();
        let squares = pool
            .map((0..100u64).collect(), |number| number * number)
            .unwrap();
        assert_eq!(
            squares,
            (0..100u64)
                .map(|number| number * number)
                .collect::<Vec<_>>()
        );
    }

    /// A job that panics is an error of the call, which neither hangs nor panics itself.
    #[test]
    fn a_panicking_job_is_an_error() {
        let pool = Pool::new(&Context::new(0, 0), "test", 2).unwrap();
        let error = pool.map(vec![1, 2, 3], |number| {
            if number == 2 {
                std::panic::resume_unwind(Box::new("on purpose"));
            }
        });
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("1 of 3 jobs panicked")
        );
        // More panics than threads: jobs that no thread is left to take must end the call as well.
        let error = pool.map(vec![(); 9], |()| {
            std::panic::resume_unwind(Box::new("on purpose"))
        });
        assert!(error.map(|_: Vec<()>| ()).is_err());
    }
}
