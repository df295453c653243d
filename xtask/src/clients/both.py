"""Calls functions of a library that pyroscope-io and Emberline's agent sample at once.

The client sees the functions of Python, the agent those of the library that they call. Arguments: URL, name,
token of the client, rounds, library.
"""

import ctypes
import sys

import pyroscope

url, name, token, rounds, path = sys.argv[1:]
# Its functions keep the lock of the interpreter, because the client samples only the thread that holds it.
library = ctypes.PyDLL(path)


def alpha():
    library.alpha()


def beta():
    library.beta()


def gamma():
    library.gamma()


if not library.start():
    sys.exit("the agent does not sample")
pyroscope.configure(
    application_name=name,
    server_address=url,
    basic_auth_username="emberline",
    basic_auth_password=token,
)
for _ in range(int(rounds)):
    alpha()
    beta()
    gamma()
pyroscope.shutdown()
library.finish()
