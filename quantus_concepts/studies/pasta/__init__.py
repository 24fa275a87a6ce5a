"""`benchmark pasta` and the commands around ratings of explanations: collect, train on, score, compare."""

from quantus_concepts.studies._kit.study import command_of
from quantus_concepts.studies.pasta import command
from quantus_concepts.studies.pasta import settings as of

COMMANDS = {
    of.BenchmarkPasta.words: command_of(of.BenchmarkPasta, command.train),
    of.Sheet.words: command_of(of.Sheet, command.make_sheet),
    of.Train.words: command_of(of.Train, command.train),
    of.Score.words: command_of(of.Score, command.score),
    of.Metrics.words: command_of(of.Metrics, command.relate),
    of.Ablate.words: command_of(of.Ablate, command.ablate),
}
