/* Runs for ever, with the period in which a profiler samples: of each 10 ms of its CPU time a thread works 7.5 ms in one
   function and 2.5 ms in another, and of each 10 ms another one sleeps a half in one function and a half in another. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#define PERIOD_NS 10000000l
#define LONG_NS 7500000l
#define SECOND_NS 1000000000l

static volatile unsigned long sink;

static long cpu_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * SECOND_NS + time.tv_nsec;
}

static void turn(void) {
    for (unsigned long turn = 0; turn < 10000; turn++) {
        sink += turn;
    }
}

__attribute__((noinline)) void work_long(long until_ns) {
    while (cpu_ns() < until_ns) {
        turn();
    }
    sink++;
}

__attribute__((noinline)) void work_short(long until_ns) {
    while (cpu_ns() < until_ns) {
        turn();
    }
    sink--;
}

static void sleep_until(long until_ns) {
    struct timespec time = {until_ns / SECOND_NS, until_ns % SECOND_NS};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

__attribute__((noinline)) void rest_first(long until_ns) {
    sleep_until(until_ns);
    sink++;
}

__attribute__((noinline)) void rest_second(long until_ns) {
    sleep_until(until_ns);
    sink--;
}

static void *sleep_on(void *unused) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (long start_ns = now.tv_sec * SECOND_NS + now.tv_nsec;; start_ns += PERIOD_NS) {
        rest_first(start_ns + PERIOD_NS / 2);
        rest_second(start_ns + PERIOD_NS);
    }
    return unused;
}

int main(void) {
    pthread_t sleeper;
    pthread_create(&sleeper, NULL, sleep_on, NULL);
    puts("ready");
    fflush(stdout);
    for (long start_ns = cpu_ns();; start_ns += PERIOD_NS) {
        work_long(start_ns + LONG_NS);
        work_short(start_ns + PERIOD_NS);
    }
}
