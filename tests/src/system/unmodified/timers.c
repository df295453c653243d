/* Runs with a timer of the whole process, as `gcc -pg` does: one thread works and gets its signals, four others sleep. Fails if
   sleeps are interrupted more than now and then, or if others than the first thread got many signals. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SIGNALS 300
#define THREADS 4
/* The kernel itself sends one elsewhere at times. */
#define OTHERS_MAX 15

static atomic_int own, others, interrupted;
static pid_t first;

static void on_signal(int signal) {
    (void)signal;
    int before = errno;
    if (gettid() == first) {
        own++;
    } else {
        others++;
    }
    errno = before;
}

static void *rest(void *unused) {
    (void)unused;
    for (;;) {
        struct timespec pause = {0, 3000000};
        if (nanosleep(&pause, NULL) != 0 && errno == EINTR) {
            interrupted++;
        }
    }
}

int main(int count, char **arguments) {
    int virtual = count > 1 && strcmp(arguments[1], "virtual") == 0;
    first = gettid();
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(virtual ? SIGVTALRM : SIGPROF, &action, NULL);
    for (int thread = 0; thread < THREADS; thread++) {
        pthread_t started;
        pthread_create(&started, NULL, rest, NULL);
    }
    struct itimerval every = {{0, 10000}, {0, 10000}};
    setitimer(virtual ? ITIMER_VIRTUAL : ITIMER_PROF, &every, NULL);
    while (own + others < SIGNALS) {
    }
    int is_right = others <= OTHERS_MAX && interrupted <= OTHERS_MAX;
    printf("%s\n", is_right ? "as alone" : "disturbed");
    if (!is_right) {
        printf("%d signals in other threads, %d sleeps interrupted\n", others, interrupted);
    }
    return 0;
}
