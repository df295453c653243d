//! What a collector asks of the running agent: other settings, and the stacks of the moment.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use profiler_core::limits::bounded_name;
use profiler_core::wire::v1::{self, agent_message::Kind};
use profiler_core::wire::{
    AppliedSettings, WireError, decode_settings, encode_applied, encode_thread_dump,
};

use crate::control::Control;
use crate::control::ThreadDumpReply;
use crate::sync::lock;

/// Most questions that wait for an answer; what comes then is told so.
const QUESTIONS_MAX: usize = 16;

/// While settings are not applied yet, they are looked after this often: the sampler does not wake
/// anybody.
const APPLYING: Duration = Duration::from_millis(20);

/// When nothing else is said for so long, the settings are said again: a collector takes silence for
/// a host that is gone, and an agent that is off has nothing to flush.
const SILENCE: Duration = Duration::from_secs(20);

/// What one stream's collector asked, and what it was told.
#[derive(Debug)]
pub(crate) struct Live<'a> {
    control: &'a Control,
    stacks: &'a Mutex<Option<ThreadDumpReply>>,
    questions: VecDeque<Question>,
    /// The last that was said of the settings.
    said: Option<AppliedSettings>,
}

#[derive(Clone, Copy, Debug)]
struct Question {
    /// The collector's.
    id: u64,
    /// By [`Control`]'s count; `None` if there is no room for it.
    number: Option<u64>,
}

impl<'a> Live<'a> {
    pub(crate) fn new(control: &'a Control, stacks: &'a Mutex<Option<ThreadDumpReply>>) -> Self {
        Live { control, stacks, questions: VecDeque::new(), said: None }
    }

    /// Takes up a change of settings.
    ///
    /// # Errors
    /// If it is not allowed; nothing changes then.
    pub(crate) fn settings(&mut self, message: &v1::Settings) -> Result<(), WireError> {
        let (revision, change) = decode_settings(message)?;
        self.control.change(revision, change);
        Ok(())
    }

    /// Takes up a question.
    pub(crate) fn ask(&mut self, request: v1::ThreadDumpRequest) {
        let room = self.questions.len() < QUESTIONS_MAX;
        let number = room.then(|| self.control.request_dump());
        if !room {
            // The oldest has waited for longest and is most likely asked in vain.
            self.questions.pop_front();
        }
        self.questions.push_back(Question { id: request.id, number });
    }

    /// Whether [`Live::next`] would give something.
    pub(crate) fn has_next(&self) -> bool {
        self.news().is_some() || self.answerable().is_some()
    }

    /// How long until it may have something to say, though nobody wakes it.
    pub(crate) fn next_look(&self) -> Duration {
        if self.control.desired().1 { SILENCE } else { APPLYING }
    }

    /// Nothing was said for [`SILENCE`]: say something.
    pub(crate) fn break_silence(&mut self) {
        if self.control.desired().1 {
            self.said = None;
        }
    }

    /// The next message.
    pub(crate) fn next(&mut self) -> Option<Kind> {
        if let Some(applied) = self.news() {
            self.said = Some(applied.clone());
            return Some(Kind::Applied(encode_applied(applied)));
        }
        let index = self.answerable()?;
        let question = self.questions.remove(index)?;
        Some(Kind::ThreadDump(self.answer(question)))
    }

    /// The settings, if they are applied and not said yet.
    fn news(&self) -> Option<AppliedSettings> {
        let (wanted, applied) = self.control.desired();
        let mode = bounded_name(&self.control.mode().to_string()).into_owned();
        let now = AppliedSettings { revision: wanted.revision, settings: wanted.settings, mode };
        (applied && self.said.as_ref() != Some(&now)).then_some(now)
    }

    fn answerable(&self) -> Option<usize> {
        let answered = lock(self.stacks).as_ref().map_or(0, |reply| reply.request);
        let off = self.is_off();
        let done = |question: &Question| question.number.is_none_or(|number| number <= answered);
        self.questions.iter().position(|question| off || done(question))
    }

    fn answer(&self, question: Question) -> v1::ThreadDump {
        let unavailable = |why: &str| v1::ThreadDump {
            id: question.id,
            unavailable: why.to_owned(),
            ..Default::default()
        };
        match (question.number, &*lock(self.stacks)) {
            (None, _) => unavailable("too many questions at once; ask again in a while"),
            (Some(number), Some(now)) if number <= now.request => {
                encode_thread_dump(question.id, &now.dump)
            }
            _ => unavailable("sampling is off; switch it on with `enabled`"),
        }
    }

    fn is_off(&self) -> bool {
        let (wanted, applied) = self.control.desired();
        applied && !wanted.settings.enabled
    }
}

#[cfg(test)]
mod tests {
    use profiler_core::wire::{ThreadDump, encode_settings};
    use profiler_core::{Settings, SettingsChange, StateSet};

    use super::*;

    const SETTINGS: Settings =
        Settings { interval_ns: 10_000_000, enabled: true, states: StateSet::ALL };

    const OFF: SettingsChange =
        SettingsChange { interval_ns: None, enabled: Some(false), states: None };

    fn none() -> Mutex<Option<ThreadDumpReply>> {
        Mutex::new(None)
    }

    fn answered(stacks: &Mutex<Option<ThreadDumpReply>>, number: u64) {
        let empty = ThreadDump { threads: Vec::new(), omitted: number };
        *stacks.lock().unwrap() = Some(ThreadDumpReply { request: number, dump: empty });
    }

    fn applied(kind: Option<Kind>) -> Option<(u64, bool)> {
        match kind? {
            Kind::Applied(applied) => Some((applied.revision, applied.enabled)),
            other => panic!("{other:?}"),
        }
    }

    /// The id of an answer, and why there is none.
    fn told(kind: Option<Kind>) -> Option<(u64, String)> {
        match kind? {
            Kind::ThreadDump(stacks) => Some((stacks.id, stacks.unavailable)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn settings_are_said_when_they_are_applied_and_again_after_a_silence() {
        let (control, stacks) = (Control::new(SETTINGS), none());
        let mut live = Live::new(&control, &stacks);
        assert_eq!(applied(live.next()), Some((0, true)), "once, at the start");
        assert_eq!((live.has_next(), live.next_look()), (false, SILENCE));
        live.settings(&encode_settings(5, OFF)).unwrap();
        assert_eq!((live.has_next(), live.next_look()), (false, APPLYING));
        live.break_silence();
        assert_eq!(live.next(), None, "not before the sampler has them");
        control.set_applied(1);
        assert_eq!(applied(live.next()), Some((5, false)));
        assert_eq!(live.next(), None);
        live.break_silence();
        assert_eq!(applied(live.next()), Some((5, false)));
        control.start(crate::SamplerMode::Full);
        assert!(live.has_next(), "a mode that changes is said too");
    }

    #[test]
    fn settings_that_cannot_be_change_nothing() {
        let (control, stacks) = (Control::new(SETTINGS), none());
        let mut live = Live::new(&control, &stacks);
        let wrong = SettingsChange { interval_ns: Some(1), ..OFF };
        live.settings(&encode_settings(5, wrong)).unwrap_err();
        let (wanted, applied) = control.desired();
        assert_eq!((wanted.settings, wanted.revision, applied), (SETTINGS, 0, true));
    }

    #[test]
    fn each_question_is_answered_once_by_stacks_that_are_younger() {
        let (control, stacks) = (Control::new(SETTINGS), none());
        let mut live = Live::new(&control, &stacks);
        live.next().unwrap();
        live.ask(v1::ThreadDumpRequest { id: 50 });
        answered(&stacks, 1);
        live.ask(v1::ThreadDumpRequest { id: 60 });
        assert_eq!(told(live.next()), Some((50, String::new())));
        assert_eq!(live.next(), None, "what was seen before the question is no answer");
        answered(&stacks, 2);
        assert_eq!(told(live.next()), Some((60, String::new())));
        assert_eq!(live.next(), None);
    }

    #[test]
    fn who_asks_while_sampling_is_off_is_told_so() {
        let (control, stacks) = (Control::new(SETTINGS), none());
        let mut live = Live::new(&control, &stacks);
        live.next().unwrap();
        live.ask(v1::ThreadDumpRequest { id: 50 });
        live.settings(&encode_settings(5, OFF)).unwrap();
        assert_eq!(live.next(), None);
        control.set_applied(1);
        assert_eq!(applied(live.next()), Some((5, false)));
        let why = "sampling is off; switch it on with `enabled`".to_owned();
        assert_eq!(told(live.next()), Some((50, why)));
    }

    #[test]
    fn questions_past_the_limit_are_turned_away() {
        let (control, stacks) = (Control::new(SETTINGS), none());
        let mut live = Live::new(&control, &stacks);
        live.next().unwrap();
        (0..QUESTIONS_MAX as u64 + 2).for_each(|id| live.ask(v1::ThreadDumpRequest { id }));
        assert_eq!(live.questions.len(), QUESTIONS_MAX);
        let mut refused = 0;
        while let Some((id, why)) = told(live.next()) {
            assert!(id >= QUESTIONS_MAX as u64, "{id}");
            assert_eq!(why, "too many questions at once; ask again in a while");
            refused += 1;
        }
        assert_eq!(refused, 2);
    }
}
