"""The concepts of the released data sets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_PARTS = (
    "engine artifact_wing animal_wing stern tail locomotive arm hair wheel chain_wheel handlebar hand headlight saddle "
    "body bodywork beak head eye foot leg neck torso cap license_plate door mirror window ear muzzle horn nose hoof "
    "mouth eyebrow plant pot coach screen"
)
_MONUMAI = (
    "horseshoe-arch lobed-arch pointed-arch ogee-arch trefoil-arch serliana solomonic-column pinnacle-gothic porthole "
    "broken-pediment rounded-arch flat-arch segmental-pediment triangular-pediment lintelled-doorway"
)
_COCO = (
    "person, backpack, umbrella, handbag, tie, suitcase, bicycle, car, motorcycle, airplane, bus, train, truck, boat, "
    "traffic light, fire hydrant, stop sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, "
    "zebra, giraffe, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, "
    "tennis racket, bottle, wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, "
    "carrot, hot dog, pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop, mouse, "
    "remote, keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, book, clock, vase, scissors, "
    "teddy bear, hair drier, toothbrush"
)

#: Kazmierczak et al., PASTA, Table 3, by the name a data set has in file names.
RELEASED_CONCEPTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "catsdogscars": tuple(_PARTS.split()),
        "pascalpart": tuple(_PARTS.split()),
        "monumai": tuple(_MONUMAI.split()),
        "coco": tuple(_COCO.split(", ")),
    }
)

#: How the release's own lists write concepts that its Table 3 writes otherwise; its files have these keys.
_AS_RELEASED = {"eyebrow": "ebrow", "flat-arch": "flat-arch "}
#: The lists that the release goes through for its sentences, by the name of the data set.
RELEASE_LISTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {name: tuple(_AS_RELEASED.get(each, each) for each in concepts) for name, concepts in RELEASED_CONCEPTS.items()}
)
