"""What `quantus-concepts benchmark substitution` is asked for: each option declared once, checked before any work."""

from __future__ import annotations

from dataclasses import dataclass

from quantus_concepts.studies.command import MANY, RUN, RunOptions, option, option_name

#: Fewer do not tell where 97.5 % of them lie; `functional.random_banks` has the same number, and loads torch.
N_BANKS = 30

_DATA, _TRAINING = "Painted birds", "Models"


@dataclass(frozen=True, kw_only=True)
class SubstitutionOptions(RunOptions):
    """Replace one attribute of a bird by another: does a concept model see it, or recite its class?

    With no option: birds are painted with and without the substitution, concept models of every kind are trained, and
    compared with an oracle, a model that recites the class, and random directions. Prints the main table; the last
    line is the folder with report.html, results.csv and the figures.
    """

    image_size: int = option(64, "Height and width in pixels.", panel=_DATA, bounds=(32, 512))
    n_train: int = option(1200, "Training images.", panel=_DATA, bounds=(1, MANY))
    n_test: int = option(300, "Test images, of each of which one attribute is replaced.", panel=_DATA, bounds=(1, MANY))
    n_classes: int = option(20, "Classes.", panel=_DATA, bounds=(2, 60))
    n_concepts: int = option(40, "Concepts.", panel=_DATA, bounds=(4, 104))
    deviation: float = option(0.1, "Share of attributes that deviate from the class.", panel=_DATA, bounds=(0, 1))
    correlation: float = option(0.0, "How strongly attributes go together, 0 to 1.", panel=_DATA, bounds=(0, 1))
    correlations: str = option("0,0.5,1", "Other correlations, of the curve; or none.", panel=_DATA)
    epochs: int = option(6, "Passes over the training images.", panel=_TRAINING, bounds=(1, MANY))
    random_banks: int = option(N_BANKS, "Random banks of the control.", panel=_TRAINING, bounds=(N_BANKS, MANY))
    seeds: int = option(1, "How many seeds, counted up from --seed.", panel=RUN, bounds=(1, 1000))

    def __post_init__(self) -> None:
        """Raise ValueError for what is out of bounds or does not go together."""
        from captum_concepts.checks import check_range
        from quantus_concepts.studies.training import STRIDE

        super().__post_init__()
        for name in ("n_train", "n_test"):
            # Each class has to occur.
            check_range(option_name(name), getattr(self, name), self.n_classes, MANY)
        if self.image_size % STRIDE:
            raise ValueError(
                f"Expected argument `--image-size` to be a multiple of {STRIDE}, the stride of the small network, "
                f"but got {self.image_size}."
            )
        for each in self.curve:
            check_range("--correlations", each, 0, 1)
        self.torch_device()

    @property
    def curve(self) -> tuple[float, ...]:
        """The correlations of the curve, in order and with the one of all other numbers; none where none is asked."""
        if self.correlations == "none":
            return ()
        try:
            asked = {float(part) for part in self.correlations.split(",")}
        except ValueError as error:
            raise ValueError(
                f"Expected argument `--correlations` to be numbers, 0,0.5,1, or none, but got {self.correlations!r}."
            ) from error
        return tuple(sorted(asked | {self.correlation}))

    def settings(self) -> dict[str, str]:
        """Return what a report lists, with what is meant where nothing was said."""
        return super().settings() | {"device": str(self.torch_device())}
