"""A cluster of 4 processes with the QR decomposition of Dask's documentation: `python -m emberline.dask.demo`.

Some of its tasks hold the interpreter's lock, move data, or fail, so that each page shows something.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import time

import dask.array as da
from distributed import Client, LocalCluster

from . import Plugin, _program


def count_primes(limit):
    """Holds the interpreter's lock: a second thread of the worker waits for it."""
    return sum(all(number % divisor for divisor in range(2, number)) for number in range(2, limit))


def fail_sometimes(number):
    if number % 4 == 0:
        raise ValueError(f"{number} is a multiple of 4")
    return number


def qr(client) -> float:
    """The example of Dask's documentation of local diagnostics, persisted so that its blocks move between workers."""
    a = da.random.random(size=(10_000, 500), chunks=(1_000, 500))
    q, r = da.linalg.qr(a)
    distance = abs(a - q.dot(r)).max()
    return client.compute(distance).result()


def shuffle(client) -> float:
    x = da.random.random((2_000, 2_000), chunks=(250, 250))
    return client.compute((x @ x.T + x[::-1]).sum()).result()


def run(client, seconds: float) -> None:
    """Computes for so long, with each part at least once."""
    deadline = time.monotonic() + seconds
    turn = 0
    while turn == 0 or time.monotonic() < deadline:
        primes = client.map(count_primes, [1_500 + turn * 100 + number for number in range(16)])
        failing = client.map(fail_sometimes, range(turn * 8, turn * 8 + 8), retries=1)
        qr(client)
        shuffle(client)
        client.gather(primes)
        client.gather(failing, errors="skip")
        turn += 1


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m emberline.dask.demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to compute (30)")
    parser.add_argument("--collector", default=os.environ.get("EMBERLINE_URL"), help="URL; default: one of its own")
    options = parser.parse_args()
    # The threads of OpenBLAS would hide those of Dask.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # The collector has a session of its own: it ends with this program, however that is stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    collector = None
    if options.collector is None:
        collector = _program.Child(
            ["serve", "--listen", "127.0.0.1:0"], r"collector on (http://[^;]*);", subprocess.STDOUT
        )
    url = options.collector or collector.url
    print(f"Open {url}", flush=True)
    try:
        with LocalCluster(n_workers=4, threads_per_worker=2, silence_logs=50) as cluster, Client(cluster) as client:
            print(f"Dask's own dashboard: {cluster.dashboard_link}", flush=True)
            client.register_plugin(Plugin(url))
            run(client, options.seconds)
        if collector is not None:
            print("The computation has ended. The data stays until Ctrl-C.", flush=True)
            collector.process.wait()
    except KeyboardInterrupt:
        pass
    finally:
        if collector is not None:
            collector.terminate()


if __name__ == "__main__":
    main()
