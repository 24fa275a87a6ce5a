"""`benchmark pasta` and the commands around ratings of explanations: collect, train on, score, compare."""

from quantus_concepts.studies._kit.study import command_of
from quantus_concepts.studies.pasta.command import Ablate, BenchmarkPasta, Metrics, Score, Sheet, Train

COMMANDS = {study.words: command_of(study) for study in (BenchmarkPasta, Sheet, Train, Score, Metrics, Ablate)}
