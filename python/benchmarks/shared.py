"""Parts of several benchmarks."""

from __future__ import annotations

import os
import statistics


def agent_seconds():
    """Returns the CPU seconds of the agent's threads in this process."""
    total_ns = 0
    for thread in os.listdir("/proc/self/task"):
        folder = f"/proc/self/task/{thread}"
        try:
            with open(f"{folder}/comm") as name, open(f"{folder}/schedstat") as times:
                if name.read().startswith("emberline-"):
                    total_ns += int(times.read().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            # It ended meanwhile.
            continue
    return total_ns / 1e9


def spread(values, form="{:.2f}"):
    """Returns the median, with the least and the greatest in parentheses."""
    middle, least, most = (form.format(value) for value in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least}–{most})"


def shares(counts):
    whole = sum(counts.values())
    return {name: count / whole for name, count in counts.items()}
