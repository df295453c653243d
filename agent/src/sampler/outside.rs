//! The sampler's parts for a profiler of another process, which looks at its threads itself: unwinding, the tree, the
//! account of a thread's time, and the way of cycles to the symbolizer.

use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use profiler_core::limits::STACK_FRAMES_MAX;
use profiler_core::{FrameId, NoStack, State, StateSet, Ticks, Weight};

use super::addresses::{AddressFrame, AddressTrie, Attribution, TaskLevels};
use super::audit::Difference;
use super::cycles::CycleSender;
use super::files::{Activity, parse_activity};
use super::foreign::{ForeignFrames, Found};
use super::memory::{RemoteStack, copied};
use super::pages::page_trie::Full;
use super::raw::RawCycle;
use super::sys::modules::{self, Module};
use super::thread_frames::ThreadFrames;
use super::time_account::TimeAccount;
use super::unwind::{Registers, Stack, Unwinder};
use super::wait::WaitSite;
use crate::foreign::{ForeignFrame, FrameWalker, Walker};
use crate::registry::Moment;
use crate::registry::NameId;
use symbolize::Subject;
use system::process::descriptor_kind_of;
use system::processor::REGISTERS;
use system::task_list::ThreadName;

/// Activity of a thread of another process, as the kernel reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThreadActivity {
    /// On a processor or ready for one.
    Running,
    /// Blocked in the kernel.
    Blocked(BlockedSite),
}

/// Where a thread is blocked: two are equal if system call, its first argument and the registers are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockedSite(WaitSite);

impl ThreadActivity {
    /// Parses `/proc/PID/task/TID/syscall`; `None` if it has another form.
    #[must_use]
    pub fn parse(text: &str) -> Option<ThreadActivity> {
        Some(match parse_activity(text.trim_ascii_end())? {
            Activity::Running => ThreadActivity::Running,
            Activity::Blocked(site) => ThreadActivity::Blocked(BlockedSite(site)),
        })
    }
}

impl BlockedSite {
    /// The kind of wait, in that process.
    #[must_use]
    pub fn state(&self, process: u32) -> State {
        self.0
            .state_by(|descriptor| descriptor_kind_of(process, descriptor))
    }

    /// Whether it is in no system call: stopped, or in a page fault.
    #[must_use]
    pub fn is_outside_call(&self) -> bool {
        self.0.call < 0
    }
}

/// The account of a thread's time, in nanoseconds. Sums by state are those of the kernel; observations only place them.
#[derive(Debug)]
pub struct ThreadTime {
    account: TimeAccount,
    quantum_ns: u64,
}

impl ThreadTime {
    /// Counts from `since_ns` on, when the thread's CPU clock was `cpu_ns` and its wait for processors `delay_ns`.
    /// Weights are multiples of `quantum_ns`.
    #[must_use]
    pub fn new(since_ns: u64, cpu_ns: u64, delay_ns: u64, quantum_ns: u64) -> ThreadTime {
        let mut account = TimeAccount::new(since_ns);
        account.reset(since_ns, cpu_ns);
        account.begin_at_delay(delay_ns);
        ThreadTime {
            account,
            quantum_ns,
        }
    }

    /// Adds the time until `now_ns`.
    pub fn advance(&mut self, now_ns: u64, cpu_ns: u64, delay_ns: u64) {
        self.account.advance(now_ns, cpu_ns);
        self.account.set_run_delay(delay_ns);
    }

    /// Adds the time until `now_ns` of a thread that was blocked and has ended.
    pub fn advance_blocked(&mut self, now_ns: u64) {
        self.account.advance_ended(now_ns, false);
    }

    /// Adds the time until `now_ns` of a thread that was ready and has ended: it ran for at most `ran_ns`, and waited for
    /// a processor the rest. Returns how long it ran.
    pub fn advance_ready(&mut self, now_ns: u64, ran_ns: u64) -> u64 {
        self.account.advance_ended_after(now_ns, ran_ns)
    }

    /// CPU time in the account.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        self.account.cpu_ns()
    }

    /// Takes the time of running before a sample, at which the thread's CPU clock showed `cpu_ns`.
    pub fn take_sampled(&mut self, sampled_at_ns: u64, cpu_ns: u64) -> Weight {
        let sampled = Moment {
            ns: sampled_at_ns,
            cpu_ns,
        };
        self.account.take_sampled_by_clock(sampled, self.quantum_ns)
    }

    /// Takes all time of running.
    pub fn take_running(&mut self) -> Weight {
        self.account.take_running(self.quantum_ns)
    }

    /// Takes the time off the processor.
    pub fn take_off_cpu(&mut self, state: State) -> Weight {
        self.account.take_off_cpu(state, self.quantum_ns)
    }

    /// Takes the time off the processor of a thread that waits for one.
    pub fn take_off_cpu_as_runnable(&mut self) -> Weight {
        self.account.take_all_off_cpu_as_delay(self.quantum_ns)
    }

    /// How long time of running has had no sample.
    #[must_use]
    pub fn running_unattributed_for_ns(&self) -> u64 {
        self.account.running_unattributed_for_ns()
    }

    /// How long time off the processor has had no place.
    #[must_use]
    pub fn off_cpu_unattributed_for_ns(&self) -> u64 {
        self.account.off_cpu_unattributed_for_ns()
    }

    /// CPU time without a sample.
    #[must_use]
    pub fn unattributed_cpu_ns(&self) -> u64 {
        self.account.unattributed_cpu_ns()
    }

    /// Takes remainders below a quantum, of a thread that has ended.
    pub fn take_remainder(&mut self) -> Weight {
        self.account.take_remainder(|_| true)
    }
}

/// A thread of another process, as it is shown.
#[derive(Debug)]
pub struct ThreadLabel {
    id: u32,
    name: ThreadName,
    frame: Option<FrameId>,
    task: Option<AddressFrame>,
}

impl ThreadLabel {
    /// A thread with this id and name.
    #[must_use]
    pub fn new(id: u32, name: &[u8]) -> ThreadLabel {
        ThreadLabel {
            id,
            name: ThreadName::of(name),
            frame: None,
            task: None,
        }
    }

    /// Changes the name. Time from now on is counted below it.
    pub fn rename(&mut self, name: &[u8]) {
        let name = ThreadName::of(name);
        if name != self.name {
            *self = ThreadLabel {
                name,
                ..ThreadLabel::new(self.id, &[])
            };
        }
    }
}

/// Where time is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampleAttribution(Attribution);

/// Code and stack of a thread that runs.
#[derive(Clone, Copy, Debug)]
pub struct RunningStack<'a> {
    /// By their DWARF numbers.
    pub registers: [u64; REGISTERS],
    /// The address of the first word.
    pub at: u64,
    /// A copy of its stack from there on.
    pub words: &'a [u64],
    /// The frames of its interpreter at the same moment, the innermost first.
    pub frames: &'a [ForeignFrame],
    /// Whether the last one is the outermost.
    pub is_complete: bool,
}

/// A blocked thread, and its id where its process runs.
#[derive(Clone, Copy, Debug)]
pub struct BlockedThread {
    /// Where it is blocked.
    pub site: BlockedSite,
    /// Its id in the namespace of its process.
    pub inner_id: u32,
}

/// Where a blocked thread is counted.
#[derive(Clone, Copy, Debug)]
pub struct BlockedPlace {
    /// The place.
    pub place: SampleAttribution,
    /// Whether it waits for the lock of an interpreter.
    pub waits_for_interpreter: bool,
}

/// A file whose code the process runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModuleFile {
    /// Its path, as the process sees it.
    pub path: String,
    /// Whether it is the program.
    pub is_program: bool,
    /// The same file, as this process sees it.
    pub file: PathBuf,
    /// Add it to an address in the file to get the address in memory.
    pub base: u64,
}

/// The end of a cycle, about a second of samples.
#[derive(Clone, Copy, Debug)]
pub struct CycleEnd {
    /// By the monotonic clock.
    pub stop_ns: u64,
    /// Ticks since the last cycle.
    pub ticks: Ticks,
    /// Whether it is the last one: then this waits for room.
    pub is_last: bool,
}

/// The samples of another process.
pub struct ProcessSamples {
    subject: Subject,
    hasher: RandomState,
    maps_hash: Option<u64>,
    /// The process has mapped code since the list was read.
    has_new_modules: bool,
    modules: Vec<Module>,
    unwinder: Unwinder,
    remote: RemoteStack,
    stack: Stack,
    tree: AddressTrie,
    thread_frames: ThreadFrames,
    foreign: Option<ForeignFrames>,
    tasks_by_thread: bool,
    cycles: CycleSender,
    cycle_start_ns: u64,
    quantum_ns: u64,
}

/// Settings of [`ProcessSamples`].
pub(crate) struct ProcessSettings {
    pub(crate) subject: Subject,
    pub(crate) tasks_by_thread: bool,
    pub(crate) quantum_ns: u64,
    /// When its first cycle begins.
    pub(crate) start_ns: u64,
}

impl ProcessSamples {
    pub(crate) fn new(settings: ProcessSettings, cycles: CycleSender) -> ProcessSamples {
        let ProcessSettings {
            subject,
            tasks_by_thread,
            quantum_ns,
            start_ns,
        } = settings;
        let memory = subject.memory;
        let mut samples = ProcessSamples {
            subject,
            hasher: RandomState::new(),
            maps_hash: None,
            has_new_modules: false,
            modules: Vec::new(),
            unwinder: Unwinder::of_other(memory),
            remote: RemoteStack::of_other(memory),
            stack: Stack::default(),
            tree: AddressTrie::new(&[]),
            thread_frames: ThreadFrames::default(),
            foreign: None,
            tasks_by_thread,
            cycles,
            cycle_start_ns: start_ns,
            quantum_ns,
        };
        samples.refresh_modules();
        samples
    }

    /// The process has mapped code: the list is read before the next sample.
    pub fn expect_new_modules(&mut self) {
        self.has_new_modules = true;
    }

    /// Reads the list of mappings again. If it has changed, places from before may be those of other code.
    pub fn refresh_modules(&mut self) -> bool {
        self.has_new_modules = false;
        let Some(maps) = self.subject.text("maps") else {
            return false;
        };
        // Heap and stacks change all the time.
        let is_file = |line: &&str| line.contains('/');
        let files: Vec<&str> = maps.lines().filter(is_file).collect();
        let hash = Some(self.hasher.hash_one(&files));
        if hash == self.maps_hash {
            return false;
        }
        self.maps_hash = hash;
        let memory = self.subject.memory;
        let executable = self.subject.executable();
        self.modules = modules::of_process(memory, &maps, &executable, &self.modules);
        self.tree.set_modules(&self.modules);
        // Go's code is unwound by its frame pointer, like any code without tables that a runtime has made.
        let (framed, others): (Vec<Module>, Vec<Module>) = self
            .modules
            .iter()
            .cloned()
            .partition(|module| modules::is_go(memory, module));
        self.unwinder.set_modules(Arc::from(others));
        let framed = framed.into_iter().map(|module| module.range);
        self.unwinder.set_framed(framed.collect());
        if let Some(foreign) = &mut self.foreign {
            foreign.set_modules(&self.modules);
        }
        true
    }

    /// The program and its libraries.
    pub fn module_files(&self) -> impl Iterator<Item = ModuleFile> {
        let program = self.subject.program();
        self.modules.iter().map(move |module| {
            let is_program = program.as_deref() == Some(Path::new(&*module.path));
            ModuleFile {
                path: module.path.to_string(),
                is_program,
                file: if is_program {
                    self.subject.executable()
                } else {
                    self.subject.path(&module.path)
                },
                base: module.base,
            }
        })
    }

    /// Shows the functions of an interpreter from now on.
    pub fn set_walker(&mut self, walker: &'static dyn FrameWalker) {
        self.foreign = Some(ForeignFrames::new(Walker(walker), &self.modules));
    }

    /// A tick begins: what an interpreter has freed may have other content from now on.
    pub fn begin_tick(&mut self) {
        if let Some(foreign) = &mut self.foreign {
            foreign.begin_tick();
        }
    }

    /// The place of a running thread.
    pub fn place_running(
        &mut self,
        thread: &mut ThreadLabel,
        stack: RunningStack<'_>,
    ) -> SampleAttribution {
        if self.has_new_modules {
            self.refresh_modules();
        }
        let registers = Registers::all(stack.registers);
        let read = copied(stack.at, stack.words);
        self.unwinder.unwind(registers, read, &mut self.stack);
        if let Some(foreign) = &mut self.foreign {
            let found = Found {
                frames: stack.frames,
                is_complete: stack.is_complete,
            };
            foreign.merge(&mut self.tree, found, &mut self.stack);
        }
        self.place_of_stack(thread)
    }

    /// The place of a blocked thread. It counts only if the thread has not run meanwhile.
    pub fn place_blocked(
        &mut self,
        thread: &mut ThreadLabel,
        blocked: BlockedThread,
    ) -> BlockedPlace {
        let BlockedSite(site) = blocked.site;
        self.remote.reset(site.sp);
        let registers = Registers::of_caller(site.pc, site.sp, None);
        let remote = &mut self.remote;
        let read = |address| remote.read(address);
        self.unwinder.unwind(registers, read, &mut self.stack);
        let waits_for_interpreter = self.foreign.as_mut().is_some_and(|foreign| {
            foreign.walk_blocked(blocked.inner_id, site.futex());
            foreign.merge_blocked(&mut self.tree, &mut self.stack)
        });
        BlockedPlace {
            place: self.place_of_stack(thread),
            waits_for_interpreter,
        }
    }

    fn place_of_stack(&mut self, thread: &mut ThreadLabel) -> SampleAttribution {
        self.stack.truncate(STACK_FRAMES_MAX);
        let levels = self.levels(thread);
        let node = self.tree.node_of(&levels, &self.stack);
        self.place(thread, &levels, node)
    }

    /// The place of time without a stack.
    pub fn place_without_stack(
        &mut self,
        thread: &mut ThreadLabel,
        reason: NoStack,
    ) -> SampleAttribution {
        let levels = self.levels(thread);
        let node = self.tree.node_without_stack(&levels, reason);
        self.place(thread, &levels, node)
    }

    fn place(
        &mut self,
        thread: &mut ThreadLabel,
        levels: &TaskLevels,
        node: profiler_core::NodeId,
    ) -> SampleAttribution {
        let frame = self.frame_of(thread);
        let thread = self
            .thread_frames
            .node_or_root(&mut self.tree, levels, frame);
        SampleAttribution(Attribution { node, thread })
    }

    fn frame_of(&mut self, thread: &mut ThreadLabel) -> Result<FrameId, Full> {
        if let Some(frame) = thread.frame {
            return Ok(frame);
        }
        let ThreadLabel { name, id, .. } = *thread;
        let frame = self.thread_frames.frame(&mut self.tree, name, id, false)?;
        Ok(*thread.frame.insert(frame))
    }

    fn levels(&mut self, thread: &mut ThreadLabel) -> TaskLevels {
        if self.tasks_by_thread && thread.task.is_none() {
            thread.task = self
                .thread_frames
                .task_of(&mut self.tree, thread.name, thread.id);
        }
        TaskLevels {
            first: thread.task.clone().unwrap_or(AddressFrame::NoTask),
            phase: NameId::NONE,
        }
    }

    /// Counts CPU time of threads that were never seen.
    pub fn add_unseen(&mut self, cpu_ns: u64) {
        let attribution = self.thread_frames.unseen_attribution(&mut self.tree);
        self.tree.add(attribution, Weight::of(State::Cpu, cpu_ns));
    }

    /// Counts time.
    pub fn add(&mut self, place: SampleAttribution, weight: Weight) {
        self.tree.add(place.0, weight);
    }

    /// Ends a cycle. If the symbolizer is behind, the cycle goes on and gets longer; then this returns `false`.
    pub fn seal(&mut self, end: CycleEnd) -> bool {
        let start_ns = self.cycle_start_ns;
        if end.stop_ns <= start_ns {
            return true;
        }
        let cycles = &mut self.cycles;
        let quantum_ns = self.quantum_ns;
        let sealed = self.tree.seal(|tree| {
            let cycle = RawCycle {
                start_ns,
                stop_ns: end.stop_ns,
                ticks: end.ticks,
                quantum_ns,
                states: StateSet::ALL,
                tree,
                difference: Difference::default(),
                flush_request: 0,
                dump: None,
            };
            if end.is_last {
                return cycles.send(cycle).map_err(|back| back.tree);
            }
            cycles.try_send(cycle).map_err(|back| back.tree)
        });
        if sealed {
            self.cycle_start_ns = end.stop_ns;
        }
        sealed
    }
}
