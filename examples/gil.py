"""Four threads that want the interpreter's lock (GIL): one of them calls native code that holds it for long.

pip install ./python && python examples/gil.py

Prints how long threads waited, and which function held the lock meanwhile: `[GIL held by hold]`. On the page, choose
"waiting" and "GIL" above a profile.
"""

import shutil
import subprocess
import sys
import sysconfig
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
    # Installed with the package.
    program = shutil.which("emberline", path=sysconfig.get_path("scripts")) or "emberline"
    subprocess.run([program, "profile", "--worker", "gil", "--state", "interpreter"], check=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
