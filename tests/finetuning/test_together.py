"""One process asks nobody; what several of them tell each other is tested where they learn, in ``test_interruption.py``."""

import torch
import torch.distributed as dist

import tuned
from compact_bilinear.finetuning.together import _without_effect, together
from compact_bilinear.processes import Processes


def test_one_process_is_a_group_that_says_nothing() -> None:
    model = tuned.model()
    with together(Processes(), tuned.CPU) as group:
        assert group.alone
        assert group.share(model, True) is model
        assert torch.equal(group.sum(torch.tensor([1.0, 2.0])), torch.tensor([1.0, 2.0]))
        assert group.said_by_the_first(-1) == -1
        group.wait()
        assert not (dist.is_available() and dist.is_initialized())


def test_what_no_score_depends_on_is_found_and_nothing_is_changed() -> None:
    model = tuned.model()
    assert _without_effect(model) == []
    layers = list(model.backbone.module)
    model.backbone.module.spare = torch.nn.Linear(2, 3)
    model.backbone.module[0].weight.requires_grad_(False)
    before = tuned.state(model)
    model.backbone.module.forward = torch.nn.Sequential(*layers).forward
    found = _without_effect(model)
    assert {id(each) for each in found} == {id(each) for each in model.backbone.module.spare.parameters()}
    assert tuned.same(before, tuned.state(model))
    assert all(parameter.grad is None for parameter in model.parameters())
