"""Try scores of concepts on real birds: planted damage to a post-hoc CBM, without maps.

python docs/examples/real_trial.py CUB_200_2011 network.py:model features
"""

import runpy
import sys
import warnings
from dataclasses import replace

import numpy as np
from torch.utils.data import DataLoader

from captum_concepts import LayerFeatures, PostHocCBM
from quantus_concepts.datasets import CUB200
from quantus_concepts.datasets.transforms import default_transform
from quantus_concepts.testing import (
    meta_evaluate,
    noticed,
    predict_world,
    trial_metrics,
    trial_table,
)

SCORES = (
    "concept AUC",
    "concept AUC within classes",
    "CEM gain (effect)",
    "CEM gain (value)",
    "CEM gain (contribution)",
    "CGIM correlation (effect)",
    "CGIM correlation (value)",
    "oracle accuracy",
    "CEM (contribution)",
    "concept-task leakage",
    "ANEC-5",
    "accuracy",
)


def main(root: str, network: str, layer: str) -> None:
    """Print the table of a trial."""
    path, _, factory = network.partition(":")
    file = runpy.run_path(path)
    features = LayerFeatures(file[factory](), layer)
    transform = default_transform(
        file.get("IMAGE_SIZE", 224), "resize", file["MEAN"], file["STD"]
    )
    train, test = (
        CUB200(root, split, transform=transform) for split in ("train", "test")
    )
    fit = [
        (batch.image, batch.label, batch.concepts) for batch in DataLoader(train, 32)
    ]
    model = PostHocCBM.fit(features, fit, names=train.concept_names, random_banks=0)
    test = test.select(model.bank.names)
    columns = [train.concept_names.index(name) for name in model.bank.names]
    fit = [(image, label, concepts[:, columns]) for image, label, concepts in fit]
    # Batches without places: no maps, which would take a pass of the network for each part.
    scored = [
        (batch.image, batch.label, batch.concepts) for batch in DataLoader(test, 32)
    ]
    rows = predict_world(model, fit, scored)
    tables = {
        "class_concepts": test.class_concepts.numpy(),
        "part_of_concept": np.asarray(test.part_of_concept),
    }
    rows = replace(rows, tables={**rows.tables, **tables})
    metrics = {
        name: scorer for name, scorer in trial_metrics(rows).items() if name in SCORES
    }
    frame = meta_evaluate(
        metrics, world=rows, sizes=[0.1, 0.3, 0.6, 1], worlds=3, repetitions=1
    )
    found = noticed(frame)
    print(trial_table(found).to_string())
    nothing = found[found["kind"] == "know-nothing"]
    print(
        nothing.pivot(index="metric", columns="damage", values="end")
        .round(3)
        .to_string()
    )
    print(
        found.drop_duplicates("metric")[["metric", "start", "luck"]]
        .round(3)
        .to_string()
    )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
