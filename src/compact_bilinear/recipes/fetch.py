"""Fetch a data set of the paper: download it from its publisher, unpack it, and count what is there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from tyro.conf import Positional

from ..download import NoConnectionError, download
from ..images import ImageList, read_images
from ..images.archives import folder_of, unpack


@dataclass(frozen=True)
class Fetch:
    """Download and unpack CUB-200-2011, Describable Textures or MIT Indoor.

    For instance, and then pool them into features:

        cbp fetch cub --to data
        cbp extract data --out features

    What was interrupted goes on where it stopped, and what is there already is only counted.
    """

    data: Positional[Literal["cub", "dtd", "mit"]]
    """Which: birds (1.2 GB), textures (0.6 GB) or rooms (2.6 GB)."""
    to: Path
    """The folder it comes into; give this folder to the other commands afterwards."""
    remove_archive: bool = False
    """Remove the archive once what was unpacked from it has been counted."""
    timeout: float = 30
    """Seconds without a single byte after which a connection counts as dead."""


class _File(NamedTuple):
    url: str
    size: int
    sha256: str | None = None
    md5: str | None = None

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


# The publisher of CUB states size and MD5; those of DTD and MIT Indoor state nothing. The SHA-256 of the first two archives are
# the ones that public loaders agree on; those of MIT's two lists were computed from copies with the MD5 that a public loader
# has. For MIT's archive there is only that loader's MD5.
FILES = {
    "cub": [
        _File(
            "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
            size=1150585339,
            sha256="0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081",
            md5="97eceeb196236b17998738112f37df78",
        )
    ],
    "dtd": [
        _File(
            "https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz",
            size=625239812,
            sha256="e42855a52a4950a3b59612834602aa253914755c95b0cff9ead6d07395f8e205",
            md5="fff73e5086ae6bdbea199a49dfb8a4c1",
        )
    ],
    "mit": [
        _File(
            "https://web.mit.edu/torralba/www/TrainImages.txt",
            size=172080,
            sha256="7ec85f88735739d8159061e4bcf6a9765aab8606ab444605b3f8e0641be0260e",
        ),
        _File(
            "https://web.mit.edu/torralba/www/TestImages.txt",
            size=43475,
            sha256="906c529a5a0918feec371de5b07a465ddb1f15ebaebc90a33cc321c371133bf1",
        ),
        _File(
            "http://groups.csail.mit.edu/vision/LabelMe/NewImages/indoorCVPR_09.tar",
            size=2592010240,
            md5="5d176e5f0e56624a453f2fe0d8b19ff7",
        ),
    ],
}


def run(config: Fetch) -> ImageList:
    """Bring a data set into a folder, unless it is there already, and return its list of images."""
    if config.to.exists() and not config.to.is_dir():
        raise ValueError(f"A data set comes into a folder, but {config.to} is a file.\nGive a folder.")
    *lists, archive = FILES[config.data]
    packed = config.to / archive.name
    try:
        for file in lists:
            _bring(file, config)
        if not folder_of(packed).exists():  # it has this name only when all of it is there
            _bring(archive, config)
            unpack(packed)
    except NoConnectionError as failure:
        missing = [file for file in FILES[config.data] if not (config.to / file.name).exists()]
        raise NoConnectionError(
            f"{str(failure).partition(chr(10))[0]}\n"
            f"Run it again; or download {' and '.join(file.url for file in missing)} by hand, put what comes into {config.to}, "
            "and run it again then."
        ) from failure
    images = read_images(config.to, config.data)
    if config.remove_archive:
        packed.unlink(missing_ok=True)
    return images


def _bring(file: _File, config: Fetch) -> None:
    to = config.to / file.name
    download(file.url, to, size=file.size, sha256=file.sha256, md5=file.md5, timeout=config.timeout)
