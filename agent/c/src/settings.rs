//! Checks of what the program passes, in the words of its errors.

use std::time::Duration;

use agent::{AgentBuilder, Direction, TaskBuilder, TaskHandle};

use crate::call::{Failure, Status};
use crate::sys::EmberlineDirection;

/// Most labels or keys that are read: a longer list is taken for an error of the program.
pub(crate) const LIST_MAX: usize = 1_024;

/// A label: a key and its value.
#[derive(Debug)]
pub(crate) struct Label<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: &'a str,
}

/// Settings of an agent; `None` and 0 are the defaults.
#[derive(Debug, Default)]
pub(crate) struct Settings<'a> {
    pub(crate) worker: Option<&'a str>,
    pub(crate) collector: Option<&'a str>,
    pub(crate) token_file: Option<&'a str>,
    pub(crate) default_task: Option<&'a str>,
    pub(crate) labels: Vec<Label<'a>>,
    pub(crate) interval_s: f64,
    pub(crate) cpu_limit: f64,
    pub(crate) flush_timeout_s: f64,
}

impl Settings<'_> {
    /// # Errors
    /// If a length of time is negative, infinite or no number.
    pub(crate) fn builder(&self) -> Result<AgentBuilder, Failure> {
        let mut builder = AgentBuilder::default();
        if let Some(worker) = self.worker {
            builder = builder.worker(worker);
        }
        if let Some(collector) = self.collector {
            builder = builder.collector(collector);
        }
        if let Some(file) = self.token_file {
            builder = builder.token_file(file);
        }
        if let Some(name) = self.default_task {
            builder = builder.default_task(name);
        }
        for Label { key, value } in &self.labels {
            builder = builder.label(*key, *value);
        }
        if let Some(interval) = seconds(self.interval_s, "interval_s")? {
            builder = builder.interval(interval);
        }
        if self.cpu_limit != 0.0 {
            builder = builder.cpu_limit(self.cpu_limit);
        }
        if let Some(timeout) = seconds(self.flush_timeout_s, "flush_timeout_s")? {
            builder = builder.flush_timeout(timeout);
        }
        Ok(builder)
    }
}

/// The properties of a task at its start.
#[derive(Debug)]
pub(crate) struct Description<'a> {
    pub(crate) name: &'a str,
    pub(crate) key: Option<&'a str>,
    /// 0 for none.
    pub(crate) attempt: u32,
    /// `None` for the current task of the thread.
    pub(crate) parent: Option<TaskHandle>,
    pub(crate) labels: Vec<Label<'a>>,
    pub(crate) queued_for_s: f64,
}

impl Description<'_> {
    /// # Errors
    /// If the length of the wait is negative, infinite or no number.
    pub(crate) fn builder(&self) -> Result<TaskBuilder, Failure> {
        let queued = seconds(self.queued_for_s, "queued_for_s")?;
        let mut builder = agent::task(self.name);
        if let Some(key) = self.key {
            builder = builder.key(key);
        }
        if self.attempt != 0 {
            builder = builder.attempt(self.attempt);
        }
        if let Some(parent) = &self.parent {
            builder = builder.parent(parent);
        }
        if let Some(queued) = queued {
            builder = builder.queued_for(queued);
        }
        for Label { key, value } in &self.labels {
            builder = builder.label(key, value);
        }
        Ok(builder)
    }
}

/// Returns a length of time; `None` for 0, the default.
///
/// # Errors
/// If it is negative, infinite or no number.
pub(crate) fn seconds(seconds: f64, of: &str) -> Result<Option<Duration>, Failure> {
    if seconds == 0.0 {
        return Ok(None);
    }
    Duration::try_from_secs_f64(seconds).map(Some).map_err(|_| {
        let text = format!("invalid {of} {seconds}; expected a number of seconds, from 0");
        Failure::new(Status::InvalidArgument, text)
    })
}

/// Returns a name that is not empty.
///
/// # Errors
/// If it is.
pub(crate) fn name<'a>(text: Option<&'a str>, of: &str) -> Result<&'a str, Failure> {
    text.filter(|text| !text.is_empty()).ok_or_else(|| {
        let is = if text.is_none() { "NULL" } else { "empty" };
        let text = format!("the {of} is {is}; expected a text of at least one byte");
        Failure::new(Status::InvalidArgument, text)
    })
}

/// Returns a direction by its number.
///
/// # Errors
/// If it has none of the two.
pub(crate) fn direction(number: i32) -> Result<Direction, Failure> {
    const INCOMING: i32 = EmberlineDirection::Incoming as i32;
    const OUTGOING: i32 = EmberlineDirection::Outgoing as i32;
    match number {
        INCOMING => Ok(Direction::Incoming),
        OUTGOING => Ok(Direction::Outgoing),
        _ => {
            let text = format!(
                "invalid direction {number}; expected {INCOMING} (incoming) or {OUTGOING} (outgoing)"
            );
            Err(Failure::new(Status::InvalidArgument, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_argument_and_what_is_allowed() {
        for (text, says) in [(None, "NULL"), (Some(""), "empty")] {
            let error = format!("{:?}", name(text, "name of a task").unwrap_err());
            assert!(
                error.contains(&format!("the name of a task is {says}; expected")),
                "{error}"
            );
        }
        assert_eq!(name(Some("load"), "name").unwrap(), "load");
        for length in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            let error = format!("{:?}", seconds(length, "interval_s").unwrap_err());
            assert!(error.contains("invalid interval_s"), "{error}");
        }
        assert_eq!(seconds(0.0, "interval_s").unwrap(), None);
        assert_eq!(
            seconds(0.5, "interval_s").unwrap(),
            Some(Duration::from_millis(500))
        );
    }
}
