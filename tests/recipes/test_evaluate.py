"""Evaluation: its numbers by hand, labels by the names of classes, and the command."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import models
from compact_bilinear import cli
from compact_bilinear.descriptors import load_backbone
from compact_bilinear.images import ImageList, read_images
from compact_bilinear.inference import answers
from compact_bilinear.model import Model, load_model
from compact_bilinear.recipes.evaluate import evaluation, labels_for


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.make(tmp_path_factory.mktemp("evaluate"))


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(load_backbone("tiny"), "average-pool", ("crow", "gull", "wren"))


def test_numbers_by_hand(model: Model) -> None:
    scores = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [3.0, 1.0, 0.0], [0.0, 2.0, 1.0]])
    found = evaluation(model, scores, torch.tensor([0, 1, 1, 0]), "birds", "test", broken=1)
    assert (found.images, found.broken, found.error, found.standard_error) == (4, 1, 0.5, 0.25)
    assert [each.accuracy for each in found.classes] == [0.5, 0.5, None]
    assert [each.images for each in found.classes] == [2, 2, 0]
    assert found.confusions == (("crow", "gull", 1), ("gull", "crow", 1))
    assert found.mean_average_precision == pytest.approx((1 / 2 + 2 / 3 + 1 / 2 + 2 / 3) / 4)
    confidence = scores.double().softmax(1).max(1).values
    assert found.mean_confidence == pytest.approx(confidence.mean().item())
    own = scores.double().softmax(1)[torch.arange(4), torch.tensor([0, 1, 1, 0])]
    assert found.negative_log_likelihood == pytest.approx(-own.log().mean().item())
    assert found.top_5_error is None
    said = str(found)
    assert said.startswith("birds, test: 4 images of 2 classes\n  error                50.00%   ± 25.00%\n")
    assert "       1 × crow → gull\n" in said
    assert said.endswith("  1 broken images were left out")


def test_labels_go_by_the_names_of_classes(model: Model) -> None:
    images = ImageList("birds", Path(), ("wren", "crow"), ("a", "b", "c"), (0, 1, -1), ("test",) * 3)
    assert labels_for(model, images) == [2, 0, -1]
    strangers = ImageList("birds", Path(), ("owl", "crow"), ("a",), (0,), ("test",))
    with pytest.raises(
        ValueError, match=r"'owl' for one\.\nGive images of its classes, in folders of the same names: crow, gull"
    ):
        labels_for(model, strangers)
    unused = ImageList("birds", Path(), ("owl", "crow"), ("a",), (1,), ("test",))
    assert labels_for(model, unused) == [0]


def test_the_command_and_its_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", str(folder / "run"), str(folder / "photos")]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("photos, test: 12 images of 3 classes\n  error   ")
    assert "left out: " in said.err
    assert cli.main(["evaluate", str(folder / "run"), str(folder / "photos"), "--json", "--split", "all"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["images"], record["broken"], len(record["classes"])) == (27, 2, 3)
    assert record["error"] < 0.5
    assert sum(count for _, _, count in record["confusions"]) == round(record["error"] * 27)


def test_another_folder_with_fewer_classes_in_another_order(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("moss", "brick"):
        shutil.copytree(folder / "photos/test" / name, tmp_path / "few" / name)
    assert cli.main(["evaluate", str(folder / "run"), str(tmp_path / "few"), "--split", "all", "--json"]) == 0
    few = json.loads(capsys.readouterr().out)
    assert cli.main(["evaluate", str(folder / "run"), str(folder / "photos"), "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert few["images"] == 8
    assert few["classes"][1]["accuracy"] == whole["classes"][1]["accuracy"]
    assert few["classes"][2]["accuracy"] == whole["classes"][2]["accuracy"]


def test_retrieval_among_themselves_and_in_a_gallery(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = read_images(folder / "photos")
    found = list(answers(load_model(folder / "run"), images, features=True, workers=0))
    places = torch.cat([each.places for each in found])
    x = torch.cat([each.output for each in found if len(each.places)])
    labels, test = torch.tensor(images.labels)[places], torch.tensor([images.splits[place] == "test" for place in places])
    cosines = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(x).T
    for gallery, more in ((test, []), (~test, ["--gallery", "train"])):
        assert cli.main(["evaluate", str(folder / "run"), str(folder / "photos"), "--retrieval", "--json", *more]) == 0
        record = json.loads(capsys.readouterr().out)
        near = cosines.clone().fill_diagonal_(-2)[test][:, gallery].argmax(1)
        assert record["recall@1"] == pytest.approx((labels[gallery][near] == labels[test]).double().mean().item())
        assert (record["queries"], record["gallery"]) == (12, int(gallery.sum()))
    assert cli.main(["evaluate", str(folder / "run"), str(folder / "photos"), "--gallery", "train"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "Write --retrieval beside --gallery."


def test_what_cannot_be_is_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(folder / "photos/train/moss/00.jpg", alone)
    for arguments, told in (
        ([folder, folder / "photos"], "has no model.json"),
        ([folder / "run", alone, "--split", "all"], "knows none"),
        ([folder / "run", alone], "knows none"),
        ([folder / "run", folder / "photos", "--split", "val"], "The split 'val' of photos was asked for"),
    ):
        assert cli.main(["evaluate", *map(str, arguments)]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert told in lines[0]
        assert len(lines) == 2
