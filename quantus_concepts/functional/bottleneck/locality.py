"""Locality: does a concept's value change most where its own part is hidden?"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from captum_concepts.support.checks import check_axes
from quantus_concepts.functional.arguments import Numbers, as_tensor, check_within, to_floats
from quantus_concepts.functional.concepts.part_specificity import part_specificity

#: Share of the image that hides a part.
DISC = 1 / 12


@torch.no_grad()
def hide_part(images: Numbers, points: Numbers) -> Tensor:
    """Hide a part of each image behind discs of the image's mean colour.

    Parameters
    ----------
    images : array_like
        (N, C, H, W).
    points : array_like
        (N, Q, 2): the places (x, y) of the part in pixels, NaN where not visible. Each visible one is the centre of a
        disc whose area is a twelfth of the image.

    Returns
    -------
    Tensor
        (N, C, H, W).

    Raises
    ------
    ValueError
        If a shape is wrong.
    """
    images, points = to_floats("images", images), to_floats("points", points)
    check_axes(images=(images, "N C H W"), points=(points, "N Q 2"))
    height, width = images.shape[2:]
    y, x = torch.meshgrid(*(torch.arange(side, device=images.device) for side in (height, width)), indexing="ij")
    centres = points.to(images.device)[:, :, None, None]
    # A place that is not visible is near no pixel: a comparison with NaN is false.
    near = (x - centres[..., 0]) ** 2 + (y - centres[..., 1]) ** 2 <= DISC * height * width / math.pi
    return torch.where(near.any(1, keepdim=True), images.mean((2, 3), keepdim=True), images)


@torch.no_grad()
def locality(values: Numbers, hidden: Numbers, part_of_concept: Numbers) -> Tensor:
    """Change of each concept's value where its own part is hidden, less where another part is (arXiv 2401.01259).

    ``|u - u_p|`` at the concept's own part p less the mean of the same over the other visible parts of the image, each
    weighted by the number of concepts about it, as in `part_specificity`. Above 0 the value depends on its own part
    more than on others.

    Parameters
    ----------
    values : array_like
        (N, L) concept values of the images.
    hidden : array_like
        (N, P, L) of the same images with each part hidden; NaN where the part is not visible.
    part_of_concept : array_like
        (L,) of int: the part that each concept is about, -1 for none.

    Returns
    -------
    Tensor
        (N, L), in units of the values. NaN for a concept without a part, and where its own part is not visible, or
        none of the other parts that a concept is about.

    Raises
    ------
    ValueError
        If a shape is wrong, or there is no such part.

    Examples
    --------
    >>> import torch
    >>> from quantus_concepts.functional import locality
    >>> values = torch.tensor([[2.0, 1.0]])
    >>> without_first, without_second = [0.0, 1.0], [4.0, 0.0]
    >>> hidden = torch.tensor([[without_first, without_second]])
    >>> locality(values, hidden, part_of_concept=[0, 1])
    tensor([[0., 1.]])
    """
    values, hidden = to_floats("values", values), to_floats("hidden", hidden)
    parts = as_tensor("part_of_concept", part_of_concept).to(torch.int64)
    sizes = check_axes(values=(values, "N L"), hidden=(hidden, "N P L"), part_of_concept=(parts, "L"))
    # Where the parts are, mostly the host: a check waits for a device.
    check_within("part_of_concept", parts, -1, sizes["P"] - 1)
    counts, parts = torch.bincount(parts[parts >= 0], minlength=sizes["P"]), parts.to(values.device)
    changes = (hidden - values[:, None]).abs().transpose(1, 2)
    # Scores of `part_specificity` lie in [0, 1].
    largest = changes.nan_to_num(0).amax().clamp(min=torch.finfo(changes.dtype).tiny)
    found = part_specificity((changes / largest).flatten(0, 1), parts.clamp(min=0).repeat(len(values)), counts)
    return (found.difference * largest).view_as(values).masked_fill(parts < 0, torch.nan)
