// A program of three threads, with names of C++.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <pthread.h>
#include <thread>
#include <vector>

namespace shop {
template <typename Number>
__attribute__((noinline)) Number hottest(Number start, double seconds) {
    Number sum = start;
    timespec now;
    do {
        for (int turn = 0; turn < 10000; turn++) {
            sum += std::sqrt(turn + sum);
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while (now.tv_sec + now.tv_nsec * 1e-9 < seconds);
    return sum;
}
}  // namespace shop

int main() {
    std::vector<std::thread> threads;
    for (int number = 0; number < 3; number++) {
        threads.emplace_back([] {
            pthread_setname_np(pthread_self(), "shop");
            volatile double sum = shop::hottest<double>(1.0, 0.7);
            (void)sum;
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    std::puts("done");
    return 7;
}
