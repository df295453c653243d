"""Builds the wheel: maturin's module, the program `emberline`, which `pip` installs next to Python's own, and the library
that it loads into programs.

EMBERLINE_PROGRAM is the path of a program that is built already, with its library, or empty for a wheel without both. An
archive of this folder alone has no sources of the program, and makes a wheel without it too.
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
DATA = PACKAGE / "emberline.data"
SCRIPTS = DATA / "scripts"
LIBRARIES = DATA / "data" / "lib" / "emberline"
SITE = DATA / "purelib"
LIBRARY = "libemberline_preload.so"

# maturin looks for the folders in each of its hooks.
for folder in (SCRIPTS, LIBRARIES, SITE):
    folder.mkdir(parents=True, exist_ok=True)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    add_files()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    add_files()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def add_files():
    """Puts the program, its library and what Python reads at its start where maturin finds them."""
    for name in ("emberline.pth", "_emberline_frameworks.py"):
        shutil.copy(PACKAGE / "site" / name, SITE / name)
    (SCRIPTS / "emberline").unlink(missing_ok=True)
    (LIBRARIES / LIBRARY).unlink(missing_ok=True)
    program = os.environ.get("EMBERLINE_PROGRAM")
    if program is None and (WORKSPACE / "cli" / "Cargo.toml").exists():
        program = build_program()
    if program:
        shutil.copy(program, SCRIPTS / "emberline")
        shutil.copy(library_of(Path(program)), LIBRARIES / LIBRARY)


def library_of(program):
    """Returns the library's path: cargo builds it in a folder next to the program, packages have it in others."""
    folders = (program.parent / "deps", program.parent, program.parent / "../lib/emberline")
    for folder in folders:
        if (folder / LIBRARY).exists():
            return folder / LIBRARY
    raise FileNotFoundError(f"{LIBRARY} is missing: looked in {', '.join(map(str, folders))}")


def build_program():
    target = WORKSPACE / "target"
    command = ["cargo", "build", "--locked", "--release", "--package=emberline-cli", f"--target-dir={target}"]
    # Names of functions stay, for profiles of the program itself.
    environment = {**os.environ, "CARGO_PROFILE_RELEASE_STRIP": "debuginfo"}
    subprocess.run(command, cwd=WORKSPACE, env=environment, check=True)
    return target / "release" / "emberline"
