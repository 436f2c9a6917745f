"""One step: its gradient is the mean over the images, whatever they are cut into, in every precision and for every pooling."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import photos
import tuned
from compact_bilinear.descriptors import load_backbone
from compact_bilinear.finetuning import FineTuning
from compact_bilinear.finetuning.learner import Learner, losses
from compact_bilinear.finetuning.together import Group
from compact_bilinear.images import Batch, Transform
from compact_bilinear.model import Model
from compact_bilinear.pooling.by_name import POOLINGS
from compact_bilinear.processes import Processes

ALONE = Group(Processes(), tuned.CPU)
SMALL = {"fisher-vector": ":2", "pca-bilinear": ":9", "random-maclaurin": ":33", "random-projection": ":7,sparse"}


def learner(begin: Model | None = None, **settings: Any) -> Learner:
    made = Learner(begin or tuned.model(), FineTuning(**({"rate": 0.1} | settings)), ALONE)
    made.begin_epoch()
    for module in made.model.modules():  # what it draws is not what is tested here
        if isinstance(module, nn.Dropout):
            module.eval()
    return made


def batch(count: int, seed: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (count, 3, photos.SIZE, photos.SIZE), dtype=torch.uint8, generator=draw)
    return Batch(pixels, torch.arange(count), torch.randint(3, (count,), generator=draw), ())


def cut(whole: Batch, *sizes: int) -> list[Batch]:
    parts = (each.split(sizes) for each in (whole.pixels, whole.places, whole.labels))
    return [Batch(*part, ()) for part in zip(*parts, strict=True)]


def stepped(made: Learner, parts: Sequence[Batch], steps: int = 2) -> dict[str, Tensor]:
    for _ in range(steps):
        made.step(parts, sum(len(part.labels) for part in parts), made.settings.rate)
    return tuned.state(made.model)


def test_a_step_is_that_of_plain_torch() -> None:
    whole, plain = batch(7), tuned.model()
    found = stepped(learner(), [whole])
    optimizer = torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(plain(whole.pixels), whole.labels).backward()
        optimizer.step()
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("sizes", [(4, 3), (1, 0, 6), (0, 2, 2, 3)])
def test_a_batch_in_parts_is_the_batch(sizes: tuple[int, ...]) -> None:
    # in double precision, so that nothing but the last digits may differ
    whole = batch(7)
    expected, found = (stepped(learner(tuned.model().double()), parts) for parts in ([whole], cut(whole, *sizes)))
    wrong = stepped(learner(tuned.model().double()), cut(whole, 4, 3)[:1])
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-10, atol=1e-10, msg=name)
    assert not torch.allclose(wrong["head.weight"], expected["head.weight"], rtol=1e-3), "the second part has no part in it"


def test_its_facts_are_sums() -> None:
    whole = batch(7)
    scores = tuned.model()(whole.pixels).detach()
    loss, wrong = learner().step(cut(whole, 3, 4), 7, 0.1).read()
    assert loss == pytest.approx(float(F.cross_entropy(scores, whole.labels, reduction="sum")), rel=1e-5)
    assert wrong == int((scores.argmax(1) != whole.labels).sum())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("pooling", [name for name in POOLINGS if name != "fully-connected"])
def test_every_pooling_learns(pooling: str, precision: str) -> None:
    named = pooling + SMALL.get(pooling, ":64" if POOLINGS[pooling].dim else "")
    begin = Model(
        load_backbone("tiny"),
        named,
        ("a", "b", "c"),
        transform=Transform(size=photos.SIZE),
        learnable=POOLINGS[pooling].learns,
    )
    if hasattr(begin.pooling, "fitted"):
        begin.pooling.fit(torch.randn(200, 192, generator=torch.Generator().manual_seed(0)).abs())
    begin.set_head(torch.randn(3, begin.pooling.dim), torch.zeros(3))
    before = tuned.state(begin)
    made = learner(begin, precision=precision, rate=1e-3, learn_projection=POOLINGS[pooling].learns)
    loss, _ = made.step([batch(3)], 3, 1e-3).read()
    assert 0 < loss < 100
    for name, parameter in begin.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name
        assert parameter.isfinite().all(), name
        assert not torch.equal(parameter, before[name]), name


@pytest.mark.parametrize("freeze", [1, "backbone"])
def test_what_is_frozen_does_not_change_by_a_bit(freeze: Any) -> None:
    before, made = tuned.model().state_dict(), learner(freeze=freeze, weight_decay=0.1, batch_statistics=True)
    after = stepped(made, [batch(5)])
    frozen = ("backbone.module.0", "backbone.module.1") if freeze == 1 else ("backbone",)
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name]) == (name.startswith(frozen) or name in BUFFERS), name


BUFFERS = {"backbone.mean", "backbone.scale", "pooling.bucket", "pooling.sign"}


def test_statistics_of_normalisation_are_learned_only_if_that_is_asked_for() -> None:
    for asked in (False, True):
        before, after = tuned.model().state_dict(), stepped(learner(batch_statistics=asked), [batch(5)])
        name = "backbone.module.1.running_mean"
        assert torch.equal(before[name], after[name]) != asked


def test_a_long_gradient_is_shortened() -> None:
    made = learner(clip=1e-3, momentum=0, weight_decay=0)
    before, after = tuned.model().state_dict(), stepped(made, [batch(5)], steps=1)
    moved = sum(float((after[name] - before[name]).square().sum()) for name, _ in made.model.named_parameters()) ** 0.5
    assert moved == pytest.approx(0.1 * 1e-3, rel=1e-2)


def test_float16_skips_a_step_whose_gradient_overflows() -> None:
    made = learner(precision="float16")
    before = tuned.state(made.model)
    made.scaler = torch.amp.GradScaler("cpu", init_scale=1e30)
    loss, _ = made.step([batch(5)], 5, 0.1).read()
    assert 0 < loss < 100, "the loss is fine, it is the scale that is not"
    assert tuned.same(before, tuned.state(made.model))
    made.scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    made.step([batch(5)], 5, 0.1)
    assert not tuned.same(before, tuned.state(made.model))
    assert all(parameter.isfinite().all() for parameter in made.model.parameters())


@pytest.mark.parametrize("settings", [{}, {"optimizer": "adamw", "rate": 1e-2}, {"momentum": 0.0}, {"precision": "float16"}])
def test_restored_it_goes_on_to_the_last_bit(settings: dict[str, Any]) -> None:
    whole = batch(5)
    made = learner(**settings)
    stepped(made, [whole])
    tensors = {name: tensor.detach().clone() for name, tensor in made.tensors().items()}
    scaler = made.scaler.state_dict()
    expected = stepped(made, [whole])
    other = learner(**settings)
    other.restore(tensors, scaler)
    assert tuned.same(stepped(other, [whole]), expected)


def test_the_loss_follows_the_link() -> None:
    scores, labels = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    softmax = -(scores.softmax(1)[range(4), labels]).log()
    torch.testing.assert_close(losses(scores, labels, "softmax"), softmax)
    mixed = -0.9 * scores.log_softmax(1)[range(4), labels] - 0.1 * scores.log_softmax(1).mean(1)
    torch.testing.assert_close(losses(scores, labels, "softmax", 0.1), mixed)
    sign = torch.full((4, 3), -1.0)
    sign[range(4), labels] = 1
    torch.testing.assert_close(losses(scores, labels, "sigmoid"), -F.logsigmoid(sign * scores).sum(1))


def test_damping_is_the_authors_backward_pass() -> None:
    plain, damped = (learner(tuned.model(damping=damping)) for damping in (None, 0.1))
    for made in (plain, damped):
        made.step([batch(5)], 5, 0.0)
    for (name, one), (_, other) in zip(plain.learning.items(), damped.learning.items(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad) == name.startswith("head"), name
