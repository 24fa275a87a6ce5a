"""The name that `quantus_concepts.studies.concepts.report` still imports; it goes with that import."""

from captum_concepts.pictures.gallery import gallery as gallery
