/* Threads one after another: each begins when the one before has been joined. Arguments: what they do, for how many
   milliseconds, and their number. With a fourth argument it begins at SIGUSR1. Says for how long all of them did that. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000l

static long duration_ns;
static long done_ns;

static long clock_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * SECOND_NS + time.tv_nsec;
}

__attribute__((noinline)) void burner(void) {
    long start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns < duration_ns) {
    }
    done_ns += duration_ns;
}

__attribute__((noinline)) void sleeper(void) {
    long start_ns = clock_ns(CLOCK_MONOTONIC);
    usleep(duration_ns / 1000);
    done_ns += clock_ns(CLOCK_MONOTONIC) - start_ns;
}

static void *sleep_once(void *unused) {
    sleeper();
    return unused;
}

static void *burn_once(void *unused) {
    burner();
    return unused;
}

int main(int count, char **arguments) {
    int is_sleep = strcmp(arguments[1], "sleep") == 0;
    duration_ns = atol(arguments[2]) * 1000000;
    if (count > 4) {
        sigset_t begin;
        sigemptyset(&begin);
        sigaddset(&begin, SIGUSR1);
        sigprocmask(SIG_BLOCK, &begin, NULL);
        puts("ready");
        fflush(stdout);
        int signal;
        sigwait(&begin, &signal);
    } else {
        /* The profiler sees the first thread before it starts others. */
        usleep(300000);
    }
    for (int turn = atoi(arguments[3]); turn > 0; turn--) {
        pthread_t thread;
        pthread_create(&thread, NULL, is_sleep ? sleep_once : burn_once, NULL);
        pthread_join(thread, NULL);
    }
    printf("%ld\n", done_ns);
    return 0;
}
