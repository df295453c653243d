//! Facts about all samples of a text, which are known before the first one is read.

use super::event::{Meaning, Modes, plain_event};
use super::header::Header;
use crate::error::{ImportError, echo};
use crate::limits::{ENTRY_BYTES_MAX, NAMED_EVENTS_MAX};
use crate::model::{ImportFormat, ImportOptions};

/// Fewest samples whose times tell that they are differences.
const TIMES_MIN: u64 = 3;

/// The samples that count.
#[derive(Default)]
pub(super) struct Survey {
    /// The event whose samples are time on a CPU, without modifiers: the first such one. Without any, the first event
    /// if the options have the time of a sample. `None` if the file has no samples, or those of waits only.
    pub(super) event: Option<String>,
    /// The modes of its samples that count, which exclude each other. Empty if all do.
    pub(super) modes: Vec<Modes>,
    /// Whether the periods of the samples say how much of the time each one is. In equal intervals, a processor is
    /// sampled as often in a mode in which it is seldom as in one in which it is mostly.
    pub(super) has_shares: bool,
    /// Whether the event is not a clock.
    pub(super) is_cycles: bool,
    /// Whether each of its samples has a period.
    pub(super) has_periods: bool,
    /// Whether there is idle time, which only recordings of whole systems have.
    pub(super) has_idle: bool,
}

impl Survey {
    pub(super) fn of(content: &[u8], options: &ImportOptions) -> Result<Survey, ImportError> {
        let mut reader = Reader::default();
        for bytes in content.split(|byte| *byte == b'\n') {
            // Nearly all lines are frames.
            if bytes.first() == Some(&b'\t') {
                continue;
            }
            let line = String::from_utf8_lossy(&bytes[..bytes.len().min(ENTRY_BYTES_MAX)]);
            if let Some(comment) = line.strip_prefix('#') {
                reader.comment(comment);
            }
            if let Some(header) = Header::parse(line.trim_ascii_end()) {
                reader.header(&header);
            }
        }
        reader.finish(options)
    }

    /// Whether samples of an event count.
    pub(super) fn counts(&self, event: &str) -> bool {
        self.event.as_deref() == Some(plain_event(event))
            && (self.modes.is_empty() || self.mode(event).is_some())
    }

    /// The index of the event's mode.
    pub(super) fn mode(&self, event: &str) -> Option<usize> {
        let modes = Modes::of(event);
        self.modes.iter().position(|known| *known == modes)
    }
}

#[derive(Default)]
struct Reader {
    event: Option<String>,
    is_cycles: bool,
    modes: Vec<Modes>,
    lacks_period: bool,
    /// Events that are no time.
    others: Vec<String>,
    has_waits: bool,
    has_idle: bool,
    times: Times,
    /// Events that comments name.
    named: Vec<String>,
}

impl Reader {
    fn comment(&mut self, comment: &str) {
        let description = comment.trim_start().strip_prefix("event : ");
        let name = description
            .and_then(|description| description.split_once("name = "))
            .and_then(|(_, rest)| rest.split([',', ' ']).next());
        let Some(name) = name else { return };
        // It has no samples.
        let is_dummy = plain_event(name) == "dummy";
        if !is_dummy && self.named.len() < NAMED_EVENTS_MAX {
            self.named.push(name.to_owned());
        }
    }

    fn header(&mut self, header: &Header<'_>) {
        if let Some(at_ns) = header.at_ns {
            self.times.add(at_ns);
        }
        self.has_idle |= header.is_idle();
        let plain = plain_event(header.event);
        match Meaning::of(header.event) {
            meaning @ (Meaning::Clock | Meaning::Cycles) => {
                let is_chosen = *self.event.get_or_insert_with(|| plain.to_owned()) == *plain;
                if is_chosen {
                    self.is_cycles = meaning == Meaning::Cycles;
                    self.lacks_period |= header.period.is_none();
                    let modes = Modes::of(header.event);
                    if !self.modes.contains(&modes) {
                        self.modes.push(modes);
                    }
                }
            }
            Meaning::OffCpu => self.has_waits = true,
            Meaning::Count if self.others.iter().any(|known| known == plain) => {}
            Meaning::Count if self.others.len() < NAMED_EVENTS_MAX => {
                self.others.push(plain.to_owned());
            }
            Meaning::Count => {}
        }
    }

    fn finish(mut self, options: &ImportOptions) -> Result<Survey, ImportError> {
        if self.times.are_differences() {
            return Err(ImportError::OtherFormat {
                name: "the output of `perf script --deltatime`, whose times are differences",
                instead: "run `perf script` without --deltatime and import its output",
            });
        }
        let has_idle = self.has_idle;
        let Some(event) = self.event else {
            return Ok(Survey {
                event: Reader::count(&mut self.others, self.has_waits, options)?,
                has_idle,
                ..Survey::default()
            });
        };
        if event.is_empty() && self.named.len() > 1 {
            return Err(ImportError::NoUnit {
                found: "the samples are of several events, and do not say of which",
                instead: "`perf script -F +event` and import its output",
            });
        }
        let modes = Modes::exclusive(&self.modes);
        let needs_shares = self.is_cycles && modes.len() > 1 && options.interval_ns.is_none();
        if needs_shares && self.lacks_period {
            return Err(ImportError::NoUnit {
                found: "the samples are of cycles in several modes, such as cycles:u and cycles:k, and do not say how \
                        many cycles",
                instead: "`perf script -F +period` and import its output",
            });
        }
        Ok(Survey {
            event: Some(event),
            modes,
            has_shares: needs_shares,
            is_cycles: self.is_cycles,
            has_periods: !self.lacks_period,
            has_idle,
        })
    }

    /// The event of a file without any that is time.
    fn count(
        others: &mut Vec<String>,
        has_waits: bool,
        options: &ImportOptions,
    ) -> Result<Option<String>, ImportError> {
        if others.is_empty() || has_waits {
            return Ok(None);
        }
        if options.interval_ns.is_some() {
            return Ok(Some(others.swap_remove(0)));
        }
        let found = echo(&others.join(", "));
        Err(ImportError::NoTime {
            format: ImportFormat::Perf,
            found: format!("{found}; --interval sets the time of a sample"),
        })
    }
}

/// The times of all samples. They rise, but for a few of different processors.
#[derive(Default)]
struct Times {
    count: u64,
    first_ns: u64,
    latest_ns: u64,
    /// Those that are earlier than one before.
    earlier: u64,
    /// Those that equal the one before them.
    equal: u64,
    last_ns: u64,
}

impl Times {
    fn add(&mut self, at_ns: u64) {
        if self.count == 0 {
            self.first_ns = at_ns;
        } else {
            self.earlier += u64::from(at_ns < self.latest_ns);
            self.equal += u64::from(at_ns == self.last_ns);
        }
        self.count += 1;
        self.latest_ns = self.latest_ns.max(at_ns);
        self.last_ns = at_ns;
    }

    /// Whether each is the time since the sample before.
    fn are_differences(&self) -> bool {
        if self.count < TIMES_MIN {
            return false;
        }
        let is_constant = self.first_ns == 0 && self.latest_ns > 0 && self.equal == self.count - 2;
        self.earlier > self.count / 2 || is_constant
    }
}
