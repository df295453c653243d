/* Burns a second, stops itself until a child lets it go on after two, and burns half a second. */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double cpu_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

__attribute__((noinline)) void burner(double seconds) {
    double start = cpu_seconds();
    while (cpu_seconds() - start < seconds) {
    }
}

__attribute__((noinline)) void stopper(void) {
    pid_t process = getpid();
    pid_t child = fork();
    if (child == 0) {
        sleep(2);
        kill(process, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
    waitpid(child, NULL, 0);
}

int main(void) {
    burner(1);
    stopper();
    burner(0.5);
    return 0;
}
