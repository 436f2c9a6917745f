"""Batches: the same numbers however many workers there are, in order, and whatever is broken."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import miniatures
import zoo
from compact_bilinear.images import Batch, BrokenImage, ImageList, Transform, load_images, read_images, shuffled
from compact_bilinear.images.loader import available_cpus

# torch's, where there is one CPU
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

TRANSFORM = Transform(size=16, fit="random-crop", flip="random")
BROKEN = {3: b"", 7: b"no image", 8: b"\xff\xd8\xff", 9: b"GIF89a", 10: b"\x89PNG\r\n\x1a\n", 11: b"BM"}


def photograph(number: int) -> bytes:
    """Something that looks different everywhere, so that it shows where it was cut."""
    x, y = np.meshgrid(np.linspace(0, 255, 30 + number), np.linspace(0, 255, 40))
    return zoo.encoded(Image.fromarray(np.stack([x, y, np.full_like(x, 5 * number)], 2).astype(np.uint8)), "JPEG")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> ImageList:
    root = tmp_path_factory.mktemp("images")
    names = tuple(f"{number:02d}.jpg" for number in range(22))
    miniatures.write({name: BROKEN.get(number, photograph(number)) for number, name in enumerate(names)}, root)
    return ImageList("some", root, ("even", "odd"), names, tuple(number % 2 for number in range(22)), ("",) * 22)


def taken(batches: Iterator[Batch]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[tuple[int, str]]]:
    """All batches as one."""
    all_of = list(batches)
    return (
        torch.cat([each.pixels for each in all_of]),
        torch.cat([each.places for each in all_of]),
        torch.cat([each.labels for each in all_of]),
        [(place, reason.rpartition(": ")[2]) for each in all_of for place, reason in each.broken],
    )


def test_everything_comes_in_order_and_what_is_broken_is_named(images: ImageList) -> None:
    pixels, places, labels, broken = taken(load_images(images, TRANSFORM, batch=4, workers=0))
    whole = [number for number in range(22) if number not in BROKEN]
    assert places.tolist() == whole
    assert labels.tolist() == [number % 2 for number in whole]
    assert [place for place, _ in broken] == sorted(BROKEN)
    assert dict(broken)[3] == "the file is empty"
    assert dict(broken)[7] == "not an image in a known format"
    assert pixels.shape == (16, 3, 16, 16)
    assert pixels.dtype == torch.uint8


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_have_their_channels_last(images: ImageList, workers: int) -> None:
    batch = next(load_images(images, TRANSFORM, batch=3, workers=workers))
    assert batch.pixels.is_contiguous(memory_format=torch.channels_last)


def test_batches_have_their_size_and_may_be_empty(images: ImageList) -> None:
    batches = list(load_images(images, TRANSFORM, batch=4, workers=0))
    assert [len(each.pixels) + len(each.broken) for each in batches] == [4, 4, 4, 4, 4, 2]
    assert batches[2].pixels.shape == (0, 3, 16, 16)  # images 8 to 11 are all broken
    assert batches[2].places.tolist() == batches[2].labels.tolist() == []


@pytest.mark.parametrize("start_method", sorted({"spawn", *multiprocessing.get_all_start_methods()} - {"fork"}))
def test_numbers_do_not_depend_on_how_workers_start(images: ImageList, start_method: str) -> None:
    alone = taken(load_images(images, TRANSFORM, batch=4, workers=0, epoch=2))
    others = taken(load_images(images, TRANSFORM, batch=4, workers=1, epoch=2, start_method=start_method))  # type: ignore[arg-type]
    assert all(torch.equal(a, b) for a, b in zip(alone[:3], others[:3], strict=True))
    assert alone[3] == others[3]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("batch", [1, 5, 100])
def test_numbers_do_not_depend_on_workers_and_batches(images: ImageList, workers: int, batch: int) -> None:
    alone = taken(load_images(images, TRANSFORM, batch=4, workers=0, epoch=2))
    others = taken(load_images(images, TRANSFORM, batch=batch, workers=workers, epoch=2))
    assert all(torch.equal(a, b) for a, b in zip(alone[:3], others[:3], strict=True))
    assert alone[3] == others[3]
    another_epoch = taken(load_images(images, TRANSFORM, batch=batch, workers=0, epoch=3))
    assert not torch.equal(another_epoch[0], alone[0])


def test_an_order_may_be_a_part_and_shuffled(images: ImageList) -> None:
    pixels, places, _, _ = taken(load_images(images, TRANSFORM, batch=4, workers=0))
    order = [20, 1, 3, 14]
    some, where, labels, broken = taken(load_images(images, TRANSFORM, batch=3, workers=0, order=order))
    assert where.tolist() == [20, 1, 14]
    assert labels.tolist() == [0, 1, 0]
    assert [place for place, _ in broken] == [3]
    for each, place in zip(some, where, strict=True):
        assert torch.equal(each, pixels[places == place][0])


def test_the_same_image_in_two_places_is_cut_in_two_places(images: ImageList) -> None:
    twice = images.take([20, 20])
    pixels, *_ = taken(load_images(twice, TRANSFORM, workers=0))
    assert not torch.equal(pixels[0], pixels[1])
    alone, *_ = taken(load_images(twice, TRANSFORM, workers=0, order=[1]))
    assert torch.equal(alone[0], pixels[1])


def test_nothing_to_load_is_no_batch(images: ImageList) -> None:
    assert list(load_images(images, TRANSFORM, order=[], workers=0)) == []


@pytest.mark.parametrize("workers", [0, 1])
def test_strict_raises_the_first_broken_image(images: ImageList, workers: int) -> None:
    loaded = []
    with pytest.raises(BrokenImage, match=r"03\.jpg: the file is empty"):
        loaded.extend(load_images(images, TRANSFORM, batch=2, workers=workers, strict=True))
    assert [each.places.tolist() for each in loaded] == [[0, 1]] or not loaded


def test_limits_and_drafts_reach_the_decoder(images: ImageList) -> None:
    *_, broken = taken(load_images(images, TRANSFORM, workers=0, order=[20], pixels=1999))
    assert broken == [(20, "50×40 pixels are more than the limit of 1999")]
    whole, draft = (
        taken(load_images(images, Transform(size=10), workers=0, order=[20], draft=draft))[0].int() for draft in (False, True)
    )
    assert 0 < (whole - draft).abs().max() < 20


def test_global_generators_are_left_alone(images: ImageList) -> None:
    before = torch.get_rng_state()
    list(load_images(images, TRANSFORM, workers=1, order=[0, 1]))
    assert torch.equal(torch.get_rng_state(), before)


def test_workers_are_not_sent_the_list(images: ImageList) -> None:
    """What each worker gets does not grow with the number of images."""
    from compact_bilinear.images.loader import _Files

    assert len(pickle.dumps(_Files(TRANSFORM, 1, False))) < 1000


def test_bad_sizes_are_refused_before_anything_starts(images: ImageList) -> None:
    with pytest.raises(ValueError, match=r"at least one image, but got batch=0\.\nWrite batch=32"):
        load_images(images, TRANSFORM, batch=0)


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_of_several_epochs_in_one_go(images: ImageList, workers: int) -> None:
    batches = [[0, 1], [2], [1, 0], []]
    found = list(load_images(images, TRANSFORM, batches=iter(batches), epoch=iter([0, 0, 7, 7]), workers=workers))
    expected = [
        each
        for epoch, some in ((0, batches[:2]), (7, batches[2:]))
        for each in load_images(images, TRANSFORM, batches=some, epoch=epoch, workers=0)
    ]
    assert [each.places.tolist() for each in found] == [each.places.tolist() for each in expected]
    assert all(torch.equal(one.pixels, other.pixels) for one, other in zip(found, expected, strict=True))


def test_orders_are_drawn_from_seed_and_epoch() -> None:
    orders = {tuple(shuffled(9, seed=seed, epoch=epoch)) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9
    assert all(sorted(order) == list(range(9)) for order in orders)


def test_as_many_workers_as_cpus() -> None:
    assert 1 <= available_cpus() <= (os.cpu_count() or 1)


DATA = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.mark.skipif(not DATA.is_dir(), reason="the photographs of materials and textures40 are not at ../shared/data")
@pytest.mark.parametrize(("data", "count"), [("materials/split0.csv", 286), ("textures40", 640)])
def test_loads_photographs(data: str, count: int) -> None:
    photographs = read_images(DATA / data)
    pixels, places, labels, broken = taken(load_images(photographs, Transform(size=32), workers=2, draft=True))
    assert places.tolist() == list(range(count))
    assert tuple(labels.tolist()) == photographs.labels
    assert broken == []
    assert pixels.float().std((1, 2, 3)).min() > 1


PROGRAM = """
import signal, sys
from compact_bilinear.images import Transform, load_images, read_images

if __name__ == "__main__":
    images = read_images(sys.argv[1])
    batches = load_images(images, Transform(size=64), batch=1, workers=2, order=list(range(len(images))) * 10_000)
    asked = []
    try:
        next(batches)
        if sys.argv[2] == "later":
            signal.signal(signal.SIGINT, lambda *_: asked.append(True))
        print("going", flush=True)
        while not asked:
            next(batches)
        for _ in range(100):  # it finishes what it has to, for which its workers have to be there still
            next(batches)
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        print("stopped", flush=True)
        sys.exit(130)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is no signal there")
@pytest.mark.parametrize("when", ["now", "later"])
def test_ctrl_c_stops_everything_when_the_program_wants_and_nothing_is_printed(tmp_path: Path, when: str) -> None:
    miniatures.write({f"{number}.jpg": miniatures.picture(number) for number in range(5)}, tmp_path / "images")
    (tmp_path / "program.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "program.py", tmp_path / "images", when],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "going\n"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes at once
    out, err = process.communicate(timeout=60)
    assert err == ""
    assert out.endswith("stopped\n")
    assert process.returncode == 130
    for _ in range(100):
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("workers are still there")


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_may_be_given(images: ImageList, workers: int) -> None:
    wanted = [[3, 4], [], range(5, 8), [2]]
    batches = list(load_images(images, TRANSFORM, batches=iter(wanted), workers=workers))
    seen = [sorted([*batch.places.tolist(), *(each.place for each in batch.broken)]) for batch in batches]
    assert seen == [list(each) for each in wanted]
    assert batches[1].pixels.shape == (0, 3, TRANSFORM.size, TRANSFORM.size)
    alone, *_ = load_images(images, TRANSFORM, batches=[[4]], workers=0)
    assert torch.equal(batches[0].pixels[0], alone.pixels[0])
