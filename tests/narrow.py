"""The networks of the paper with a few of their channels, which the tests of the descriptors share."""

from compact_bilinear.descriptors import VGG_D, VGG_M, Architecture, Conv


def narrow(architecture: Architecture) -> Architecture:
    """The same layers in the same geometry, with widths that a test can afford."""
    layers = tuple(
        layer._replace(channels=max(layer.channels // 64, 5)) if isinstance(layer, Conv) else layer
        for layer in architecture.layers
    )
    return architecture._replace(layers=layers)


NARROW_M, NARROW_D = narrow(VGG_M), narrow(VGG_D)
