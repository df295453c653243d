// A program in C that embeds the agent. The first argument is what it does, the second the collector's URL.
#include "emberline.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "line %d: %s (last error: %d %s)\n", __LINE__, #condition,     \
                    emberline_last_status(), emberline_last_error());                      \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

__attribute__((noinline)) static void crunch_c(double seconds) {
    double end = cpu_seconds() + seconds;
    volatile double sum = 1;
    while (cpu_seconds() < end) {
        for (int turn = 0; turn < 10000; turn++) {
            sum = sum + 1 / sum;
        }
    }
}

static uint64_t job;

static void *work_for_job(void *unused) {
    CHECK(emberline_current_task() == 0);
    CHECK(emberline_task_enter(job) == EMBERLINE_STATUS_OK);
    CHECK(emberline_current_task() == job);
    crunch_c(0.3);
    CHECK(emberline_task_leave(job) == EMBERLINE_STATUS_OK);
    CHECK(emberline_current_task() == 0);
    return unused;
}

static void on_other_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void *fail_it(void *task) {
    CHECK(emberline_task_fail(*(uint64_t *)task, "no more rows") == EMBERLINE_STATUS_OK);
    return NULL;
}

// Everything that a program can tell.
static void tell(const char *url) {
    emberline_label labels[] = {{"zone", "a"}, {"empty", NULL}};
    emberline_settings settings = {
        .size = sizeof settings,
        .worker = "embedded-c",
        .collector = url,
        .labels = labels,
        .labels_count = 2,
        .flush_timeout_s = 10,
    };
    CHECK(emberline_start_with(&settings) == EMBERLINE_STATUS_OK);
    CHECK(strcmp(emberline_mode(), "stopped") != 0);
    CHECK(emberline_start("second", url) == EMBERLINE_STATUS_ALREADY_RUNNING);
    CHECK(strstr(emberline_last_error(), "already running"));
    CHECK(emberline_expect_tasks("load", 3) == EMBERLINE_STATUS_OK);
    CHECK(emberline_report_memory(1 << 20, 0) == EMBERLINE_STATUS_OK);
    uint64_t run = emberline_mark_run("nightly");

    emberline_label of_task[] = {{"table", "orders"}};
    emberline_task_options options = {
        .size = sizeof options,
        .key = "load-1",
        .labels = of_task,
        .labels_count = 1,
        .attempt = 2,
        .queued_for_s = 0.25,
    };
    uint64_t load = emberline_task_begin_with("load", &options);
    CHECK(load != 0 && load < 1ull << 53 && emberline_current_task() == load);
    uint64_t reading = emberline_phase_begin("disk-read");
    crunch_c(0.3);
    CHECK(emberline_phase_end(reading) == EMBERLINE_STATUS_OK);
    uint64_t part = emberline_task_begin("part", NULL);
    CHECK(emberline_current_task() == part);
    CHECK(emberline_task_cancel(part) == EMBERLINE_STATUS_OK && emberline_current_task() == load);
    CHECK(emberline_task_result_bytes(load, 512) == EMBERLINE_STATUS_OK);
    CHECK(emberline_task_result_type(load, "rows") == EMBERLINE_STATUS_OK);

    const char *keys[] = {"x-1", "x-2"};
    uint64_t transfer =
        emberline_transfer_begin(EMBERLINE_DIRECTION_INCOMING, "worker-2", keys, 2, "Matrix");
    CHECK(emberline_transfer_add_bytes(transfer, 4096) == EMBERLINE_STATUS_OK);
    CHECK(emberline_transfer_add_compressed_bytes(transfer, 1024) == EMBERLINE_STATUS_OK);
    CHECK(emberline_transfer_end(transfer) == EMBERLINE_STATUS_OK);
    uint64_t broken =
        emberline_transfer_begin(EMBERLINE_DIRECTION_OUTGOING, "worker-3", NULL, 0, NULL);
    CHECK(emberline_transfer_fail(broken, "reset") == EMBERLINE_STATUS_OK);
    CHECK(emberline_task_end(load) == EMBERLINE_STATUS_OK && emberline_current_task() == 0);

    // A pool works for a task that this thread has begun and is not in.
    options.key = "job-1";
    options.detached = 1;
    job = emberline_task_begin_with("job", &options);
    CHECK(job != 0 && emberline_current_task() == 0);
    on_other_thread(work_for_job, NULL);
    CHECK(emberline_task_end(job) == EMBERLINE_STATUS_OK);

    // Another thread ends a task, and this one leaves it at its next call.
    uint64_t handed = emberline_task_begin("handed", "h-1");
    on_other_thread(fail_it, &handed);
    CHECK(emberline_current_task() == 0);
    CHECK(emberline_run_end(run) == EMBERLINE_STATUS_OK);
    CHECK(emberline_stop() == EMBERLINE_STATUS_OK);
    CHECK(strcmp(emberline_mode(), "stopped") == 0);
}

// What was recorded before a flush is at the collector although the process dies.
static void flush(const char *url) {
    CHECK(emberline_flush(1) == EMBERLINE_STATUS_NOT_RUNNING);
    CHECK(emberline_start("flushed-c", url) == EMBERLINE_STATUS_OK);
    for (int round = 0; round < 2; round++) {
        CHECK(emberline_task_end(emberline_task_begin("flushed", "f")) == EMBERLINE_STATUS_OK);
        CHECK(emberline_flush(60) == EMBERLINE_STATUS_OK);
    }
    raise(SIGKILL);
}

// A program that ends without a stop.
static void end_without_stop(const char *url) {
    CHECK(emberline_start("ended-c", url) == EMBERLINE_STATUS_OK);
    for (int round = 0; round < 50; round++) {
        CHECK(emberline_task_end(emberline_task_begin("ended", "e")) == EMBERLINE_STATUS_OK);
    }
    exit(3);
}

static void *end_phase_of_other(void *phase) {
    CHECK(emberline_phase_end(*(uint64_t *)phase) == EMBERLINE_STATUS_NOT_ENTERED);
    return NULL;
}

static void call_everything(emberline_status without_agent) {
    CHECK(emberline_task_begin("load", "x") == 0 && emberline_last_status() == without_agent);
    CHECK(emberline_phase_begin("decode") == 0 && emberline_last_status() == without_agent);
    CHECK(emberline_mark_run("nightly") == 0 && emberline_last_status() == without_agent);
    CHECK(emberline_transfer_begin(0, "peer", NULL, 0, NULL) == 0);
    CHECK(emberline_last_status() == without_agent);
    CHECK(strstr(emberline_last_error(), "no agent runs"));
    CHECK(emberline_expect_tasks("load", 1) == without_agent);
    CHECK(emberline_report_memory(1, 1) == without_agent);
    CHECK(emberline_flush(0.1) == without_agent);
    CHECK(emberline_task_end(0) == EMBERLINE_STATUS_OK);
    CHECK(emberline_task_fail(0, "x") == EMBERLINE_STATUS_OK);
    CHECK(emberline_task_cancel(0) == EMBERLINE_STATUS_OK);
    CHECK(emberline_task_enter(0) == EMBERLINE_STATUS_OK);
    CHECK(emberline_task_leave(0) == EMBERLINE_STATUS_OK);
    CHECK(emberline_task_leave(0) == EMBERLINE_STATUS_NOT_ENTERED);
    CHECK(emberline_phase_end(0) == EMBERLINE_STATUS_OK);
    CHECK(emberline_transfer_end(0) == EMBERLINE_STATUS_OK);
    CHECK(emberline_run_end(0) == EMBERLINE_STATUS_OK);
    CHECK(emberline_current_task() == 0);
    CHECK(emberline_stop() == EMBERLINE_STATUS_OK);
}

// Every call before a start, after a stop, and with what no function allows.
static void misuse(const char *url) {
    call_everything(EMBERLINE_STATUS_NOT_RUNNING);
    CHECK(emberline_start("\xff", url) == EMBERLINE_STATUS_NOT_UTF8);
    CHECK(strstr(emberline_last_error(), "worker is not UTF-8 from byte 0"));
    CHECK(emberline_start("misused-c", "ftp://nowhere") == EMBERLINE_STATUS_INVALID_ARGUMENT);
    CHECK(strstr(emberline_last_error(), "invalid collector URL"));
    emberline_settings settings = {.collector = url};
    CHECK(emberline_start_with(&settings) == EMBERLINE_STATUS_INVALID_ARGUMENT);
    CHECK(strstr(emberline_last_error(), "expected sizeof(emberline_settings)"));
    settings.size = sizeof settings;
    settings.cpu_limit = 7;
    CHECK(emberline_start_with(&settings) == EMBERLINE_STATUS_INVALID_ARGUMENT);
    settings.cpu_limit = 0;
    settings.labels_count = 1;
    CHECK(emberline_start_with(&settings) == EMBERLINE_STATUS_INVALID_ARGUMENT);
    // A header of a later version has more fields.
    struct {
        emberline_settings known;
        uint64_t unknown;
    } later = {.known = {.size = sizeof later, .worker = "misused-c", .collector = url}};
    later.unknown = 1;
    CHECK(emberline_start_with(&later.known) == EMBERLINE_STATUS_INVALID_ARGUMENT);
    later.unknown = 0;
    CHECK(emberline_start_with(&later.known) == EMBERLINE_STATUS_OK);

    CHECK(emberline_task_begin(NULL, "x") == 0);
    CHECK(strstr(emberline_last_error(), "the name of a task is NULL; expected"));
    CHECK(emberline_task_begin("", NULL) == 0);
    CHECK(emberline_last_status() == EMBERLINE_STATUS_INVALID_ARGUMENT);
    CHECK(emberline_task_begin("a\x80", NULL) == 0);
    CHECK(emberline_last_status() == EMBERLINE_STATUS_NOT_UTF8);
    CHECK(emberline_transfer_begin(2, "peer", NULL, 0, NULL) == 0);
    CHECK(strstr(emberline_last_error(), "invalid direction 2"));
    CHECK(emberline_transfer_begin(0, "peer", NULL, 1, NULL) == 0);
    CHECK(emberline_flush(-1) == EMBERLINE_STATUS_INVALID_ARGUMENT);

    uint64_t task = emberline_task_begin("misused", "m-1");
    CHECK(emberline_transfer_end(task) == EMBERLINE_STATUS_INVALID_HANDLE);
    CHECK(strstr(emberline_last_error(), "is a task; expected a transfer"));
    uint64_t phase = emberline_phase_begin("decode");
    on_other_thread(end_phase_of_other, &phase);
    CHECK(emberline_phase_end(phase) == EMBERLINE_STATUS_OK);
    CHECK(emberline_phase_end(phase) == EMBERLINE_STATUS_NOT_ENTERED);
    CHECK(emberline_task_end(task) == EMBERLINE_STATUS_OK);
    CHECK(emberline_task_end(task) == EMBERLINE_STATUS_INVALID_HANDLE);
    CHECK(strstr(emberline_last_error(), "has ended"));
    CHECK(emberline_task_end(~0ull) == EMBERLINE_STATUS_INVALID_HANDLE);
    CHECK(emberline_task_enter(task) == EMBERLINE_STATUS_INVALID_HANDLE);
    CHECK(emberline_task_leave(task) == EMBERLINE_STATUS_OK);
    CHECK(emberline_task_leave(task) == EMBERLINE_STATUS_NOT_ENTERED);

    // Nobody leaves this task: neither the end of the thread nor a fork minds.
    uint64_t open = emberline_task_begin("open", NULL);
    pid_t child = fork();
    if (child == 0) {
        CHECK(emberline_current_task() == 0);
        CHECK(emberline_task_end(open) == EMBERLINE_STATUS_INVALID_HANDLE);
        call_everything(EMBERLINE_STATUS_NOT_RUNNING);
        CHECK(emberline_start("child-c", url) == EMBERLINE_STATUS_OK);
        CHECK(emberline_task_end(emberline_task_begin("of-child", "c-1")) == EMBERLINE_STATUS_OK);
        CHECK(emberline_stop() == EMBERLINE_STATUS_OK);
        _exit(0);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(emberline_stop() == EMBERLINE_STATUS_OK);
    CHECK(emberline_task_end(open) == EMBERLINE_STATUS_OK);
    call_everything(EMBERLINE_STATUS_NOT_RUNNING);
    CHECK(emberline_start("again-c", url) == EMBERLINE_STATUS_OK);
    CHECK(emberline_stop() == EMBERLINE_STATUS_OK);
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    const char *url = arguments[2];
    if (strcmp(arguments[1], "tell") == 0) {
        tell(url);
    } else if (strcmp(arguments[1], "flush") == 0) {
        flush(url);
    } else if (strcmp(arguments[1], "end") == 0) {
        end_without_stop(url);
    } else {
        misuse(url);
    }
    puts("done");
    return 0;
}
