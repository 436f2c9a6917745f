"""One process of several: what the environment says, and what is whose."""

import pytest

from compact_bilinear import processes
from compact_bilinear.processes import Processes


def test_alone_without_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert Processes.from_environment() == Processes(0, 1, 0, 1)
    assert Processes().share(range(5)) == range(5)
    assert Processes().first


def test_as_torchrun_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert Processes.from_environment() == Processes(rank=5, world=8, local_rank=1, local_world=4)
    assert not Processes.from_environment().first


@pytest.mark.parametrize(("rank", "world"), [("2", "2"), ("-1", "2"), ("a", "2"), ("0", "")])
def test_what_torchrun_never_says(monkeypatch: pytest.MonkeyPatch, rank: str, world: str) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    with pytest.raises(ValueError, match=rf"but RANK={rank}, WORLD_SIZE={world}, .*\nStart with torchrun"):
        Processes.from_environment()


@pytest.mark.parametrize("world", [1, 2, 3, 10])
def test_every_task_is_somebodys(world: int) -> None:
    shares = [Processes(rank, world).share(range(7)) for rank in range(world)]
    assert sorted(task for share in shares for task in share) == list(range(7))


def test_waiting_says_what_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 0.0)
    answers = iter([False, False, True])
    Processes(1, 2).wait(lambda: next(answers), "shards")
    assert capsys.readouterr().err == "process 1 of 2 waits for shards of the others\n" * 2
