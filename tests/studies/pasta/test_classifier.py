"""The small network that is explained and rated."""

import torch

from quantus_concepts.studies.pasta.preparing import RatedBirds, train_classifier


def test_a_classifier_that_was_kept_is_the_trained_one_to_the_bit():
    store: dict[str, dict[str, torch.Tensor]] = {}

    def keep(name, settings, make):
        if name not in store:
            store[name] = {key: value.clone() for key, value in make(None).items()}
        return store[name]

    birds = RatedBirds(20, 40, seed=0)
    trained, kept = (train_classifier(birds, epochs=1, device=torch.device("cpu"), keep=keep) for _ in range(2))
    assert len(store) == 1
    with torch.no_grad():
        assert torch.equal(trained.model(trained.images), kept.model(kept.images))
