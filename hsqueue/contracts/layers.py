"""Which layers' states are taken, and under which convention their ids are written.

The canonical convention is *input of layer*: id ``k`` is what enters decoder layer ``k``, which is Hugging
Face's ``hidden_states[k]`` and what leaves layer ``k - 1``. Id ``N`` (the number of layers) is what leaves
the last layer, before the final norm.
"""

from __future__ import annotations

from collections.abc import Sequence

from hsqueue.contracts.errors import UsageError


def eagle3_layers(num_layers: int) -> tuple[int, ...]:
    """EAGLE-3's three auxiliary layers as inputs of layers: ``2, N // 2, N - 3``.

    Source: the default of SGLang's ``set_eagle3_layers_to_capture(None)``.
    Raises UsageError where a model is too shallow for three distinct layers.
    """
    layers = (2, num_layers // 2, num_layers - 3)
    if sorted(set(layers)) != list(layers):
        raise UsageError(
            f"EAGLE-3's default layers need at least 7 layers; this model has {num_layers}",
            do="Name the layers to capture with --layers.",
        )
    return layers


def parse_layers(text: str, num_layers: int) -> tuple[int, ...]:
    """``eagle3``, ``all`` or comma-separated ids, as inputs of layers. Raises UsageError on anything else."""
    if text == "eagle3":
        return eagle3_layers(num_layers)
    if text == "all":
        return tuple(range(num_layers + 1))
    try:
        layers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"--layers {text!r} is not understood", do="Say eagle3, all, or ids such as 2,16,29."
        ) from None
    check_layers(layers, num_layers)
    return layers


def check_layers(layers: Sequence[int], num_layers: int) -> None:
    """Raises UsageError unless the ids are ascending, distinct and within ``0..num_layers``."""
    if not layers or list(layers) != sorted(set(layers)) or layers[0] < 0 or layers[-1] > num_layers:
        raise UsageError(
            "layer ids must be distinct, ascending and within the model",
            expected=f"0 to {num_layers}",
            found=",".join(map(str, layers)),
        )
