"""Reproduce: the paper's tables and figures, each by one command, on its data sets or on anybody's images."""

import json
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import tyro
from tyro.conf import Positional, UseAppendAction

from ..device import Precision, find_device
from ..finetuning.settings import FineTuning
from ..processes import Processes
from ..progress import note

if TYPE_CHECKING:  # they are imported where they are used: `cbp --help` does without them
    from ..experiments.only import Only
    from ..experiments.setting import Experiment, Setting
    from ..experiments.sources import Source

Name = Literal["table2", "timing", "kernel", "table5", "fig-dim", "table3", "table4", "table6", "alternatives", "all"]
OUT = Path("reproduced")


@dataclass(frozen=True)
class Reproduce:
    """Measure a table or a figure of the paper again, and show the paper's numbers beside ours.

    For instance, without any download, on textures out of a formula and with the backbone that ships with the package:

        cbp reproduce table3 --no-finetune

    As in the paper, with the networks that it had:

        cbp fetch cub --to data/cub
        cbp reproduce table4 --data data/cub --out reproduced

    On your own images, which have no numbers in the paper:

        cbp reproduce table4 --data photos --backbone vgg16 --seeds 3 --out on-photos

    Interrupted, the same command goes on where it stopped. Everything that is made is in the folder --out: records, tables as
    Markdown, LaTeX and CSV, figures as SVG and PNG, and a report to look at.
    """

    name: Positional[Name]
    """Which table or figure. table2 and timing: cost; kernel: how good the estimate is; table5: sizes of the data sets;
    fig-dim: error against dimension; table3: PCA; table4: all poolings on the data sets; table6: few-shot; alternatives:
    projections."""
    data: UseAppendAction[tuple[Path, ...]] = ()
    """A folder of images, a CSV, an archive, or a folder with a CSV for each split; may be repeated. CUB, DTD and MIT Indoor
    are recognised. Without any: textures out of a formula, and tiny."""
    backbone: UseAppendAction[tuple[str, ...]] = ()
    """vgg16 (VGG-D), vgg-m, tiny, or timm:<name>, in place of the paper's; may be repeated."""
    weights: str | None = None
    """A file of weights for the backbone, in place of the published ones."""
    seeds: int = 0
    """Repetitions, whose spread is shown; 0 for three, or one for each split."""
    only: UseAppendAction[tuple[str, ...]] = ()
    """A part of it, data/backbone/pooling or fewer: CUB/VGG-D/TS, or TS,RM. FC, FV, FB, RM, TS, PCA, RP, or names as in
    cbp extract."""
    finetune: bool = True
    """Networks are fine-tuned too, unless this flag leaves the linear classifiers alone."""
    out: Path = OUT
    """The folder for everything that is made. What is there is not measured again."""
    dims: tuple[int, ...] = ()
    """Output dimensions in place of the paper's."""
    size: int = 0
    """Side of the squares that images are made into; 0 is what the backbone is meant for."""
    lambda_: Annotated[float, tyro.conf.arg(name="lambda")] = 1e-3
    """λ of the logistic regression, λ‖w‖² + a sum of losses."""
    one_vs_rest: bool = False
    """Classifiers of each class against all others, as in the authors' code, in place of all together."""
    calibrate: bool = False
    """Their scores shifted and scaled until the medians of other images and of its own are 0 and 1, as in the authors' code."""
    tune: FineTuning = field(default_factory=FineTuning)
    """How networks are fine-tuned. Batches are the paper's, 8 for VGG-16 and 32 otherwise, unless another number than 32 is
    given. Seeds, and what learns, are the experiment's."""
    check_counts: bool = True
    """CUB, DTD and MIT Indoor must have their numbers of images; a part that this flag lets pass is no longer the paper's."""
    device: str = "auto"
    """cpu or cuda."""
    precision: Precision = "auto"
    """What the backbone computes in: on a GPU bfloat16 where it can, and float32 on a CPU."""
    workers: int | None = None
    """Processes that decode images; as many as are of use if not given."""


def run(config: Reproduce) -> str:
    """Measure what is not there yet, and write down what the records say.

    Returns:
        The tables, and where everything is.
    """
    from ..experiments.ledger import SETTINGS
    from ..experiments.only import read_backbone
    from ..experiments.showing import write_files, write_page

    names = [name for name in get_args(Name) if name != "all"] if config.name == "all" else [config.name]
    experiments = {name: load(name) for name in get_args(Name) if name != "all"}
    setting = _setting(config, [experiments[name] for name in names])
    given = tuple(read_backbone(each) for each in config.backbone)
    said = []
    for name in names:
        note(f"reproduce {name}: {experiments[name].title}")
        # what needs no images takes the paper's network, also where there are none but textures
        experiments[name].measure(setting if experiments[name].images else replace(setting, backbones=given))
        mine = [record for record in setting.ledger.records if record.experiment == name]
        if mine:
            said.append(write_files(config.out, experiments[name], mine))
    if not said:
        parts = " ".join(config.only) or "(nothing)"
        raise ValueError(
            f"{config.name} should measure something, but --only {parts} leaves nothing of it that can be measured.\n"
            "Name other parts, or leave --only out; the lines above say what was left out, and why."
        )
    settings = json.loads((config.out / SETTINGS).read_text("utf-8"))
    page = write_page(config.out, experiments, setting.ledger.records, settings)
    files = f"Tables, figures and records are in {config.out}; the report is {page}."
    return "\n\n".join([*said, files])


def load(name: str) -> "Experiment":
    """An experiment by its name."""
    module: Any = import_module(f"..experiments.{name.replace('-', '_')}", __package__)
    experiment: Experiment = module.EXPERIMENT
    return experiment


def _setting(config: Reproduce, experiments: "list[Experiment]") -> "Setting":
    from ..experiments.ledger import Ledger
    from ..experiments.only import Only, read_backbone
    from ..experiments.setting import Setting
    from ..experiments.sources import find_sources, write_source

    _check(config)
    device = find_device(config.device, Processes())
    needs_images = any(experiment.images for experiment in experiments)
    sources = find_sources(config.data, config.check_counts) if needs_images else ()
    only = Only.of(config.only, [source.name for source in sources] or ["textures"])
    backbones = tuple(read_backbone(each) for each in config.backbone)
    ledger = Ledger(config.out)
    if needs_images and not sources:
        sources = (write_source(config.out / "images" / "textures"),)
        backbones = backbones or ("tiny",)
    _refuse_others(config, only, sources)
    setting = Setting(
        ledger,
        sources,
        only,
        backbones,
        weights=config.weights,
        dims=config.dims,
        seeds=config.seeds,
        size=config.size,
        lambda_=config.lambda_,
        one_vs_rest=config.one_vs_rest,
        calibrate=config.calibrate,
        finetune=config.finetune,
        tuning=replace(config.tune, precision=config.precision, workers=config.workers),
        device=device,
        precision=config.precision,
        workers=config.workers,
    )
    ledger.agree(_decisive(setting))
    return setting


def _decisive(setting: "Setting") -> dict[str, Any]:
    """All that decides the numbers and does not stand in a record's cell."""
    from ..features.layout import hash_of
    from ..timing import machine

    decisive: dict[str, Any] = {"device": machine(setting.device.type)["device"]}
    if not setting.sources:
        return decisive | {"size without images": setting.size}
    decisive |= {"size": setting.size, "precision": setting.precision, "lambda": setting.lambda_}
    decisive |= {"one_vs_rest": setting.one_vs_rest, "calibrate": setting.calibrate}
    weights = _checksum(setting.weights)
    decisive |= {f"weights of {backbone}": weights for backbone in setting.chosen_backbones(("vgg-m", "vgg16"))}
    if setting.finetune:
        of_experiment = ("seed", "learn_projection", "precision")
        tuning = setting.tuning.decisive().items()
        decisive |= {f"tune.{name}": value for name, value in tuning if name not in of_experiment}
    for source in setting.sources:
        for number in range(len(source.lists)):
            decisive[f"images of {source.name} {source.split(number)}".strip()] = hash_of(source.images(number))
    return decisive


def _checksum(weights: str | None) -> str | None:
    """Of a file; None for what is published."""
    import hashlib

    if weights is None or not Path(weights).is_file():
        return weights
    with Path(weights).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse_others(config: Reproduce, only: "Only", sources: "tuple[Source, ...]") -> None:
    """Say what was given in place of the data set that was asked for."""
    from ..experiments.sources import PAPER

    there = {source.name for source in sources}
    absent = sorted(only.data - there)
    if absent and sources:
        kind = next(kind for kind, name in PAPER.items() if name == absent[0])
        looks = "; ".join(f"{folder} looks like {source.name}" for folder, source in zip(config.data, sources, strict=False))
        raise ValueError(
            f"--only asks for {absent[0]}, but {looks or 'no --data is given, and textures are no data set of the paper'}.\n"
            f"Give the folder of {absent[0]} with --data; `cbp fetch {kind} --to data/{kind}` downloads it."
        )


def _check(config: Reproduce) -> None:
    for name, least in {"seeds": 0, "size": 0}.items():
        if getattr(config, name) < least:
            raise ValueError(
                f"Reproduce takes {name} ≥ {least}, but got {getattr(config, name)}.\nLeave it out for the usual value."
            )
    if not all(d >= 1 for d in config.dims):
        raise ValueError(f"Reproduce takes dimensions ≥ 1, but got {min(config.dims)}.\nWrite --dims 512 8192, for instance.")
    if not 0 < config.lambda_ < float("inf"):
        raise ValueError(f"Logistic regression takes λ > 0, but got {config.lambda_}.\nWrite --lambda 1e-3, as in the paper.")
    if config.tune.hold_out:
        raise ValueError(
            "Networks are fine-tuned on all training images, as in the paper, but got "
            f"--tune.hold-out {config.tune.hold_out}.\nLeave it out; cbp train --finetune holds images out."
        )
    if config.weights is not None and len(config.backbone) != 1:
        raise ValueError(
            f"Weights are of one backbone, but with --weights there are {len(config.backbone) or 'the paper’s two'}.\n"
            "Name the backbone that the file is of, --backbone vgg16, and run the others by themselves."
        )
    if Processes.from_environment().world > 1:
        raise ValueError(
            f"An experiment runs in one process, but torchrun started {Processes.from_environment().world}.\n"
            "Start cbp reproduce without torchrun; give each GPU another --only and another --out."
        )
    if any(data.is_dir() and config.out.resolve().is_relative_to(data.resolve()) for data in config.data):
        raise ValueError(
            f"Results go beside the images, but {config.out} lies inside one of {', '.join(map(str, config.data))}.\n"
            "Write --out reproduced, for instance."
        )
