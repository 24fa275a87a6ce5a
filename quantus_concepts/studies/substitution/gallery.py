"""Birds before and after a substitution, and what every model says of the attribute that was touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from quantus_concepts.metrics.inference import concept_outputs
from quantus_concepts.metrics.protocols import ConceptModel
from quantus_concepts.studies.charts import INK, PALETTE
from quantus_concepts.studies.substitution.names import OF
from quantus_concepts.studies.substitution.painted_pairs import KeptPairs

N_ROWS = 6
#: Of what a model says: only what was put in, what was taken out, anything else.
GOOD, BAD, OTHER = PALETTE[2], PALETTE[0], "#8A8A8A"


def draw_gallery(
    models: Mapping[str, ConceptModel], pairs: KeptPairs, threshold_of: Callable[[str], float], seed: int
) -> Figure:
    """Draw some substitutions of different attributes, with what each model says of the image after."""
    rows = _different(pairs, seed)
    samples = [pairs[index] for index in rows]
    after = torch.stack([sample.image for sample in samples])
    said = {name: concept_outputs(model, after).values.cpu() >= threshold_of(name) for name, model in models.items()}
    fig = Figure(figsize=(2.9 + 0.95 * len(said), 1.05 + 1.15 * len(rows)), layout="constrained")
    widths = [1.15, 1.15, *[0.9] * len(said)]
    axes = fig.subplots(len(rows), 2 + len(said), width_ratios=widths, squeeze=False)
    for place, (index, sample) in enumerate(zip(rows, samples, strict=True)):
        added, removed = int(pairs.added[index]), int(pairs.removed[index])
        group, _, option = pairs.concept_names[added].partition("::")
        for panel, image in zip(axes[place], (sample.before, sample.image), strict=False):
            panel.imshow(image.permute(1, 2, 0).clamp(0, 1))
        old = pairs.concept_names[removed].partition("::")[2]
        label = f"{group.removeprefix('has_').replace('_', ' ')}:\n{old} → {option}"
        axes[place, 0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8.5, color=INK, labelpad=6)
        for panel, present in zip(axes[place, 2:], said.values(), strict=True):
            _write(panel, pairs, present[place], added, removed)
        for panel in axes[place]:
            panel.set_xticks([])
            panel.set_yticks([])
            for spine in panel.spines.values():
                spine.set_visible(False)
    for panel, title in zip(axes[0], ["before", "after", *said], strict=True):
        panel.set_title(title.replace(OF, "\n").replace(", ", ",\n").replace(" ", "\n", 2), fontsize=7.5, color=INK)
    return fig


def _different(pairs: KeptPairs, seed: int) -> list[int]:
    """Return some substitutions, of as many attributes as there are."""
    order = np.random.default_rng(seed).permutation(len(pairs)).tolist()
    groups = [pairs.concept_names[int(pairs.added[index])].partition("::")[0] for index in order]
    # Of each group the first, which comes last here.
    seen = dict(zip(reversed(groups), reversed(order), strict=True))
    first = sorted(seen.values(), key=order.index)
    return (first + [index for index in order if index not in first])[:N_ROWS]


def _write(panel: Axes, pairs: KeptPairs, present: Tensor, added: int, removed: int) -> None:
    group = pairs.concept_names[added].partition("::")[0]
    members = [place for place, name in enumerate(pairs.concept_names) if name.partition("::")[0] == group]
    told = [place for place in members if present[place]]
    colour = GOOD if told == [added] else BAD if removed in told else OTHER
    text = "\n".join(pairs.concept_names[place].partition("::")[2] for place in told) or "none"
    panel.text(0.5, 0.5, text, transform=panel.transAxes, ha="center", va="center", fontsize=8, color=colour)
