"""Download one file over HTTP, whole or not at all.

What arrives is kept as ``NAME.part`` beside the target until all of it is there and is what was promised; only then it takes
the target's name. A download that was cut goes on where it stopped. Python's own ``urllib`` does the transport, so nothing has
to be installed; a progress bar appears if rich is there and a person is watching.
"""

import errno
import hashlib
import http.client
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from .lock import alone
from .progress import transfer_bar

BLOCK = 1 << 20  # bytes read at once
TRIES = 5  # how many times a transfer that was cut goes on by itself
PAUSE = 1.0  # seconds before it does


class DownloadError(OSError):
    """A file could not be had; the message says why, what to download by hand, and where to put it."""


class NoConnectionError(DownloadError):
    """Nobody answered: what else is missing cannot be had either."""


class _Promise(NamedTuple):
    """What the file must turn out to be; None is not checked."""

    size: int | None
    sha256: str | None
    md5: str | None

    def broken_by(self, file: Path) -> str | None:
        """In what the file differs, or None."""
        if self.size is not None and file.stat().st_size != self.size:
            return f"it has {file.stat().st_size} bytes in place of {self.size}"
        for name, expected in (("sha256", self.sha256), ("md5", self.md5)):
            if expected is not None:
                with file.open("rb") as stream:
                    found = hashlib.file_digest(stream, name).hexdigest()
                if found != expected.lower():
                    return f"its {name} is {found} in place of {expected.lower()}"
        return None

    def __str__(self) -> str:
        said = [f"{self.size} bytes"] if self.size is not None else []
        said += [f"{name} {value}" for name, value in (("sha256", self.sha256), ("md5", self.md5)) if value is not None]
        return f" ({', '.join(said)})" if said else ""


class _CutError(Exception):
    """The transfer ended before its end."""


def download(
    url: str,
    to: Path,
    *,
    sha256: str | None = None,
    md5: str | None = None,
    size: int | None = None,
    timeout: float = 30,
) -> Path:
    """Bring ``url`` to the file ``to``, unless it is there already.

    What an earlier call left unfinished is continued if there is a checksum or a size to tell whether the two parts belong
    together, and thrown away otherwise. Processes that want the same file wait for the first of them.

    Args:
        url: http or https.
        to: the file, not its folder, which is made.
        sha256: hexadecimal, as all checksums.
        md5: for files whose publisher gives no better one. It tells a broken transfer, not a forged file.
        size: in bytes.
        timeout: seconds without a single byte after which the connection counts as dead.

    Returns:
        ``to``. Raises :class:`DownloadError` if it cannot be had; a file ``to`` that is not what was promised is left alone.
    """
    if urlsplit(url).scheme.lower() not in ("http", "https") or not urlsplit(url).hostname:
        raise ValueError(
            f"download takes an address that begins with http:// or https://, but got {url!r}.\n"
            "Write the whole address; a file that is on this machine already needs no download."
        )
    promise, to = _Promise(size, sha256, md5), Path(to)
    try:
        if _is_there(to, promise):
            return to
        to.parent.mkdir(parents=True, exist_ok=True)
        part = to.with_name(to.name + ".part")
        with alone(part):
            try:
                if not _is_there(to, promise):  # another process may just have brought it
                    _fetch(url, part, promise, timeout, to.name)
                    part.replace(to)
            finally:
                if part.exists() and part.stat().st_size == 0:
                    part.unlink()
    except DownloadError:
        raise
    except (OSError, http.client.HTTPException) as failure:
        unanswered = isinstance(failure, urllib.error.URLError) and not isinstance(failure, urllib.error.HTTPError)
        raise (NoConnectionError if unanswered or isinstance(failure, TimeoutError) else DownloadError)(
            f"Could not download {url}: {_in_words(failure)}.\n"
            f"Run it again, or download the file by hand{promise} and put it at {to}."
        ) from failure
    return to


def _is_there(to: Path, promise: _Promise) -> bool:
    if not to.exists():
        return False
    fault = promise.broken_by(to) if to.is_file() else "it is not a file"
    if fault is not None:
        raise DownloadError(f"{to} is there, but not as expected: {fault}.\nMove it away, and it is downloaded anew.")
    return True


def _fetch(url: str, part: Path, promise: _Promise, timeout: float, name: str) -> None:
    """Fill ``part`` until it keeps the promise."""
    if promise == (None, None, None):
        part.write_bytes(b"")  # nothing could tell whether a rest belongs to what is there
    for attempt in range(1, TRIES + 1):
        before = part.stat().st_size
        try:
            _transfer(url, part, promise, timeout, name)
            break
        except _CutError as cut:
            if attempt == TRIES or part.stat().st_size <= before:
                raise ConnectionError(f"the connection was cut after {part.stat().st_size} bytes") from cut
            time.sleep(PAUSE)
    fault = promise.broken_by(part)
    if fault is not None:
        part.unlink()  # going on from wrong bytes would never end well
        raise ConnectionError(f"what came is not what was expected, {fault}")


def _transfer(url: str, part: Path, promise: _Promise, timeout: float, name: str) -> None:
    """One request for what is missing of ``part``, written as it comes."""
    start = part.stat().st_size
    if start and start == promise.size:
        return
    headers = {"User-Agent": "compact-bilinear", **({"Range": f"bytes={start}-"} if start else {})}
    try:
        response = _opener().open(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as answer:
        answer.close()
        if answer.code == 416 and start:  # nothing comes after what is there: it is whole, or the rest of something else
            if _total(answer.headers.get("Content-Range")) == start:
                return
            part.write_bytes(b"")
            return _transfer(url, part, promise, timeout, name)
        raise
    with response:
        sent = response.headers.get("Content-Length")
        rest = int(sent) if sent and sent.isdigit() else None
        span = response.headers.get("Content-Range", "")
        if response.status == 206 and not span.startswith(f"bytes {start}-"):
            if not start:
                raise ConnectionError(f"the server sends a part that nobody asked for, {span!r}")
            part.write_bytes(b"")
            return _transfer(url, part, promise, timeout, name)
        if response.status != 206:
            start = 0  # the server knows no ranges and sends everything
        total = _total(span) if response.status == 206 else rest
        if promise.size is not None and total not in (None, promise.size):
            raise ConnectionError(f"the server has a file of {total} bytes there, not the expected one of {promise.size}")
        free = shutil.disk_usage(part.parent).free
        if rest is not None and free + part.stat().st_size - start < rest:
            raise OSError(errno.ENOSPC, f"{rest} bytes are to come, but only {free} are free in {part.parent}")
        with part.open("r+b") as file, transfer_bar(name, start, total) as advance:
            file.seek(start)
            file.truncate()
            for block in _blocks(response):
                file.write(block)
                advance(len(block))
            file.flush()
            os.fsync(file.fileno())
    if rest is not None and part.stat().st_size < start + rest:
        raise _CutError


def _blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            block = response.read1(BLOCK)  # read() would lose what came before a cut
        except (OSError, http.client.HTTPException) as cut:
            raise _CutError from cut
        if not block:
            return
        yield block


def _opener() -> urllib.request.OpenerDirector:
    # urlopen() would also follow a redirection to ftp
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.UnknownHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    return opener


def _total(content_range: str | None) -> int | None:
    """1000 of ``bytes 0-99/1000`` or ``bytes */1000``."""
    total = (content_range or "").rpartition("/")[2]
    return int(total) if total.isdigit() else None


def _in_words(failure: OSError | http.client.HTTPException) -> str:
    if isinstance(failure, urllib.error.HTTPError):
        return f"the server answered {failure.code} {failure.reason}"
    if isinstance(failure, urllib.error.URLError):
        return f"there is no connection to the server ({failure.reason})"
    if isinstance(failure, TimeoutError):
        return "the server does not answer"
    if isinstance(failure, OSError) and failure.errno == errno.ENOSPC:
        return f"the disk is full ({failure.strerror})"
    return str(failure) or type(failure).__name__
