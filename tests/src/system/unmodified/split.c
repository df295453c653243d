/* Runs for ever: a thread that divides its CPU time 3 : 1 between two functions and sleeps in between, and one that
   sleeps. With a number as argument it ends after as many rounds. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define SECOND_NS 1000000000l
#ifndef HEAVY_NS
#define HEAVY_NS 75000000l
#endif

static volatile unsigned long sink;

static long cpu_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * SECOND_NS + time.tv_nsec;
}

__attribute__((noinline)) void heavy(void) {
    for (unsigned long turn = 0; turn < 500000; turn++) {
        sink += turn;
    }
}

__attribute__((noinline)) void light(void) {
    for (unsigned long turn = 0; turn < 500000; turn++) {
        sink += turn;
    }
}

__attribute__((noinline)) void rest(long milliseconds) {
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void *sleep_on(void *unused) {
    for (;;) {
        rest(700);
    }
    return unused;
}

int main(int count, char **arguments) {
#ifdef RESERVED
    /* The first mapping of the process, without access. */
    if (mmap((void *)0x10000000, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED) {
        return 1;
    }
#endif
    pthread_t sleeper;
    pthread_create(&sleeper, NULL, sleep_on, NULL);
    pthread_setname_np(sleeper, "sleeper");
    puts("ready");
    fflush(stdout);
    int rounds = count > 1 ? atoi(arguments[1]) : -1;
    long heavy_ns = 0, light_ns = 0;
    while (rounds-- != 0) {
        /* Not by numbers of turns: a processor may run the same loop faster at one place than at another. */
        long start_ns = cpu_ns();
        while (heavy_ns < 3 * light_ns + HEAVY_NS) {
            heavy();
            long end_ns = cpu_ns();
            heavy_ns += end_ns - start_ns;
            start_ns = end_ns;
        }
        while (3 * light_ns < heavy_ns) {
            light();
            long end_ns = cpu_ns();
            light_ns += end_ns - start_ns;
            start_ns = end_ns;
        }
        rest(20);
    }
    return 0;
}
