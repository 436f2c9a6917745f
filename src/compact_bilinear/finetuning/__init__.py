"""Fine-tuning: the whole network learns, from a linear classifier on; interrupted at any moment it goes on where it was.

``docs/fine-tuning.md`` says what happens, and what the settings are good for.
"""

from .loop import Diverged
from .places import Places, training_places
from .run import fine_tune
from .settings import FineTuning

__all__ = ["Diverged", "FineTuning", "Places", "fine_tune", "training_places"]
