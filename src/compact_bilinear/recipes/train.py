"""Train: from a folder of images to a classifier, in the paper's two stages.

Features are extracted once and a linear classifier is fitted to them, exactly; with ``--finetune`` the whole network is trained
from there on. The classifier's model is written first, so that there is something to use and to compare with.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
import tyro
from tyro.conf import Positional

from ..device import Precision, choose_precision, find_device
from ..finetuning.settings import FineTuning
from ..pooling.by_name import read_pooling
from ..processes import Processes
from ..progress import note
from ..whole_file import write_whole
from . import extract
from .evaluate import Evaluation, evaluation

if TYPE_CHECKING:
    from ..features import FeatureStore
    from ..images import ImageList

FEATURES = "features"
BEFORE = "before-fine-tuning"
RESULT = "evaluation.json"


@dataclass(frozen=True)
class Train:
    """Learn to tell classes of images apart.

    For instance, offline, with the backbone that ships with the package:

        cbp train photos --backbone tiny --out run

    The paper's way: VGG-16, a linear classifier on pooled features, then the whole network by gradient descent:

        cbp train photos --backbone vgg16 --pool tensor-sketch:8192 --out run --finetune

    Interrupted, the same command goes on where it stopped. On eight GPUs:

        torchrun --nproc-per-node 8 -m compact_bilinear train photos --out run --finetune

    The folder is then taken by `cbp predict run image.jpg`, `cbp evaluate run photos` and others.
    """

    data: Positional[Path]
    """A folder of images, a CSV that lists them, or an archive; CUB-200-2011, DTD and MIT Indoor are recognised. Or a folder of
    features that `cbp extract` made."""
    out: Path
    """The folder for the model, and for all that it is made from."""
    pool: str | None = None
    """The pooling, NAME[:DIM][,seed=N]: tensor-sketch, random-maclaurin, full-bilinear, pca-bilinear, fisher-vector,
    average-pool, or fully-connected for the network's own last layers; `cbp extract --help` says more. If not given,
    tensor-sketch:8192, or of features the only one that there is."""
    backbone: str = "vgg16"
    """vgg16, vgg-m, tiny, or timm:<name>."""
    weights: str | None = None
    """A file of weights for the backbone, in place of the published ones."""
    tap: str | None = None
    """Which of the backbone's layers; the last convolution, after its ReLU, if not given."""
    size: int = 0
    """Side of the squares that images are made into; 0 is what the backbone is meant for."""
    fit: Literal["stretch", "center-crop"] = "stretch"
    """How images of other proportions become squares."""
    normalize: bool = True
    """Signed square root and ℓ₂ are taken, unless this flag leaves features as they were pooled."""
    lambda_: Annotated[str, tyro.conf.arg(name="lambda")] = "0.001"
    """λ of the logistic regression, λ‖w‖² + a sum of losses; auto finds it by cross-validation."""
    one_vs_rest: bool = False
    """Each class against all others, as in the authors' code, in place of all together."""
    calibrate: bool = False
    """Shift and scale the scores of each class so that the medians of other images and of its own are 0 and 1, as in the
    authors' code. Changes which class wins; its probabilities mean little."""
    finetune: bool = False
    """Train the whole network, from the linear classifier on."""
    tune: FineTuning = field(default_factory=FineTuning)
    """How, with --finetune."""
    kind: Literal["auto", "cub", "mit", "dtd", "folder", "csv"] = "auto"
    """Which data set it must be."""
    partition: int = 1
    """Of DTD, which of its ten."""
    check_counts: bool = True
    """CUB, DTD and MIT Indoor must have their numbers of images, unless this flag lets others pass."""
    test_share: float = 0.5
    """Where images have no split, the part of each class that becomes test images."""
    seed: int = 0
    """What that split, and the descriptors that PCA and Fisher vectors are fitted on, are drawn from."""
    device: str = "auto"
    """cpu or cuda."""
    precision: Precision = "auto"
    """What the backbone computes in: on a GPU bfloat16 where it can, and float32 on a CPU."""
    workers: int | None = None
    """Processes that decode images; as many as are of use if not given."""


@dataclass(frozen=True)
class Outcome:
    """How good what was trained is, on the test images; None where there are none, or where that stage was not asked for."""

    folder: Path
    linear: Evaluation | None
    fine_tuned: Evaluation | None

    def __str__(self) -> str:
        """For people, with what to do next."""
        lines = []
        if self.linear is not None:
            lines += ["Linear classifier on pooled features", str(self.linear)]
        if self.fine_tuned is not None:
            lines += ["Fine-tuned", str(self.fine_tuned)]
        return "\n".join([*lines, f"The model is in {self.folder}. Try it: cbp predict {self.folder} IMAGE"])


def run(config: Train) -> Outcome | None:
    """Train a model, or go on with it.

    Returns:
        How good it is; None in all processes but the first, if there are several.
    """
    from ..features import FeatureStore
    from ..features.layout import MANIFEST
    from ..model import SETTINGS

    _check(config)
    processes = Processes.from_environment()
    made_before = (config.data / MANIFEST).is_file()
    if made_before and config.finetune:
        raise ValueError(
            f"Fine-tuning sees images, but {config.data} holds features.\nGive the folder of images that they were made from."
        )
    images = None if made_before else _images(config)
    classes = FeatureStore(config.data).classes if images is None else images.classes
    if len(classes) < 2:  # before images are looked at, which may take hours
        raise ValueError(
            f"A classifier tells at least two classes apart, but {config.data} has {len(classes) or 'none'}.\n"
            "Give a folder with a folder of images for each class, or a CSV that says the class of each."
        )
    store = FeatureStore(config.data) if made_before else extract.run(_extraction(config))
    folder = config.out / BEFORE if config.finetune else config.out
    linear = None
    if processes.first and store is not None:
        for each in store.broken:
            note(f"left out: {each['path']}: {each['reason']}")
        _refuse_others(config, _made(config, store))
        linear = _first_stage(config, store, images, folder)
    if images is None or not config.finetune:
        return Outcome(config.out, linear, None) if processes.first else None
    processes.wait((folder / SETTINGS).exists, "the linear classifier")
    fine_tuned = _second_stage(config, images, folder, processes)
    return Outcome(config.out, linear, fine_tuned) if processes.first else None


def _first_stage(config: Train, store: "FeatureStore", images: "ImageList | None", folder: Path) -> Evaluation | None:
    """The linear classifier, in a model of its own; of features whose images are not at hand, ``images`` is None."""
    from ..classify.head import fit_head, scores_of
    from ..finetuning import training_places
    from ..model import Model, load_model

    pooling = _pooling(config, store)
    # what fine-tuning measures itself on, the classifier that it begins with has not seen either
    held = training_places(images, config.tune).held if images is not None and config.finetune else ()
    learnable = config.finetune and config.tune.learn_projection
    made = _made(config, store) | {
        "held out": [config.tune.hold_out, config.tune.seed] if held else None,
        "learnable": learnable,
        "fine-tuning": None,
    }
    before = _made_before(folder)
    if before is not None and before | made == before:
        model = load_model(folder)
    else:
        model = Model.of_features(store, pooling, config.weights, classes=store.classes, learnable=learnable)
        note(f"train: logistic regression on {pooling} (d={store.poolings[pooling]})")
        lambda_: Any = config.lambda_ if config.lambda_ == "auto" else float(config.lambda_)
        classifier = fit_head(
            model,
            store,
            pooling,
            lambda_=lambda_,
            one_vs_rest=config.one_vs_rest,
            calibrate=config.calibrate,
            without=held,
        )
        if lambda_ == "auto":
            note(f"train: λ = {classifier.lambda_used_:.3g} has the least loss in cross-validation")
        model.made = made | {"lambda used": classifier.lambda_used_}
        model.save(folder)
    if "test" not in store.splits:
        return None
    scores, labels = scores_of(model, store, pooling)
    if not len(labels):
        return None
    broken = 0 if images is None else sum(images.splits[each["index"]] == "test" for each in store.broken)
    result = evaluation(model, scores, labels, store.manifest["settings"]["data"], "test", broken)
    _write(folder, result)
    return result


def _pooling(config: Train, store: "FeatureStore") -> str:
    """Which of the store's features are meant."""
    if config.pool is not None:
        pooling = str(read_pooling(config.pool))
        if pooling not in store.poolings:
            raise ValueError(f"{store.folder} has no features {pooling!r}.\nIt has {', '.join(store.poolings)}.")
        return pooling
    if len(store.poolings) > 1:
        raise ValueError(
            f"{store.folder} has features {', '.join(store.poolings)}, and one of them is trained on.\n"
            f"Write --pool {next(iter(store.poolings))}, for instance."
        )
    return next(iter(store.poolings))


def _second_stage(config: Train, images: "ImageList", folder: Path, processes: Processes) -> Evaluation | None:
    """The whole network, from the linear classifier's model on."""
    from ..finetuning import fine_tune
    from ..inference import answers
    from ..model import load_model

    device = find_device(config.device, processes)
    model = load_model(folder, device)
    fine_tune(model, images, config.tune, config.out, device=device, processes=processes)
    if not processes.first:
        return None
    model.save(config.out)
    places = [
        place
        for place, (label, split) in enumerate(zip(images.labels, images.splits, strict=True))
        if split == "test" and label >= 0
    ]
    if not places:
        return None
    precision = choose_precision(config.precision, device)
    found = list(answers(model.eval(), images, order=places, precision=precision, workers=config.workers))
    kept = torch.cat([each.places for each in found])
    labels = torch.tensor(images.labels)[kept]
    if not len(kept):
        note(f"train: the fine-tuned model is not scored, because all {len(places)} test images are broken")
        return None
    scores = torch.cat([each.output for each in found])
    result = evaluation(model, scores, labels, images.name, "test", len(places) - len(kept))
    _write(config.out, result)
    return result


def _images(config: Train) -> "ImageList":
    from ..images import read_images

    return read_images(
        config.data,
        config.kind,
        partition=config.partition,
        test_share=config.test_share,
        seed=config.seed,
        check_counts=config.check_counts,
    )


def _made(config: Train, store: "FeatureStore") -> dict[str, Any]:
    """What decides what the linear classifier is; kept in the model."""
    manifest, pooling = store.manifest, _pooling(config, store)
    settings = manifest["settings"]
    return {
        "data": settings["data"],
        "images sha256": manifest["items"]["sha256"][:12],
        "backbone sha256": settings["weights sha256"][:12],
        **{name: settings[name] for name in ("tap", "size", "fit", "decode", "normalize")},
        "pooling": pooling,
        "pooling sha256": (manifest["poolings"][pooling]["sha256"] or manifest["fitted"][pooling])[:12],
        "lambda": "auto" if config.lambda_ == "auto" else float(config.lambda_),
        "one_vs_rest": config.one_vs_rest,
        "calibrate": config.calibrate,
    }


def _refuse_others(config: Train, made: dict[str, Any]) -> None:
    """Refuse to write over a model that was trained otherwise, and to go on with fine-tuning that began from another one."""
    for before in map(_made_before, (config.out, config.out / BEFORE)):
        if before is None:
            continue
        changed = [f"{name}: {before.get(name)} → {value}" for name, value in made.items() if before.get(name) != value]
        if changed:
            raise ValueError(
                f"{config.out} holds a model that was trained otherwise; changed are {'; '.join(changed)}.\n"
                "Give another folder for the new settings, or the old settings to go on; remove the folder to begin anew."
            )
        if before.get("fine-tuning") and not config.finetune:
            raise ValueError(
                f"{config.out} holds a fine-tuned model, which a linear classifier would replace.\n"
                f"The one before fine-tuning is in {config.out / BEFORE}; give another folder for a new one, or write "
                "--finetune."
            )


def _made_before(folder: Path) -> dict[str, Any] | None:
    """What the model that is there already was made of."""
    from ..model import SETTINGS, read_settings

    return dict(read_settings(folder)["made"]) if (folder / SETTINGS).is_file() else None


def _write(folder: Path, result: Evaluation) -> None:
    write_whole(folder / RESULT, json.dumps(asdict(result), indent=2, ensure_ascii=False) + "\n")


def _extraction(config: Train) -> extract.Extract:
    return extract.Extract(
        data=config.data,
        out=config.out / FEATURES,
        pool=(config.pool,) if config.pool else (),
        backbone=config.backbone,
        weights=config.weights,
        tap=config.tap,
        size=config.size,
        fit=config.fit,
        normalize=config.normalize,
        kind=config.kind,
        partition=config.partition,
        check_counts=config.check_counts,
        test_share=config.test_share,
        seed=config.seed,
        device=config.device,
        precision=config.precision,
        workers=config.workers,
    )


def _check(config: Train) -> None:
    try:
        good = config.lambda_ == "auto" or 0 < float(config.lambda_) < float("inf")
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"λ is a number > 0, or auto, but got {config.lambda_!r}.\nWrite --lambda 0.001, the paper's.")
    if config.out.exists() and not config.out.is_dir():
        raise ValueError(f"A model goes into a folder, but {config.out} is a file.\nGive a folder.")
    if config.data.is_dir() and config.out.resolve().is_relative_to(config.data.resolve()):
        raise ValueError(
            f"A model goes beside the images, but {config.out} lies inside {config.data}.\nWrite --out run, for instance."
        )
