/* A program that does not know of Emberline. The first argument says what it does; all output and the exit code are
   the same on every run. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
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

static void *print_on(void *unused) {
    crunch(3);
    fputs("buffered by a thread", stdout);
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
    printf("%lu of %lu files, parent alive %d\n", (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max,
           getppid() > 0);
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

/* Becomes a program that does not exist. */
static void fail_to_become_another(void) {
    char *arguments[] = {"no-such-program", NULL};
    execv("/no/such/program", arguments);
    say(errno == ENOENT ? "no such program\n" : "?\n");
}

/* Forbids all system calls but those that this program makes from now on. */
static int strictly_filtered(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 6, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_wait4, 2, 0),
#ifdef SYS_vfork
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_vfork, 1, 0),
#endif
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

/* After a filter, the program fails to become another one, to confine itself again, and its child too. */
static int filtered_exec(int is_child) {
    struct sock_fprog empty = {0, NULL};
    if (is_child) {
        pid_t child = vfork();
        if (child == 0) {
            if (strictly_filtered() == 0) {
                prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &empty);
                fail_to_become_another();
            }
            _exit(7);
        }
        int status = 0;
        waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 9;
    }
    if (strictly_filtered() != 0) {
        return 9;
    }
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &empty) != -1) {
        return 8;
    }
    fail_to_become_another();
    pid_t child = vfork();
    if (child == 0) {
        fail_to_become_another();
        _exit(5);
    }
    int status = 0;
    waitpid(child, &status, 0);
    _exit(WEXITSTATUS(status));
}

/* Asks for filters without installing one. */
static int asked_for_filters(void) {
    printf("%d", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL));
    printf(" %ld\n", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL));
    crunch(3);
    return 0;
}

/* The kernel refuses what is at invalid addresses. */
static int invalid(void) {
    /* The compiler would warn of it. */
    void *volatile invalid_address = (void *)8;
    void *nowhere = invalid_address;
    char *arguments[] = {"x", NULL};
    char *broken[] = {"A=1", nowhere, NULL};
    extern char **environ;
    pid_t child = 0;
    execve(nowhere, arguments, environ);
    printf("%d", errno);
    execve("/bin/true", nowhere, environ);
    printf(" %d", errno);
    execve("/bin/true", arguments, nowhere);
    printf(" %d", errno);
    execve("/bin/true", arguments, broken);
    printf(" %d", errno);
    execveat(AT_FDCWD, nowhere, arguments, environ, 0);
    printf(" %d", errno);
    printf(" %d", posix_spawn(&child, nowhere, NULL, NULL, arguments, environ));
    printf(" %d", posix_spawn(&child, "/bin/true", NULL, NULL, arguments, broken));
    printf(" %d", posix_spawn(&child, "/bin/true", NULL, NULL, arguments, nowhere));
    printf(" %d %d", prlimit(0, RLIMIT_AS, nowhere, NULL), errno);
    printf(" %ld %d\n", syscall(SYS_prlimit64, 0, RLIMIT_DATA, nowhere, NULL), errno);
    return 0;
}

static ucontext_t outside;

static void become(const char *file) {
    char *arguments[] = {"x", NULL};
    execv(file, arguments);
    execvp("no-such-program", arguments);
    execl(file, file, NULL);
}

/* Fails to become another program on a stack of four pages. */
static int on_small_stack(const char *file) {
    size_t page = 4096;
    char *memory = mmap(NULL, 5 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory + page, 4 * page, PROT_READ | PROT_WRITE);
    ucontext_t inside;
    getcontext(&inside);
    inside.uc_stack.ss_sp = memory + page;
    inside.uc_stack.ss_size = 4 * page;
    inside.uc_link = &outside;
    makecontext(&inside, (void (*)(void))become, 1, file);
    swapcontext(&outside, &inside);
    printf("%d\n", errno);
    return 0;
}

/* Becomes a program in one of the ways that the C library offers. */
static int become_by(const char *way, char *file) {
    extern char **environ;
    char *arguments[] = {file, NULL};
    int opened = open(file, O_RDONLY | O_CLOEXEC);
    if (strcmp(way, "fexecve") == 0) {
        fexecve(opened, arguments, environ);
    } else if (strcmp(way, "execveat") == 0) {
        execveat(AT_FDCWD, file, arguments, environ, 0);
    } else if (strcmp(way, "execveat-opened") == 0) {
        execveat(opened, "", arguments, environ, AT_EMPTY_PATH);
    } else if (strcmp(way, "raw-execveat") == 0) {
        syscall(SYS_execveat, opened, "", arguments, environ, AT_EMPTY_PATH);
    } else if (strcmp(way, "raw-execve") == 0) {
        syscall(SYS_execve, file, arguments, environ);
    } else {
        pid_t child = 0;
        int status = 0;
        posix_spawn(&child, file, NULL, NULL, arguments, environ);
        waitpid(child, &status, 0);
        return WEXITSTATUS(status);
    }
    return 99;
}

static int status_of(pid_t child);

/* Counts threads with a real-time policy, in a child of a thread that has one. */
static int real_time(void) {
    struct sched_param lowest = {.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_FIFO, &lowest) != 0) {
        return 8;
    }
    pid_t child = fork();
    if (child != 0) {
        return status_of(child);
    }
    crunch(3);
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] != '.') {
            count += sched_getscheduler(atoi(task->d_name)) == SCHED_FIFO;
        }
    }
    exit(count);
}

/* Blocks and ignores signals, and becomes another program. */
static int with_signals(char **arguments) {
    sigset_t some;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    sigaddset(&some, SIGTERM);
    sigprocmask(SIG_BLOCK, &some, NULL);
    for (const int *one = (const int[]){SIGPIPE, SIGINT, SIGHUP, SIGCHLD, 0}; *one; one++) {
        signal(*one, SIG_IGN);
    }
    struct rlimit few = {300, 4000};
    setrlimit(RLIMIT_NOFILE, &few);
    execvp(arguments[0], arguments);
    return 127;
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

/* A child with a terminal of its own. */
static int with_terminal(void) {
    int terminal = -1;
    pid_t child = forkpty(&terminal, NULL, NULL, NULL);
    if (child == 0) {
        crunch(3);
        exit(6);
    }
    return status_of(child);
}

static int capset_to(unsigned effective, unsigned permitted) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2] = {{effective, permitted, 0}, {0, 0, 0}};
    return syscall(SYS_capset, &header, sets);
}

/* Counts threads whose permitted capabilities are those of the calling one. */
static int others_with_more(void) {
    char own[64] = "", path[300], line[256];
    int others = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (int round = 0; round < 2; round++, rewinddir(tasks)) {
        for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
            snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
            FILE *status = fopen(path, "r");
            while (status != NULL && fgets(line, sizeof line, status) != NULL) {
                if (strncmp(line, "CapPrm:", 7) != 0) {
                    continue;
                } else if (round == 0 && atoi(task->d_name) == getpid()) {
                    snprintf(own, sizeof own, "%s", line + 7);
                } else if (round == 1) {
                    others += strcmp(own, line + 7) != 0;
                }
            }
            if (status != NULL) {
                fclose(status);
            }
        }
    }
    closedir(tasks);
    return others;
}

/* As a server does for each request. */
__attribute__((noinline)) void switch_capabilities(unsigned some, unsigned permitted) {
    for (int turn = 0; turn < 300; turn++) {
        capset_to(turn % 2 == 0 ? some : 0, permitted);
        count(1000000);
    }
}

/* Switches capabilities, gives some up, and becomes another user. */
static int with_capabilities(void) {
    unsigned of_users = 1 << CAP_SETUID | 1 << CAP_SETGID;
    if (capset_to(0, of_users | 1 << CAP_NET_RAW) != 0) {
        return 8;
    }
    crunch(3);
    pid_t child = fork();
    if (child != 0) {
        return status_of(child);
    }
    crunch(3);
    switch_capabilities(of_users, of_users | 1 << CAP_NET_RAW);
    printf("others with more: %d\n", others_with_more());
    capset_to(of_users, of_users);
    crunch(3);
    printf("others with more: %d\n", others_with_more());
    capset_to(0, of_users);
    capset_to(of_users, of_users);
    printf("%d", setgid(65534));
    printf(" %d %d\n", setuid(65534), getuid());
    return 0;
}

/* Becomes a program that may not read memory of processes. */
static int without_reads(char **arguments) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        return 9;
    }
    execvp(arguments[0], arguments);
    return 127;
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
    } else if (strcmp(what, "urgent-blocked") == 0) {
        /* As a program does that reads the signal from a descriptor. */
        sigset_t urgent;
        sigemptyset(&urgent);
        sigaddset(&urgent, SIGURG);
        sigprocmask(SIG_BLOCK, &urgent, NULL);
        crunch(6);
        struct timespec none = {0, 0};
        if (sigtimedwait(&urgent, NULL, &none) >= 0)
            return 1;
        for (int sent = 0; sent < 20; sent++) {
            kill(getpid(), SIGURG);
            if (sigtimedwait(&urgent, NULL, &none) != SIGURG)
                return 2;
        }
        return 0;
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
    } else if (strcmp(what, "until-signal") == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        crunch(15);
        say("ready\n");
        crunch(600);
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
    } else if (strcmp(what, "capabilities") == 0) {
        return with_capabilities();
    } else if (strcmp(what, "terminal") == 0) {
        crunch(2);
        return with_terminal();
    } else if (strcmp(what, "daemon") == 0) {
        return become_daemon(argv[2]);
    } else if (strcmp(what, "other-user") == 0) {
        pid_t child = fork();
        if (child == 0) {
            int is_other = setgid(65534) == 0 && setuid(65534) == 0;
            crunch(8);
            exit(is_other ? 4 : 5);
        }
        return status_of(child);
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
    } else if (strcmp(what, "filter-exec") == 0) {
        crunch(2);
        return filtered_exec(0);
    } else if (strcmp(what, "child-filter-exec") == 0) {
        crunch(2);
        return filtered_exec(1);
    } else if (strcmp(what, "asks-for-filters") == 0) {
        crunch(2);
        return asked_for_filters();
    } else if (strcmp(what, "invalid") == 0) {
        crunch(2);
        return invalid();
    } else if (strcmp(what, "small-stack") == 0) {
        crunch(2);
        return on_small_stack(argv[2]);
    } else if (strcmp(what, "become-by") == 0) {
        return become_by(argv[2], argv[3]);
    } else if (strcmp(what, "real-time") == 0) {
        return real_time();
    } else if (strcmp(what, "with-signals") == 0) {
        return with_signals(argv + 2);
    } else if (strcmp(what, "without-reads") == 0) {
        return without_reads(argv + 2);
    } else if (strcmp(what, "setns") == 0) {
        crunch(2);
        int space = open("/proc/self/ns/net", O_RDONLY);
        printf("%d", setns(space, 0));
        printf(" %ld", syscall(SYS_setns, space, CLONE_NEWNET));
        close(space);
        space = open("/proc/self/ns/mnt", O_RDONLY);
        printf(" %d\n", setns(space, CLONE_NEWNS));
        crunch(3);
    } else if (strcmp(what, "buffered-thread") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, print_on, NULL);
        pthread_exit(NULL);
    } else if (strcmp(what, "raw-end") == 0) {
        crunch(3);
        fputs("never written", stdout);
        syscall(SYS_exit, 0);
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
