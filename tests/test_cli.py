"""The command line itself: verbs, help, exit codes, and how long it takes to say so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import compact_bilinear
from compact_bilinear import cli


def test_help_names_every_verb_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"    {verb}" in said for verb in cli.VERBS)
    assert "\n    cbp extract photos --backbone tiny " in said
    assert cli.main([]) == 2


@pytest.mark.parametrize("verb", cli.VERBS)
def test_each_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([verb, "--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: cbp {verb} ")
    assert f"\n    cbp {verb} " in said


def test_every_verb_is_a_recipe_and_every_recipe_a_verb() -> None:
    recipes = {file.stem for file in (Path(cli.__file__).parent / "recipes").glob("[!_]*.py")}
    assert set(cli.VERBS) == recipes


@pytest.mark.parametrize(
    "arguments", [["extract"], ["extract", "photos"], ["extract", "photos", "--out", "o", "--batch", "many"]]
)
def test_flags_that_cannot_be_read(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    assert end.value.code == 2
    assert "cbp extract --help" in capsys.readouterr().err


def test_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"{compact_bilinear.__version__}\n"


def test_an_unknown_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["extrct", "photos"]) == 2
    verbs = ", ".join(cli.VERBS)
    assert capsys.readouterr().err == f"cbp has no verb 'extrct'.\nIts verbs are {verbs}; cbp --help says more.\n"


@pytest.mark.parametrize(
    ("fault", "code", "told"),
    [
        (ValueError("a\nb"), 2, "a\nb\n"),
        (FileNotFoundError("a\nb"), 2, "a\nb\n"),
        (ImportError("a\nb"), 2, "a\nb\n"),
        (OSError("a\nb"), 1, "a\nb\n"),
        (
            OSError(28, "Full", "x"),
            1,
            "[Errno 28] Full: 'x'\nSee to it, and run the same command again: it goes on where it stopped.\n",
        ),
        (RuntimeError("a"), 1, "RuntimeError: a\nThis should not happen; with --debug it shows where it did.\n"),
        (KeyboardInterrupt(), 130, "\nStopped. The same command goes on from here: cbp extract photos --out x\n"),
    ],
)
def test_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: BaseException, code: int, told: str
) -> None:
    def run(_: object) -> None:
        raise fault

    monkeypatch.setattr("compact_bilinear.recipes.extract.run", run)
    assert cli.main(["extract", "photos", "--out", "x"]) == code
    assert capsys.readouterr().err == told
    if code < 130:
        with pytest.raises(type(fault)):
            cli.main(["extract", "photos", "--out", "x", "--debug"])


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (KeyboardInterrupt(), "\nStopped.\n"),
        (OSError(28, "Full", "x"), "[Errno 28] Full: 'x'\nSee to it, and run the same command again.\n"),
    ],
)
def test_what_begins_anew_does_not_say_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: BaseException, told: str
) -> None:
    def run(_: object) -> None:
        raise fault

    monkeypatch.setattr("compact_bilinear.recipes.predict.run", run)
    assert cli.main(["predict", "run", "photo.jpg"]) == (130 if isinstance(fault, KeyboardInterrupt) else 1)
    assert capsys.readouterr().err == told


def test_flags_reach_the_recipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("compact_bilinear.recipes.extract.run", lambda config: config)
    text = "extract photos --out x --pool tensor-sketch:4,seed=1 --pool average-pool --no-normalize --strict --workers 3"
    assert cli.main(text.split()) == 0
    said = capsys.readouterr().out
    for part in (
        "pool=('tensor-sketch:4,seed=1', 'average-pool')",
        "normalize=False",
        "strict=True",
        "workers=3",
        "shard=1024",
    ):
        assert part in said
    monkeypatch.setattr("compact_bilinear.recipes.fetch.run", lambda config: config)
    assert cli.main(["fetch", "cub", "--to", "data"]) == 0
    assert capsys.readouterr().out.startswith("Fetch(data='cub', to=")


def test_ctrl_c_says_what_a_shell_reads_back(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("compact_bilinear.recipes.extract.run", run)
    assert cli.main(["extract", "my photos", "--out", "x"]) == 130
    assert capsys.readouterr().err.endswith(": cbp extract 'my photos' --out x\n")


def test_without_tyro_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "tyro", None)
    monkeypatch.delitem(sys.modules, "compact_bilinear.recipes.extract", raising=False)
    assert cli.main(["extract", "photos", "--out", "x"]) == 2
    assert capsys.readouterr().err.endswith('\nWrite `pip install "compact-bilinear[road]"`.\n')


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break otherwise there")
@pytest.mark.parametrize("arguments", [["--help"], ["fetch", "--help"]])
def test_a_reader_that_has_read_enough(arguments: list[str]) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "compact_bilinear", *arguments]
    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writes)
    assert (done.returncode, done.stderr) == (0, "")


def test_letters_that_a_terminal_lacks() -> None:
    command = [sys.executable, "-m", "compact_bilinear", "extract", "--help"]
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ascii_only)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2082" in done.stdout


HELP = """
import sys
import compact_bilinear
from compact_bilinear import cli
try:
    cli.main(["extract", "--help"])
except SystemExit:
    sys.stderr.write(" ".join({"pyarrow", "PIL", "sklearn", "scipy", "safetensors"} & set(sys.modules)))
"""


def test_help_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    assert done.stderr == ""
