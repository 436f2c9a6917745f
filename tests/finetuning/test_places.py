"""Every image is seen once an epoch, in an order that is drawn, by one of the processes."""

from dataclasses import replace
from pathlib import Path

import pytest

from compact_bilinear.finetuning import FineTuning, training_places
from compact_bilinear.finetuning.places import batches_of, parts_of
from compact_bilinear.images import ImageList
from compact_bilinear.processes import Processes

COUNT = 23
IMAGES = ImageList(
    "birds",
    Path("nowhere"),
    ("crow", "wren", "robin"),
    tuple(f"{number}.jpg" for number in range(COUNT)),
    tuple(number % 4 - 1 for number in range(COUNT)),
    tuple("test" if number % 5 == 4 else "train" for number in range(COUNT)),
)
LABELLED = [number for number in range(COUNT) if number % 5 != 4 and number % 4 != 0]


def test_without_holding_out_all_labelled_images_of_the_split_are_trained_on() -> None:
    assert training_places(IMAGES, FineTuning()) == (tuple(LABELLED), ())
    assert training_places(IMAGES, FineTuning(), "test").train == (9, 14, 19)


def test_held_out_are_as_many_of_every_class_and_none_of_them_is_trained_on() -> None:
    places = training_places(IMAGES, FineTuning(hold_out=0.4))
    assert sorted(places.train + places.held) == LABELLED
    assert sorted(IMAGES.labels[place] for place in places.held) == [0, 0, 1, 1, 2, 2]
    assert training_places(IMAGES, FineTuning(hold_out=0.4)) == places
    assert training_places(IMAGES, FineTuning(hold_out=0.4, seed=1)) != places


def test_nothing_to_train_on_or_to_hold_out_is_refused() -> None:
    with pytest.raises(ValueError, match="has none among its 23"):
        training_places(IMAGES, FineTuning(), "val")
    single = replace(IMAGES, labels=(0, 1, 2) + (-1,) * (COUNT - 3))
    with pytest.raises(ValueError, match=r"Write hold_out=0\."):
        training_places(single, FineTuning(hold_out=0.4))
    assert training_places(single, FineTuning(hold_out=0)).train == (0, 1, 2)


def test_an_epoch_sees_every_image_once_in_an_order_of_its_own() -> None:
    settings = FineTuning(batch=5)
    first, second = (batches_of(LABELLED, settings, epoch) for epoch in (0, 1))
    assert [len(batch) for batch in first] == [5, 5, 4]
    for batches in (first, second):
        assert sorted(place for batch in batches for place in batch) == LABELLED
    assert first != second
    assert first == batches_of(LABELLED, settings, 0)
    assert first != batches_of(LABELLED, FineTuning(batch=5, seed=1), 0)


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("accumulate", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 7])
def test_processes_and_parts_share_a_batch_out(world: int, accumulate: int, count: int) -> None:
    parts = [
        list(part) for rank in range(world) for part in parts_of(range(count), Processes(rank=rank, world=world), accumulate)
    ]
    assert len(parts) == world * accumulate
    assert sorted(place for part in parts for place in part) == list(range(count))
    assert max(map(len, parts)) <= -(-count // world // accumulate) + 1
