// Code of another compiler for the differential test: C++ exceptions, calls through a lazily bound
// procedure linkage table, and prologues of every kind. Built and loaded at run time.
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <link.h>

#define EXPORT extern "C" __attribute__((visibility("default"), noinline))

namespace {
struct Guard {
    volatile int *count;
    ~Guard() { *count = *count + 1; }
};

__attribute__((noinline)) int throw_at_depth(int depth, volatile int *count) {
    Guard guard{count};
    if (depth == 0) {
        throw depth;
    }
    return throw_at_depth(depth - 1, count) + 1;
}
}  // namespace

// Throws through frames with destructors, and catches.
EXPORT int helper_exceptions(int depth) {
    volatile int cleaned = 0;
    try {
        return throw_at_depth(depth, &cleaned);
    } catch (int) {
        return cleaned;
    }
}

// Sixty-four exported functions, each called through its own slot of the table.
#define EIGHT(M, D) M(D##0) M(D##1) M(D##2) M(D##3) M(D##4) M(D##5) M(D##6) M(D##7)
#define ALL(M) \
    EIGHT(M, 0) EIGHT(M, 1) EIGHT(M, 2) EIGHT(M, 3) EIGHT(M, 4) EIGHT(M, 5) EIGHT(M, 6) EIGHT(M, 7)
#define DEFINE(N) \
    EXPORT uint64_t helper_step_##N(uint64_t x) { return x * 31 + 0x1##N; }
#define CALL(N) x = helper_step_##N(x);
ALL(DEFINE)

EXPORT uint64_t helper_calls(uint64_t x) {
    ALL(CALL)
    return x;
}

// The table's slots before any was bound. The first three words belong to the loader.
static const size_t SLOTS = 64;
static void **slots;
static void *unbound[SLOTS];

__attribute__((constructor)) static void keep_unbound() {
    for (const ElfW(Dyn) *entry = _DYNAMIC; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_PLTGOT) {
            slots = reinterpret_cast<void **>(entry->d_un.d_ptr) + 3;
        }
    }
    memcpy(unbound, slots, sizeof unbound);
}

// Resets the slots, so that each call binds its function again.
EXPORT uint64_t helper_lazy_calls(uint64_t x) {
    for (size_t slot = 0; slot < SLOTS; slot++) {
        static_cast<void *volatile *>(slots)[slot] = unbound[slot];
    }
    return helper_calls(x);
}

// Little work between prologue and epilogue: with a frame of fixed size, of a size known only at run
// time, aligned, and with all registers saved.
__attribute__((noinline)) static uint64_t small(uint64_t x) {
    volatile uint64_t kept[4] = {x, x + 1, x + 2, x + 3};
    return kept[x & 3];
}

__attribute__((noinline)) static uint64_t sized_at_run_time(uint64_t x) {
    volatile char *room = static_cast<char *>(__builtin_alloca((x & 255) + 16));
    room[x & 15] = static_cast<char>(x);
    return small(x) + static_cast<uint64_t>(room[x & 15]);
}

__attribute__((noinline)) static uint64_t aligned(uint64_t x) {
    alignas(64) volatile uint64_t kept[8] = {x};
    kept[x & 7] = small(x);
    return kept[x & 7];
}

// Realigned with arguments on its stack: the frame then depends on another register.
__attribute__((noinline)) static uint64_t realigned(uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                                                    uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    alignas(64) volatile uint64_t kept[8] = {a, b, c, d, e, f, g, h};
    volatile char *room = static_cast<char *>(__builtin_alloca((a & 255) + 16));
    room[0] = static_cast<char>(h);
    return small(kept[a & 7]) + static_cast<uint64_t>(room[0]) + g;
}

__attribute__((noinline)) static uint64_t saving(uint64_t x) {
    uint64_t sum = x;
#ifdef __aarch64__
    __asm__ volatile("" : "+r"(sum) : : "x19", "x20", "x21", "x22", "x23", "d8", "d9");
#else
    __asm__ volatile("" : "+r"(sum) : : "rbx", "r12", "r13", "r14", "r15");
#endif
    return sum + small(sum);
}

__attribute__((noinline, optimize("no-omit-frame-pointer"))) static uint64_t framed(uint64_t x) {
    return saving(x) + aligned(x);
}

EXPORT uint64_t helper_prologues(uint64_t x) {
    for (int round = 0; round < 200; round++) {
        x = x * 6364136223846793005u + small(x) + sized_at_run_time(x) + aligned(x) + framed(x) + realigned(x, 1, 2, 3, 4, 5, 6, 7);
    }
    return x;
}

// Works in a signal handler: the stack contains the kernel's signal frame.
static volatile uint64_t handled;

static void handle(int) {
    for (int round = 0; round < 100; round++) {
        handled = small(handled) + 1;
    }
}

EXPORT uint64_t helper_signals(uint64_t x) {
    struct sigaction action = {};
    action.sa_handler = handle;
    sigaction(SIGUSR2, &action, nullptr);
    raise(SIGUSR2);
    return handled + x;
}

// Calls `walk` and returns whether it crashed: libgcc's unwinder follows addresses unchecked, and the
// tables do not describe some instructions, such as those that set a new stack pointer.
static sigjmp_buf before;
static volatile sig_atomic_t guarding;
static struct sigaction unguarded;

static void crashed(int) {
    if (guarding) {
        guarding = 0;
        siglongjmp(before, 1);
    }
    // Not ours: let it happen again with the original handler.
    sigaction(SIGSEGV, &unguarded, nullptr);
}

// The handler is installed for each walk, because other tests of the process install theirs in between,
// such as loom, whose stacks have guard pages.
EXPORT int helper_guarded(void (*walk)()) {
    struct sigaction action = {};
    action.sa_handler = crashed;
    sigaction(SIGSEGV, &action, &unguarded);
    volatile int has_crashed = 1;
    if (sigsetjmp(before, 1) == 0) {
        guarding = 1;
        walk();
        guarding = 0;
        has_crashed = 0;
    }
    sigaction(SIGSEGV, &unguarded, nullptr);
    return has_crashed;
}
