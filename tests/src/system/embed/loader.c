// Loads libraries by name. `two FIRST SECOND URL` loads two copies, `one FIRST URL` one copy, whose agent takes
// the place of the one that `emberline run` has loaded.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(condition)                                                \
    do {                                                                \
        if (!(condition)) {                                             \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);     \
            exit(1);                                                    \
        }                                                               \
    } while (0)

enum { OK = 0, ALREADY_RUNNING = 2 };

typedef struct {
    void *handle;
    int32_t (*start)(const char *, const char *);
    int32_t (*stop)(void);
    uint64_t (*begin)(const char *, const char *);
    int32_t (*end)(uint64_t);
    const char *(*error)(void);
} Library;

static void *symbol(void *handle, const char *name) {
    void *found = dlsym(handle, name);
    CHECK(found);
    return found;
}

static Library load(const char *file) {
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    Library library;
    library.handle = handle;
    *(void **)&library.start = symbol(handle, "emberline_start");
    *(void **)&library.stop = symbol(handle, "emberline_stop");
    *(void **)&library.begin = symbol(handle, "emberline_task_begin");
    *(void **)&library.end = symbol(handle, "emberline_task_end");
    *(void **)&library.error = symbol(handle, "emberline_last_error");
    return library;
}

// Whether this process has a sampler, by the names of its threads.
static int has_sampler(void) {
    int found = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    for (struct dirent *entry; (entry = readdir(tasks));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file) {
            found |= fgets(name, sizeof name, file) && strcmp(name, "emberline-tick\n") == 0;
            fclose(file);
        }
    }
    closedir(tasks);
    return found;
}

static void check_refused(Library library, const char *url) {
    CHECK(library.start("second", url) == ALREADY_RUNNING);
    CHECK(strstr(library.error(), "an agent is already running in this process"));
    CHECK(library.begin("nothing", NULL) == 0);
}

static void two(const char *first_file, const char *second_file, const char *url) {
    Library first = load(first_file);
    Library second = load(second_file);
    CHECK(first.start != second.start);
    CHECK(first.start("loaded", url) == OK);
    check_refused(second, url);
    uint64_t task = first.begin("kept", "k-1");
    CHECK(task != 0);
    // The threads of the agent run the library's code: it stays.
    CHECK(dlclose(first.handle) == 0);
    CHECK(dlclose(second.handle) == 0);
    CHECK(dlopen(first_file, RTLD_NOW | RTLD_NOLOAD));
    CHECK(first.end(task) == OK);
    check_refused(second, url);
    CHECK(first.stop() == OK);
    CHECK(second.start("loaded-second", url) == OK);
    check_refused(first, url);
    CHECK(second.stop() == OK);
}

static void one(const char *file, const char *url) {
    struct timespec pause = {0, 5000000};
    for (int waits = 0; !has_sampler(); waits++) {
        CHECK(waits < 12000);
        nanosleep(&pause, NULL);
    }
    Library library = load(file);
    CHECK(library.start("second", url) == OK);
    uint64_t task = library.begin("kept", "k-1");
    for (clock_t end = clock() + CLOCKS_PER_SEC / 5; clock() < end;) {
    }
    CHECK(library.end(task) == OK);
    CHECK(library.stop() == OK);
    CHECK(!has_sampler());
}

int main(int count, char **arguments) {
    if (count == 5) {
        two(arguments[2], arguments[3], arguments[4]);
    } else {
        CHECK(count == 4);
        one(arguments[2], arguments[3]);
    }
    puts("done");
    return 0;
}
