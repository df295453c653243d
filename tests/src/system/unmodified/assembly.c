/* Spends its time in assembly that has neither unwind tables nor a frame pointer, and whose part of the stack holds return
   addresses of functions that have returned. */
#include <stdlib.h>
#include <time.h>

#define VALUES 1000

void kernel(unsigned long turns);

__asm__(".text\n"
        ".globl kernel\n"
        ".type kernel, @function\n"
        "kernel:\n"
#if defined(__x86_64__)
        "push %rbx\n"
        "sub $200, %rsp\n"
        "1: imul $3, %rax\n"
        "dec %rdi\n"
        "jnz 1b\n"
        "add $200, %rsp\n"
        "pop %rbx\n"
        "ret\n"
#else
        "stp x29, x30, [sp, #-16]!\n"
        "sub sp, sp, #208\n"
        "1: subs x0, x0, #1\n"
        "b.ne 1b\n"
        "add sp, sp, #208\n"
        "ldp x29, x30, [sp], #16\n"
        "ret\n"
#endif
        ".size kernel, .-kernel\n");

static int order(const void *left, const void *right) {
    return *(const int *)left - *(const int *)right;
}

__attribute__((noinline)) void prepare(int *values) {
    qsort(values, VALUES, sizeof *values, order);
}

__attribute__((noinline)) void compute(void) {
    int values[VALUES];
    for (int index = 0; index < VALUES; index++) {
        values[index] = rand();
    }
    prepare(values);
    kernel(3000000);
}

int main(void) {
    struct timespec used;
    do {
        compute();
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    } while (used.tv_sec < 2);
    return 0;
}
