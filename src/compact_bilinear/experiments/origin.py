"""Where a number comes from: versions, device, commit, date. Every record carries it."""

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .. import __version__
from ..timing import machine

PACKAGES = ("numpy", "scikit-learn", "pillow", "pyarrow")  # what else decides the digits


def made(device: str, **more: Any) -> dict[str, Any]:
    """What a record has to say of where, when and by what it was made.

    Args:
        device: "cpu" or "cuda".
        more: what else: seconds, settings.

    >>> sorted(made("cpu", seconds=1.5))
    ['commit', 'compact-bilinear', 'date', 'device', 'python', 'seconds', 'threads', 'torch', 'versions']
    """
    return machine(device) | {"compact-bilinear": __version__, "commit": commit(), "versions": _versions()} | more


@cache
def commit(folder: Path = Path(__file__).parent) -> str | None:
    """The commit of the code, with "-dirty" if files differ from it; None where that is not known.

    Args:
        folder: of the code; a repository counts if it holds the files there, and not only an environment that they are in.
    """
    tracked = _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
    return _git(folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") if tracked else None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # then nothing that it decides was computed
            continue
    return found
