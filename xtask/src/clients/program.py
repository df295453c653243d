"""Computes for some windows of the client, partly in a task. Arguments: URL, name, token."""

import sys
import time

import pyroscope

SECONDS = 6

url, name, token = sys.argv[1:]
pyroscope.configure(
    application_name=name,
    server_address=url,
    tags={"a.b": "c", "region": "eu"},
    basic_auth_username="emberline",
    basic_auth_password=token,
)


def fibonacci(number):
    return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)


def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        fibonacci(16)


with pyroscope.tag_wrapper({"task": "checkout"}):
    compute(SECONDS)
compute(SECONDS)
pyroscope.shutdown()
