"""CUB, MIT Indoor and DTD in exactly their layouts: whole, with empty images, or a few of them, with real ones."""

import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from PIL import Image

CUB_CLASSES = ("001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross")
MIT_CLASSES = ("airport_inside", "concert_hall", "mall")
DTD_CLASSES = ("banded", "blotchy", "braided", "waffled")

Files = dict[str, bytes]


def picture(seed: int, size: tuple[int, int] = (7, 5)) -> bytes:
    """A small JPEG, of another colour for each seed."""
    file = io.BytesIO()
    Image.new("RGB", size, ((37 * seed) % 256, (91 * seed) % 256, (151 * seed) % 256)).save(file, "JPEG")
    return file.getvalue()


def write(files: Mapping[str, bytes], root: Path) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def tar(files: Mapping[str, bytes], mode: str = "w:gz") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def lines(rows: list[str]) -> bytes:
    return ("\n".join(rows) + "\n").encode()


def cub(classes: tuple[str, ...] = CUB_CLASSES, train: int = 6, test: int = 3, draw: Callable[[int], bytes] = picture) -> Files:
    """What CUB_200_2011.tgz holds, with so many images in all: the last of the classes takes what is left over."""
    of_class = [number * len(classes) // (train + test) for number in range(train + test)]
    is_train = [number % 2 == 0 for number in range(train + test)]
    for number in range(train + test - 1, -1, -1):  # as many for training as were asked for
        is_train[number] = is_train[number] or sum(is_train) < train
        if sum(is_train) > train:
            is_train[number] = False
    paths = [f"{classes[label]}/{classes[label][4:]}_{number:04d}_{label}.jpg" for number, label in enumerate(of_class, 1)]
    return {
        "attributes.txt": b"1 has_bill_shape::curved_(up_or_down)\n",
        "CUB_200_2011/README": b"The Caltech-UCSD Birds-200-2011 Dataset\n",
        "CUB_200_2011/classes.txt": lines([f"{number} {name}" for number, name in enumerate(classes, 1)]),
        "CUB_200_2011/images.txt": lines([f"{number} {path}" for number, path in enumerate(paths, 1)]),
        "CUB_200_2011/image_class_labels.txt": lines([f"{number} {label + 1}" for number, label in enumerate(of_class, 1)]),
        "CUB_200_2011/train_test_split.txt": lines([f"{number} {int(each)}" for number, each in enumerate(is_train, 1)]),
        "CUB_200_2011/parts/parts.txt": b"1 back\n",
        **{f"CUB_200_2011/images/{path}": draw(number) for number, path in enumerate(paths)},
    }


def whole_cub() -> Files:
    return cub(tuple(f"{number:03d}.Bird_{number}" for number in range(1, 201)), 5994, 5794, lambda _: b"")


def mit(classes: tuple[str, ...] = MIT_CLASSES, train: int = 6, test: int = 3, draw: Callable[[int], bytes] = picture) -> Files:
    """What indoorCVPR_09.tar holds, and the two lists beside it: names have spaces, lists no last newline, as the real ones."""
    names = [f"{classes[number % len(classes)]}/shopping {number}.jpg" for number in range(train + test)]
    return {
        "TrainImages.txt": lines(names[:train]).rstrip(),
        "TestImages.txt": lines(names[train:]).rstrip(),
        **{f"Images/{name}": draw(number) for number, name in enumerate([*names, f"{classes[0]}/in_no_list.jpg"])},
    }


def whole_mit() -> Files:
    return mit(("airport_inside", *(f"room_{number}" for number in range(66))), 5360, 1340, lambda _: b"")


def dtd(classes: tuple[str, ...] = DTD_CLASSES, of_part: int = 2, draw: Callable[[int], bytes] = picture) -> Files:
    """What dtd-r1.0.1.tar.gz holds: ten partitions into three parts, which turn by one image from one to the next."""
    files: Files = {"dtd/imdb/imdb.mat": b"MATLAB", "dtd/images/waffled/.directory": b"[Dolphin]\n"}
    numbers = range(3 * of_part)
    for partition in range(1, 11):
        for part, name in enumerate(("train", "val", "test")):
            chosen = [(number + partition - 1) % len(numbers) for number in numbers][part * of_part : (part + 1) * of_part]
            rows = [f"{each}/{each}_{number:04d}.jpg" for each in classes for number in sorted(chosen)]
            files[f"dtd/labels/{name}{partition}.txt"] = lines(rows)
    for label, each in enumerate(classes):
        for number in numbers:
            files[f"dtd/images/{each}/{each}_{number:04d}.jpg"] = draw(label * len(numbers) + number)
    return files


def whole_dtd() -> Files:
    return dtd(tuple(f"texture_{number:02d}" for number in range(47)), 40, lambda _: b"")
