"""Four threads that want the interpreter's lock (GIL): one of them calls native code that holds it for long.

pip install ./python && python examples/gil.py

The profiles of the tasks show `[waiting for the GIL]` below the function that waited, and the native code below the
one that held it.
"""

import sys
import threading
import time

import emberline


def count(until):
    number = 0
    while time.monotonic() < until:
        number += 1
    return number


def hold(until):
    while time.monotonic() < until:
        # One call of native code, which does not give the lock away.
        sum(range(2_000_000))


def run(name, work, until):
    with emberline.task(name):
        work(until)


def main(seconds):
    with emberline.start("gil") as agent:
        print(f"sampler: {agent.mode}")
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=run, args=("count", count, until)) for _ in range(3)]
        threads.append(threading.Thread(target=run, args=("hold", hold, until)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print("emberline profile --worker gil --waiting")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
