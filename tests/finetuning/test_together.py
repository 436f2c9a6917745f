"""One process asks nobody; what several of them tell each other is tested where they learn, in ``test_interruption.py``."""

import torch
import torch.distributed as dist

import tuned
from compact_bilinear.finetuning.together import together
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
