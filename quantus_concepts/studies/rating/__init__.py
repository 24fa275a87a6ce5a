"""The commands around ratings: collect them, train a scorer on them, score explanations."""

COMMANDS = {
    "pasta train": ("options:TrainOptions", "train_study:STUDY"),
    "pasta score": ("options:ScoreOptions", "score:STUDY"),
    "pasta sheet": ("options:SheetOptions", "sheet:make_sheet"),
    "pasta join": ("options:JoinOptions", "join:join"),
}
