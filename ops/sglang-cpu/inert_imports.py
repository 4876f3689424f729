"""Stand-ins for GPU packages that SGLang imports and a CPU never calls: importable, usable as decorators, inert.

SGLang for the CPU runs on plain PyTorch, but its modules import Triton, its own CUDA kernels and torchvision at the
top. Whatever is missing of these is served from here, by a finder behind all others; an installed package wins.
Kernels can be defined. Launching one raises NotImplementedError.
"""

from __future__ import annotations

import enum
import importlib.abc
import importlib.machinery
import sys
import types

PACKAGES = ("triton", "sgl_kernel", "torchvision")
TYPE_NAMES = frozenset({"constexpr", "dtype", "tensor", "base_value", "base_type"})
"""Names in small letters that are classes in Triton; they appear in isinstance and as bases."""


def refuse(name: str) -> None:
    """Raises what asking for `name` raises in a process that has no GPU."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "active":
        raise RuntimeError("0 active drivers: this is a machine without a GPU")


class Inert:
    """Takes part in any expression at import time and computes nothing."""

    def __init__(self, *_: object, **kwargs: object) -> None:
        self.__dict__.update(kwargs)

    def __getattr__(self, name: str) -> object:
        refuse(name)
        return Inert()

    def __call__(self, *args: object, **kwargs: object) -> object:
        """A decorator, with or without arguments, hands back the function that it decorates."""
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else self

    def __getitem__(self, grid: object) -> object:
        raise NotImplementedError("a GPU kernel was launched on a machine without one")

    def __or__(self, other: object) -> object:
        return self

    __ror__ = __or__


class InterpolationMode(enum.Enum):
    """Image processors refer to its members when they are defined."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


KNOWN: dict[str, object] = {
    "cdiv": lambda a, b: -(a // -b),
    "next_power_of_2": lambda n: 1 << max(n - 1, 0).bit_length(),
    "view": lambda x, _semantic=None: x,
    "InterpolationMode": InterpolationMode,
}


class InertModule(types.ModuleType):
    """A module in which every public name exists."""

    __path__ = ()
    __version__ = "3.5.0"

    def __getattr__(self, name: str) -> object:
        refuse(name)
        if name in KNOWN:
            value = KNOWN[name]
        elif name[0].isupper() or name in TYPE_NAMES:
            value = type(name, (Inert,), {"__module__": self.__name__})
        elif self.__name__ == "sgl_kernel":
            value = _missing_kernel(name)
        else:
            value = Inert()
        setattr(self, name, value)
        return value


def _missing_kernel(name: str) -> object:
    def kernel(*args: object, **kwargs: object) -> object:
        raise NotImplementedError(f"sgl_kernel.{name} was called on a machine without it")

    kernel.__name__ = name
    return kernel


class InertFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return InertModule(spec.name)

    def exec_module(self, _: types.ModuleType) -> None:
        return None


sys.meta_path.append(InertFinder())
