"""A small trunk that ships with the package, so that everything works offline at once.

Nine convolutions of 3×3, trained to give what VGG-16 gives on images that a program made: ``training/train_tiny.py`` makes the
weights, ``tiny.md`` beside them says how, and how good they are.
"""

from pathlib import Path

from .vgg import Architecture, Conv, Pool

WEIGHTS = Path(__file__).with_name("tiny.safetensors")

# At full resolution a channel costs 64 times what it costs at the end, so the widths grow late.
TINY = Architecture(
    name="tiny",
    layers=(
        Conv("conv1", 32, kernel=3, padding=1),
        Pool("pool1", kernel=2, stride=2),
        Conv("conv2_1", 64, kernel=3, padding=1),
        Conv("conv2_2", 64, kernel=3, padding=1),
        Pool("pool2", kernel=2, stride=2),
        Conv("conv3_1", 96, kernel=3, padding=1),
        Conv("conv3_2", 96, kernel=3, padding=1),
        Pool("pool3", kernel=2, stride=2),
        Conv("conv4_1", 192, kernel=3, padding=1),
        Conv("conv4_2", 192, kernel=3, padding=1),
        Conv("conv4_3", 192, kernel=3, padding=1),
        Conv("conv4_4", 192, kernel=3, padding=1),
    ),
    taps={"conv4": "relu4_4", "conv4-pre-relu": "conv4_4"},
    image_size={"conv4": 224, "conv4-pre-relu": 224},
)
