"""The command ``cbp``: a verb is a recipe, and its flags are made from the fields of the recipe's dataclass.

Exit codes: 0 done; 1 it failed on the way (the disk, the network); 2 it was asked for something that cannot be; 130 stopped by
Ctrl-C, but for a server, which is to be stopped so: 0. After 1 and 130 the same command goes on where it stopped, if it is one
of those that leave something behind.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from . import __version__

# only the module of the verb that is called is imported
VERBS = {
    "demo": ("Demo", "See all of it in three minutes, on images that it makes itself."),
    "fetch": ("Fetch", "Download and unpack a data set of the paper."),
    "extract": ("Extract", "Pool the images of a folder into features."),
    "compare": ("Compare", "Find out which pooling to take, and how many numbers, on your own images."),
    "train": ("Train", "Learn to tell classes of images apart."),
    "evaluate": ("Evaluate", "Compare what a model says of images with what they are."),
    "predict": ("Predict", "Say what is in images, with a trained model."),
    "fewshot": ("FewShot", "Learn from a few images of each class, again and again, and say how well it goes."),
    "reproduce": ("Reproduce", "Measure the paper's tables and figures again."),
    "index": ("Index", "Make an index of features, to search in, or change one."),
    "search": ("Search", "Find images of an index that look like others, or twins."),
    "serve": ("Serve", "Answer over HTTP what a model says of images, with a page."),
}
RESUMES = (
    "demo",
    "fetch",
    "extract",
    "compare",
    "train",
    "reproduce",
    "index",
)  # they keep what is done; the others begin anew
HELP = """usage: cbp VERB ... [--debug]

{verbs}

cbp VERB --help says what may be written after it, with an example. For instance:

    cbp extract photos --backbone tiny --pool tensor-sketch:8192 --out features

--debug shows where in the program an error comes from, cbp --version which version this is.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb, and return the exit code."""
    if sys.stdout is None:  # it was closed: print() knows, and nothing here is to be flushed
        return _main(arguments)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # not every terminal has every letter
    try:
        try:
            return _main(arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # who read, as `head` does, has read enough; what is left goes nowhere, or Python would complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _main(arguments: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [each for each in given if each != "--debug"]
    if not given or given[0] in ("-h", "--help"):
        print(HELP.format(verbs="\n".join(f"    {verb:<10}{does}" for verb, (_, does) in VERBS.items())), end="")
        return 0 if given else 2
    if given[0] == "--version":
        print(__version__)
        return 0
    if given[0] not in VERBS:
        print(f"cbp has no verb {given[0]!r}.\nIts verbs are {', '.join(VERBS)}; cbp --help says more.", file=sys.stderr)
        return 2
    try:
        result = _run(given[0], given[1:])
    except KeyboardInterrupt:
        again = f" The same command goes on from here: {shlex.join(['cbp', *given])}" if given[0] in RESUMES else ""
        print(f"\nStopped.{again}", file=sys.stderr)
        return 130
    except (ValueError, FileNotFoundError, ImportError) as fault:  # it was asked for what cannot be
        return _explain(fault, 2, debug)
    except Exception as failure:
        return _explain(failure, 1, debug, given[0] in RESUMES)
    if result is not None:
        _show(result)
    return 0


def _show(result: object) -> None:
    """Print a result: as the table that rich makes of it, if it is one and a person is watching, or as text."""
    if hasattr(result, "__rich__") and sys.stdout is not None and sys.stdout.isatty():
        with suppress(ImportError):
            from rich.console import Console

            Console().print(result)
            return
    print(result)


def _run(verb: str, given: Sequence[str]) -> object:
    try:
        import tyro
    except ImportError as absent:
        raise ImportError(
            'cbp reads its flags with tyro, which cannot be imported.\nWrite `pip install "compact-bilinear[road]"`.'
        ) from absent

    recipe: Any = import_module(f".recipes.{verb}", __package__)
    try:
        config = tyro.cli(
            getattr(recipe, VERBS[verb][0]), args=given, prog=f"cbp {verb}", config=(tyro.conf.FlagCreatePairsOff,)
        )
    except BrokenPipeError:  # nobody reads the help any more, which is no failure as one of a recipe's pipes would be
        raise SystemExit(0) from None
    result: object = recipe.run(config)
    return result


def _explain(fault: Exception, code: int, debug: bool, resumes: bool = False) -> int:
    if debug:
        raise fault
    if isinstance(fault, OSError) and code == 1 and fault.errno is not None:  # the system's own words, which are one line
        where = ": it goes on where it stopped" if resumes else ""
        print(f"{fault}\nSee to it, and run the same command again{where}.", file=sys.stderr)
    elif isinstance(fault, (ValueError, OSError, ImportError)):
        print(fault, file=sys.stderr)
    else:
        print(f"{type(fault).__name__}: {fault}\nThis should not happen; with --debug it shows where it did.", file=sys.stderr)
    return code
