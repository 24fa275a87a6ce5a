"""From an accelerator to the CPU: each transfer waits for all that was queued there before, so that one is enough."""

from __future__ import annotations

import torch
from torch import Tensor


def to_host(*tensors: Tensor) -> list[Tensor]:
    """Return tensors of any shapes and types on the CPU, without gradient, in one transfer from each device."""
    found = [tensor.detach() for tensor in tensors]
    for place in dict.fromkeys(tensor.device for tensor in found):
        if place.type == "cpu":
            continue
        here = [index for index, tensor in enumerate(found) if tensor.device == place]
        parts = [found[index].reshape(-1).view(torch.uint8) for index in here]
        # Bytes of one tensor begin anywhere among those of the others, and so they are copied.
        packed = torch.cat(parts).cpu().split([len(part) for part in parts])
        for index, part in zip(here, packed, strict=True):
            found[index] = part.clone().view(found[index].dtype).view(found[index].shape)
    return found
