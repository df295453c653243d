//! Code that a runtime makes while the program runs: no table describes its frames.

use framehop::FrameAddress;
use system::file::read_start;
use system::process::Memory;

use super::code::{called_before, code_at, returns_here};
use super::rows::RegisterValues;
use super::{FP, PC, Registers, SP, Stack, Unwinder};
use crate::sampler::sys::modules::Module;
use system::processor::code_address;

/// Most bytes of a command line or an environment that are searched for Java's options.
const OPTIONS_BYTES_MAX: usize = 256 << 10;

/// Rules by which the callers of code outside of modules are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum MadeCode {
    /// For any runtime: each return address has to follow a call.
    #[default]
    Unknown,
    /// Java's with frame pointers. Return addresses into its interpreter follow no call.
    JavaWithFramePointers,
    /// Java's, which uses the frame pointer for anything: a caller that it leads to would be some outer one.
    Java,
}

impl MadeCode {
    /// The rules by the modules and the options of their process.
    pub(super) fn of(memory: Memory, modules: &[Module]) -> MadeCode {
        if !modules
            .iter()
            .any(|module| module.path.ends_with("/libjvm.so"))
        {
            return MadeCode::Unknown;
        }
        let folder = match memory {
            Memory::Own => "/proc/self".to_owned(),
            Memory::Of(process) => format!("/proc/{process}"),
        };
        let bytes_of = |name: &str| {
            let mut bytes = vec![0; OPTIONS_BYTES_MAX];
            let read = read_start(&format!("{folder}/{name}"), &mut bytes);
            bytes.truncate(read.unwrap_or(0));
            bytes
        };
        if keeps_frame_pointers(&bytes_of("cmdline"), &bytes_of("environ")) {
            MadeCode::JavaWithFramePointers
        } else {
            MadeCode::Java
        }
    }
}

/// Whether Java's options demand frame pointers: the last one counts, in the order in which Java reads them.
fn keeps_frame_pointers(command_line: &[u8], environment: &[u8]) -> bool {
    let variable = |name: &[u8]| {
        let mut variables = environment.split(|byte| *byte == 0);
        let value = variables.find_map(|variable| variable.strip_prefix(name));
        value.unwrap_or_default().split(u8::is_ascii_whitespace)
    };
    let options = variable(b"JAVA_TOOL_OPTIONS=")
        .chain(variable(b"JDK_JAVA_OPTIONS="))
        .chain(command_line.split(|byte| *byte == 0))
        .chain(variable(b"_JAVA_OPTIONS="));
    let mut demands = options.filter_map(|option| match option {
        b"-XX:+PreserveFramePointer" => Some(true),
        b"-XX:-PreserveFramePointer" => Some(false),
        _ => None,
    });
    demands.next_back().unwrap_or(false)
}

impl Unwinder {
    /// Sets the code without tables that keeps the frame pointer. It must be in no module.
    #[cfg(feature = "outside")]
    pub(in crate::sampler) fn set_framed(&mut self, framed: Vec<std::ops::Range<u64>>) {
        self.framed = framed;
    }

    pub(super) fn is_framed(&self, address: u64) -> bool {
        self.framed.iter().any(|range| range.contains(&address))
    }

    pub(super) fn is_in_module(&self, address: u64) -> bool {
        let mut modules = self.modules.iter();
        modules.any(|module| module.range.contains(&address))
    }

    /// Whether the callers of code without tables can be found if it returns to `address`.
    pub(super) fn may_return_to(&self, address: u64) -> bool {
        match self.made_code {
            MadeCode::Unknown => returns_here(self.memory, address),
            MadeCode::Java => {
                returns_here(self.memory, address) && self.is_in_module(address.wrapping_sub(1))
            }
            MadeCode::JavaWithFramePointers => {
                let is_made = !self.is_in_module(address.wrapping_sub(1));
                returns_here(self.memory, address)
                    || is_made && code_at(self.memory, address).is_some()
            }
        }
    }

    /// The return address of a function that keeps the frame pointer and has no frame of its own: the word at the stack
    /// pointer, if it follows a call of a function that starts shortly before.
    fn caller_of_frameless(
        &self,
        pc: u64,
        sp: u64,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Option<u64> {
        const FUNCTION_BYTES_MAX: u64 = 1 << 20;
        let word = read(sp).ok().filter(|word| self.is_framed(*word))?;
        let start = called_before(self.memory, word)?;
        let distance = pc.checked_sub(start)?;
        (distance < FUNCTION_BYTES_MAX).then_some(word)
    }

    /// Unwinds by the frame pointer, which runtimes keep in the code that they make. Such code may also use the register
    /// for anything: the callers count only if they lead to the thread's root. Words of the stack that look like return
    /// addresses are no evidence here, because the frames of such code are not described: these words may be old.
    pub(super) fn unwind_by_frame_pointer(
        &mut self,
        values: &RegisterValues,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
        stack: &mut Stack,
    ) {
        let [Some(pc), Some(sp)] = [values[PC], values[SP]] else {
            return;
        };
        stack.push(pc, sp);
        if self.made_code == MadeCode::Java && !self.is_in_module(pc) {
            return;
        }
        if self.is_framed(pc) {
            if let Some(word) = self.caller_of_frameless(pc, sp, read) {
                let above = Registers::of_caller(word, sp.wrapping_add(8), values[FP]);
                let Some(caller) = FrameAddress::from_return_address(word) else {
                    return;
                };
                self.unwind_from(caller, &above.0, read, stack);
                if stack.complete {
                    return;
                }
                stack.truncate(1);
            }
        }
        let Some(fp) = values[FP].filter(|fp| *fp >= sp && fp % 8 == 0) else {
            return;
        };
        let [Ok(fp_above), Ok(word)] = [read(fp), read(fp.wrapping_add(8))] else {
            return;
        };
        let word = code_address(word);
        let Some(caller) =
            FrameAddress::from_return_address(word).filter(|_| self.may_return_to(word))
        else {
            return;
        };
        let above = Registers::of_caller(word, fp.wrapping_add(16), Some(fp_above));
        self.unwind_from(caller, &above.0, read, stack);
        if !stack.complete {
            stack.truncate(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_javas_options_decides() {
        let check = |command_line: &str, environment: &str, expected| {
            let found = keeps_frame_pointers(command_line.as_bytes(), environment.as_bytes());
            assert_eq!(found, expected, "{command_line:?} {environment:?}");
        };
        check("java\0Main\0", "PATH=/bin\0", false);
        check("java\0-XX:+PreserveFramePointer\0Main\0", "", true);
        check(
            "java\0-XX:-PreserveFramePointer\0Main\0",
            "JAVA_TOOL_OPTIONS=-XX:+PreserveFramePointer\0",
            false,
        );
        check(
            "java\0Main\0",
            "A=1\0JAVA_TOOL_OPTIONS=-Xmx1g -XX:+PreserveFramePointer\0",
            true,
        );
        check(
            "java\0-XX:+PreserveFramePointer\0",
            "_JAVA_OPTIONS=-XX:-PreserveFramePointer\0",
            false,
        );
        check("java\0-XX:+PreserveFramePointers\0", "", false);
        check("", "", false);
    }
}
