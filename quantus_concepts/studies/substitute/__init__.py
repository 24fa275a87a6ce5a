"""The commands `substitute ...`: images of birds with one attribute replaced, made, filtered, rated and exported."""

from quantus_concepts.studies.substitute.command import export, filter_images, generate, sheet

COMMANDS = {
    "substitute generate": generate,
    "substitute filter": filter_images,
    "substitute sheet": sheet,
    "substitute export": export,
}
