"""The commands `substitute ...`: images of birds with one attribute replaced, made and filtered."""

from quantus_concepts.studies.substitute.command import filter_images, generate

COMMANDS = {
    "substitute generate": generate,
    "substitute filter": filter_images,
}
