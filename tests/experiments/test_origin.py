"""Where numbers come from."""

import shutil
import subprocess
from pathlib import Path

import pytest

from compact_bilinear.experiments import origin

ORIGIN = "origin.py"


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@y.z"]
    return subprocess.run(["git", *who, "-C", folder, *arguments], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_commit_is_that_of_the_code_and_says_if_files_differ(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / ORIGIN).write_text("1\n")
    assert origin.commit(package) is None, "no repository"
    origin.commit.cache_clear()
    git(tmp_path, "init", "-q")
    (tmp_path / "other").touch()
    git(tmp_path, "add", "other")
    git(tmp_path, "commit", "-qm", "one")
    assert origin.commit(package) is None, "a repository that has nothing to do with the code"
    origin.commit.cache_clear()
    git(tmp_path, "add", "package")
    git(tmp_path, "commit", "-qm", "two")
    assert origin.commit(package) == git(tmp_path, "rev-parse", "HEAD")
    origin.commit.cache_clear()
    (package / ORIGIN).write_text("2\n")
    assert origin.commit(package) == git(tmp_path, "rev-parse", "HEAD") + "-dirty"
    origin.commit.cache_clear()


def test_a_record_says_what_decides_its_digits() -> None:
    made = origin.made("cpu", seconds=2.5, size=448)
    assert made["versions"].keys() >= {"numpy", "scikit-learn", "pillow"}
    assert (made["seconds"], made["size"]) == (2.5, 448)
    assert made["torch"]
    assert made["device"]
