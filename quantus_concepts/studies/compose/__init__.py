"""`compose`: objects on scenes, written to disk in the layout of BAM."""

COMMANDS = {"compose": ("study:ComposeOptions", "study:compose")}
