struct point { long x, y; const char *name; };
long first(struct point *, long);
long second(struct point *, long);
int main(int count, char **arguments) {
    struct point points[] = { { count, 2, arguments[0] }, { 3, count, arguments[0] } };
    return first(points, 2) + second(points, 2);
}
