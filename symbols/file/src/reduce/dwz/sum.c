struct point { long x, y; const char *name; };
static inline __attribute__((always_inline)) long twice(long a) { return a * 2 ^ a >> 3; }
static inline __attribute__((always_inline)) long both(struct point *p) { return twice(p->x) + twice(p->y); }
__attribute__((noinline)) long NAME(struct point *points, long count) {
    long total = 0;
    for (long i = 0; i < count; i++) total += both(&points[i]);
    return total;
}
