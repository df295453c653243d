// A program in C++ that embeds the agent: guards, exceptions, threads and a pool of OpenMP.
#include "emberline.hpp"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            std::fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition,                 \
                         emberline::last_error().c_str());                                   \
            std::exit(1);                                                                    \
        }                                                                                    \
    } while (0)

static double cpu_seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

template <int Kind>
__attribute__((noinline)) int crunch(double seconds) {
    double end = cpu_seconds() + seconds;
    volatile double sum = Kind;
    while (cpu_seconds() < end) {
        for (int turn = 0; turn < 10000; turn++) {
            sum = sum + 1 / sum;
        }
    }
    return Kind;
}

static void fails() {
    emberline::Task task("fails", "f-1");
    emberline::Phase phase("decode");
    emberline::Transfer transfer(EMBERLINE_DIRECTION_OUTGOING, "worker-2", "x-1", "Matrix");
    throw std::runtime_error("no such row");
}

// A task in a destructor that runs because of an exception is not left by that exception.
struct Cleanup {
    ~Cleanup() { emberline::Task task("cleanup", "c-1"); }
};

static emberline::Task begun() {
    return emberline::Task("moved", std::string("m-1"));
}

int main(int, char **arguments) {
    {
        emberline::Task before("before the start");
        CHECK(before.handle().number() == 0);
        CHECK(before.handle().run([] { return 5; }) == 5);
    }
    emberline::Agent agent("embedded-cpp", arguments[1]);
    CHECK(agent);
    {
        emberline::Agent second("second", arguments[1]);
        CHECK(!second && second.status() == EMBERLINE_STATUS_ALREADY_RUNNING);
    }
    CHECK(emberline_current_task() == 0);
    emberline::Run run("cpp");
    {
        emberline::Task task("threads", "t-1");
        const emberline::TaskHandle here = emberline::current_task();
        CHECK(here.number() == task.handle().number());
        std::vector<std::thread> threads;
        for (int number = 0; number < 2; number++) {
            threads.emplace_back([here] {
                CHECK(here.run([] { return crunch<1>(0.3); }) == 1);
                CHECK(emberline_current_task() == 0);
            });
        }
        for (auto &thread : threads) {
            thread.join();
        }
    }
    // The threads of this pool live on between two parallel regions.
    for (int round = 0; round < 2; round++) {
        emberline::Task task("pool", std::to_string(round));
        const emberline::TaskHandle here = task.handle();
#pragma omp parallel num_threads(3)
        here.run([] { crunch<2>(0.15); });
    }
    try {
        Cleanup cleanup;
        fails();
        CHECK(false);
    } catch (const std::runtime_error &) {
        CHECK(emberline_current_task() == 0);
    }
    {
        emberline::Task moved = begun();
        CHECK(emberline_current_task() == moved.handle().number());
        moved.result_bytes(512);
        moved.result_type("rows");
    }
    {
        emberline::Task refused("refused");
        refused.cancel();
        CHECK(refused.handle().number() == 0);
    }
    CHECK(agent.flush(60));
    std::puts("done");
    return 0;
}
