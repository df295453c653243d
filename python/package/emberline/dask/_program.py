"""The program `emberline`, as a child process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import threading

# Longest wait for a collector's first line, and for a report.
START_S_MAX = 60
REPORT_S_MAX = 120


def find() -> str:
    """Returns the path of the program: that of EMBERLINE_PROGRAM, of this installation of Python, or of PATH."""
    installed = shutil.which("emberline", path=sysconfig.get_path("scripts"))
    program = os.environ.get("EMBERLINE_PROGRAM") or installed or shutil.which("emberline")
    if not program:
        raise FileNotFoundError("the program emberline is not installed: neither with this package nor in PATH")
    return program


class Child:
    """A collector in a child process. `url` is its address, the first text that matches `pattern` in its output."""

    def __init__(self, arguments, pattern: str, stderr=None):
        self.process = subprocess.Popen(
            [find(), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            # Ctrl-C of the program's terminal is the program's.
            start_new_session=True,
        )
        watchdog = threading.Timer(START_S_MAX, self.process.kill)
        watchdog.daemon = True
        watchdog.start()
        lines = (re.search(pattern, line) for line in self.process.stdout)
        found = next(filter(None, lines), None)
        watchdog.cancel()
        if found is None:
            raise RuntimeError(f"`emberline {arguments[0]}` ended without an address: code {self.process.wait()}")
        self.url = found[1]
        # A full pipe would stop it.
        self.reader = threading.Thread(target=self.process.stdout.read, daemon=True)
        self.reader.start()

    def finish(self) -> None:
        """Ends the child's input, and waits until it has written its report."""
        self.process.stdin.close()
        try:
            code = self.process.wait(REPORT_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise RuntimeError(f"no report after {REPORT_S_MAX} s") from None
        finally:
            self._close()
        if code:
            raise RuntimeError(f"`emberline record` failed with code {code}; its output says why")

    def terminate(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.process.stdin.close()
        self._close()

    def _close(self) -> None:
        self.reader.join()
        self.process.stdout.close()
