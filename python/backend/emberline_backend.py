"""Builds the wheel: maturin's module, and the program `emberline`, which `pip` installs next to Python's own.

EMBERLINE_PROGRAM is the path of a program that is built already, or empty for a wheel without one. An archive of this
folder alone has no sources of the program, and makes a wheel without it too.
"""

import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import (  # noqa: F401: hooks that pip calls
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

PACKAGE = Path(__file__).resolve().parents[1]
WORKSPACE = PACKAGE.parent
SCRIPTS = PACKAGE / "emberline.data" / "scripts"

# maturin looks for the folder in each of its hooks.
SCRIPTS.mkdir(parents=True, exist_ok=True)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    add_program()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    add_program()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def add_program():
    """Puts the program where maturin finds it."""
    (SCRIPTS / "emberline").unlink(missing_ok=True)
    program = os.environ.get("EMBERLINE_PROGRAM")
    if program is None and (WORKSPACE / "cli" / "Cargo.toml").exists():
        program = build_program()
    if program:
        shutil.copy(program, SCRIPTS / "emberline")


def build_program():
    target = WORKSPACE / "target"
    command = ["cargo", "build", "--locked", "--release", "--package=emberline-cli", f"--target-dir={target}"]
    # Names of functions stay, for profiles of the program itself.
    environment = {**os.environ, "CARGO_PROFILE_RELEASE_STRIP": "debuginfo"}
    subprocess.run(command, cwd=WORKSPACE, env=environment, check=True)
    return target / "release" / "emberline"
