"""`compose`: objects on scenes, written to disk in the layout of BAM."""

from quantus_concepts.studies.compose.command import compose

COMMANDS = {"compose": compose}
