/* Many threads that only burn, all on one processor: so most of their time they wait for it. Says for how long all of
   them lived. With an argument it begins at SIGUSR1. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000l
#define THREADS 60
#define BURN_NS 40000000l
#define START_DISTANCE_US 10000

static long lived_ns;

static long clock_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * SECOND_NS + time.tv_nsec;
}

__attribute__((noinline)) void burner(void) {
    long start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns < BURN_NS) {
    }
}

static void *live(void *started_ns) {
    burner();
    __atomic_fetch_add(&lived_ns, clock_ns(CLOCK_MONOTONIC) - (long)started_ns, __ATOMIC_RELAXED);
    return NULL;
}

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 1) {
        sigset_t begin;
        sigemptyset(&begin);
        sigaddset(&begin, SIGUSR1);
        sigprocmask(SIG_BLOCK, &begin, NULL);
        puts("ready");
        fflush(stdout);
        int signal;
        sigwait(&begin, &signal);
    } else {
        usleep(300000);
    }
    /* Its new threads are there too, but none that already runs. */
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++) {
        pthread_create(&threads[at], NULL, live, (void *)clock_ns(CLOCK_MONOTONIC));
        usleep(START_DISTANCE_US);
    }
    for (int at = 0; at < THREADS; at++) {
        pthread_join(threads[at], NULL);
    }
    printf("%ld\n", lived_ns);
    return 0;
}
