/* Runs for ever: a thread that divides its CPU time 3 : 1 between two functions and sleeps in between, and one that
   sleeps. With the argument "once" it ends after a while. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define TURNS 4000000ul

static volatile unsigned long sink;

__attribute__((noinline)) void heavy(void) {
    for (unsigned long turn = 0; turn < 3 * TURNS; turn++) {
        sink += turn;
    }
}

__attribute__((noinline)) void light(void) {
    for (unsigned long turn = 0; turn < TURNS; turn++) {
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
    int rounds = count > 1 && strcmp(arguments[1], "once") == 0 ? 40 : -1;
    while (rounds-- != 0) {
        heavy();
        light();
        rest(20);
    }
    return 0;
}
