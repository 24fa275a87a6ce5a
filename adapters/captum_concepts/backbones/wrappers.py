"""The network inside what a user's training has wrapped around it."""

from __future__ import annotations

from torch import nn

_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def unwrap(model: nn.Module, *, lightning: bool = True) -> nn.Module:
    """Return the network in a DataParallel, a compiled module or a LightningModule; any other as it is."""
    while (inner := _inner(model, lightning)) is not model:
        model = inner
    return model


def _inner(model: nn.Module, lightning: bool) -> nn.Module:
    if isinstance(model, _PARALLEL):
        return model.module
    # By their names: importing the compiler takes longer than all that is done here, and few have Lightning.
    if (compiled := model._modules.get("_orig_mod")) is not None:
        return compiled
    if not lightning or not any(kind.__name__ == "LightningModule" for kind in type(model).__mro__):
        return model
    parts = {name: part for name, part in model.named_children() if any(True for _ in part.parameters())}
    if len(parts) > 1:
        raise ValueError(
            f"Expected argument `model` to be a network but got the LightningModule {type(model).__name__}, of whose "
            f"parts {list(parts)} have weights: which is the network is not known. Pass one, "
            f"`module.{next(iter(parts))}` for instance."
        )
    return next(iter(parts.values()), model)
