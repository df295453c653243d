/* A program that does not know of Emberline. The first argument says what it does; all output and the exit code are
   the same on every run. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;

/* Works without a system call or a clock. */
__attribute__((noinline)) static void count(unsigned long turns) {
    for (unsigned long turn = 0; turn < turns; turn++) {
        sink += turn;
    }
}

/* Works for a tenth of a second of CPU time, several times. */
__attribute__((noinline)) void crunch(int tenths) {
    clock_t end = clock() + tenths * (CLOCKS_PER_SEC / 10);
    while (clock() < end) {
        count(100000);
    }
}

static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0) {
        abort();
    }
}

static int has_begun;

/* As in a shell, it is for the program's own thread and not before it has begun. */
char *getenv(const char *name) {
    extern char **environ;
    if (!has_begun || gettid() != getpid()) {
        say("getenv of another\n");
        _exit(98);
    }
    size_t length = strlen(name);
    for (char **one = environ; one && *one; one++) {
        if (strncmp(*one, name, length) == 0 && (*one)[length] == '=') {
            return *one + length + 1;
        }
    }
    return NULL;
}

static int say_status(int status) {
    if (WIFSIGNALED(status)) {
        printf("signal %d\n", WTERMSIG(status));
    } else {
        printf("code %d\n", WEXITSTATUS(status));
    }
    return 0;
}

static void *crunch_on(void *unused) {
    crunch(4);
    say("thread done\n");
    return unused;
}

/* Prints what a program inherits, but for the variables of Emberline and of its loader. */
static int inherited(int argc, char **argv) {
    extern char **environ;
    for (int index = 1; index < argc; index++) {
        printf("argument %s\n", argv[index]);
    }
    for (char **one = environ; *one; one++) {
        if (strncmp(*one, "EMBERLINE_", 10) != 0 && strncmp(*one, "LD_PRELOAD=", 11) != 0) {
            printf("variable %s\n", *one);
        }
    }
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int signal = 1; signal < 32; signal++) {
        struct sigaction action;
        sigaction(signal, NULL, &action);
        printf("signal %d %d %d\n", signal, action.sa_handler == SIG_IGN, sigismember(&mask, signal));
    }
    for (int descriptor = 0; descriptor < 64; descriptor++) {
        if (fcntl(descriptor, F_GETFD) >= 0) {
            printf("descriptor %d\n", descriptor);
        }
    }
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    printf("%lu files, parent alive %d\n", (unsigned long)limit.rlim_cur, getppid() > 0);
    return 0;
}

/* Allows two system calls from now on. */
static int filtered(unsigned flags) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) < 0) {
        return 9;
    }
    count(100000000);
    say("filtered\n");
    return 3;
}

static int status_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return say_status(status);
}

/* A filter in a child that has this memory does not confine this process. */
static int child_filtered(void) {
    struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &allow};
    pid_t child = vfork();
    if (child == 0) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        _exit(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 ? 5 : 9);
    }
    status_of(child);
    printf("%d\n", unshare(CLONE_NEWUSER));
    return 0;
}

/* A child that the C library does not know of confines itself. */
static int raw_child_filtered(void) {
    pid_t child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        exit(filtered(SECCOMP_FILTER_FLAG_TSYNC));
    }
    return status_of(child);
}

static int close_all(void) {
    for (int turn = 0; turn < 3; turn++) {
        printf("descriptor %d\n", open("/dev/null", O_RDONLY));
        crunch(1);
    }
    for (int descriptor = 3; descriptor < 4096; descriptor++) {
        close(descriptor);
    }
    crunch(4);
    printf("then %d\n", open("/dev/null", O_RDONLY));
    return 0;
}

static int limited(void) {
    struct rlimit limit = {300 << 20, 300 << 20};
    setrlimit(RLIMIT_AS, &limit);
    crunch(2);
    void *too_much = malloc(400 << 20);
    void *enough = malloc(100 << 20);
    printf("%d %d\n", too_much == NULL, enough != NULL);
    crunch(2);
    return 0;
}

/* Children that end in several ways. */
static int family(const char *self) {
    for (int way = 0; way < 4; way++) {
        pid_t child = way == 3 ? vfork() : fork();
        if (child == 0) {
            if (way == 3) {
                execl(self, self, "again", "vforked", NULL);
                _exit(9);
            }
            crunch(2);
            if (way == 0) {
                _exit(10);
            } else if (way == 1) {
                raise(SIGTERM);
            }
            exit(12);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child) {
            return 1;
        }
        say_status(status);
    }
    printf("more %d\n", waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
    return 0;
}

static int become_daemon(const char *file) {
    crunch(2);
    if (daemon(1, 0) != 0) {
        return 1;
    }
    crunch(3);
    int out = open(file, O_WRONLY | O_CREAT, 0600);
    return write(out, "done", 4) == 4 ? 0 : 1;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    has_begun = 1;
    if (strcmp(what, "inherited") == 0) {
        crunch(2);
        return inherited(argc, argv);
    } else if (strcmp(what, "short") == 0) {
        return 0;
    } else if (strcmp(what, "return") == 0) {
        crunch(4);
        fputs("buffered", stdout);
        fputs("error", stderr);
        return 7;
    } else if (strcmp(what, "_exit") == 0) {
        crunch(4);
        _exit(5);
    } else if (strcmp(what, "quick_exit") == 0) {
        crunch(4);
        quick_exit(6);
    } else if (strcmp(what, "exit_group") == 0) {
        crunch(4);
        syscall(SYS_exit_group, 8);
    } else if (strcmp(what, "sigterm") == 0) {
        crunch(12);
        raise(SIGTERM);
    } else if (strcmp(what, "abort") == 0) {
        crunch(2);
        abort();
    } else if (strcmp(what, "exec") == 0) {
        crunch(2);
        execlp("no-such-program", "no-such-program", NULL);
        say(errno == ENOENT ? "no such program\n" : "?\n");
        crunch(3);
        char *environment[] = {"A=1", getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") - 11 : "B=2", NULL};
        execle(argv[0], argv[0], "again", "one", "two", "three", "four", "five", "six", NULL, environment);
    } else if (strcmp(what, "again") == 0) {
        crunch(3);
        printf("%d arguments, the last is %s, A is %s\n", argc, argv[argc - 1], getenv("A") ? getenv("A") : "");
    } else if (strcmp(what, "family") == 0) {
        return family(argv[0]);
    } else if (strcmp(what, "daemon") == 0) {
        return become_daemon(argv[2]);
    } else if (strcmp(what, "unshare") == 0) {
        crunch(argc > 2 ? 2 : 0);
        printf("%d\n", unshare(CLONE_NEWUSER));
        crunch(3);
    } else if (strcmp(what, "raw-unshare") == 0) {
        crunch(2);
        printf("%ld\n", syscall(SYS_unshare, CLONE_NEWUSER));
        crunch(3);
    } else if (strcmp(what, "close-all") == 0) {
        return close_all();
    } else if (strcmp(what, "no-clock") == 0) {
        prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
        count(400000000);
        say("no clock\n");
    } else if (strcmp(what, "no-clock-child") == 0) {
        prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
        pid_t child = fork();
        count(300000000);
        if (child == 0) {
            exit(4);
        }
        return status_of(child);
    } else if (strcmp(what, "strict") == 0) {
        crunch(2);
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        count(200000000);
        say("strict\n");
        syscall(SYS_exit, 0);
    } else if (strcmp(what, "filter") == 0) {
        crunch(2);
        return filtered(SECCOMP_FILTER_FLAG_TSYNC);
    } else if (strcmp(what, "listener") == 0) {
        crunch(2);
        return filtered(SECCOMP_FILTER_FLAG_NEW_LISTENER);
    } else if (strcmp(what, "child-filter") == 0) {
        crunch(2);
        return child_filtered();
    } else if (strcmp(what, "raw-child-filter") == 0) {
        crunch(2);
        return raw_child_filtered();
    } else if (strcmp(what, "limit") == 0) {
        return limited();
    } else if (strcmp(what, "first-thread-ends") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, crunch_on, NULL);
        pthread_exit(NULL);
    } else if (strcmp(what, "only-thread-ends") == 0) {
        crunch(3);
        syscall(SYS_exit, 4);
    }
    return 0;
}
