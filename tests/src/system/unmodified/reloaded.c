/* Loads plug-ins in turn, mostly at one address. With PLUGIN, it is one of them. */
#define _GNU_SOURCE
#include <time.h>

static double cpu_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#ifdef PLUGIN
__attribute__((noinline)) void PLUGIN(double seconds) {
    double until = cpu_time() + seconds;
    volatile unsigned long sum = 1;
    while (cpu_time() < until)
        for (int round = 0; round < 100000; round++)
            sum = sum * 31 + (unsigned long)round;
}

void run(double seconds) {
    PLUGIN(seconds);
    __asm__ volatile("");
}
#else
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>

int main(int argc, char **argv) {
    sigset_t begin;
    int signal;
    sigemptyset(&begin);
    sigaddset(&begin, SIGUSR1);
    if (argc > 3) {
        sigprocmask(SIG_BLOCK, &begin, NULL);
        puts("ready");
        fflush(stdout);
        sigwait(&begin, &signal);
    }
    double until = cpu_time() + 3;
    while (cpu_time() < until)
        for (int number = 1; number <= 2; number++) {
            void *plugin = dlopen(argv[number], RTLD_NOW);
            void (*run)(double) = plugin ? (void (*)(double))dlsym(plugin, "run") : NULL;
            if (!run)
                return 1;
            run(number == 1 ? 0.05 : 0.15);
            dlclose(plugin);
        }
    return 0;
}
#endif
