/* execl, execlp and execle: their arguments become an array for execve and execvpe, which are those of
   exports/become_other.rs. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#define LOCAL __attribute__((visibility("hidden")))

/* Most arguments that are passed on; the C library's own limit is that of the stack. */
enum { ARGUMENTS_MAX = 65536 };

/* Counts the arguments up to the null pointer, or returns 0 if there are too many. */
static size_t count(va_list list) {
    size_t number = 1;
    while (va_arg(list, char *) != NULL) {
        if (++number > ARGUMENTS_MAX) {
            return 0;
        }
    }
    return number;
}

/* Declares `arguments` with `first` and the rest of `list`, and leaves `list` after the null pointer. */
#define COLLECT(list, first)                                \
    va_list counted;                                        \
    va_start(counted, first);                               \
    size_t length = (first) == NULL ? 1 : count(counted) + 1; \
    va_end(counted);                                        \
    if (length == 1 && (first) != NULL) {                   \
        errno = E2BIG;                                      \
        return -1;                                          \
    }                                                       \
    char *arguments[length];                                \
    arguments[0] = (char *)(first);                         \
    va_start(list, first);                                  \
    for (size_t index = 1; index < length; index++) {       \
        arguments[index] = va_arg(list, char *);            \
    }

LOCAL int emberline_execl(const char *path, const char *first, ...) {
    va_list list;
    COLLECT(list, first)
    va_end(list);
    return execve(path, arguments, environ);
}

LOCAL int emberline_execlp(const char *file, const char *first, ...) {
    va_list list;
    COLLECT(list, first)
    va_end(list);
    return execvpe(file, arguments, environ);
}

LOCAL int emberline_execle(const char *path, const char *first, ...) {
    va_list list;
    COLLECT(list, first)
    char *const *environment = va_arg(list, char *const *);
    va_end(list);
    return execve(path, arguments, environment);
}
