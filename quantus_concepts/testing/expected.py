"""What each score must do under each damage, written down before any run, with the reason."""

from __future__ import annotations

from typing import NamedTuple

#: What is claimed: a score must get worse, must not move, or nothing.
WORSE, SAME, NOTHING = "worse", "same", ""


class Claim(NamedTuple):
    """What a score must do under a damage, and why."""

    expected: str
    why: str


#: The damages in the order of the marks below.
_DAMAGES = (
    *("names permuted", "names permuted in parts", "directions rotated", "concepts mixed", "polarity reversed"),
    *("images exchanged", "maps shifted", "maps mixed", "head rows permuted", "private code", "class recited"),
)
#: By family, which has the sentences, the scores and their marks: - must get worse, 0 must not move, ? nothing.
_MARKS = """
knowledge    concept AUC                     - - - - - - 0 0 0 - -
knowledge    concept AUC within classes      - - - - - - 0 0 0 - -
knowledge    concept accuracy                - - - - - - 0 0 0 - -
existence    CEM gain (effect)               - - - - - - 0 0 - - -
existence    CEM gain (value)                - - - - - - 0 0 0 - -
existence    CEM gain (contribution)         - - - - - - 0 0 - - -
classes      CGIM correlation (effect)       - - - - - - 0 0 - - 0
classes      CGIM correlation (value)        - - - - - - 0 0 ? - 0
classes      CGIM correlation (contribution) - - - - - - 0 0 - - 0
classes      CGIM correlation (weight)       - - - - - - 0 0 - - 0
reading      oracle accuracy                 - - - - - - 0 0 0 - 0
reading      head gap                        - - - - - ? 0 0 ? - 0
existence    CEM (effect)                    - - - - - - 0 0 - - -
existence    CEM (value)                     - - - - - - 0 0 0 - -
existence    CEM (contribution)              - - - - - - 0 0 - - -
existence    CEM (weight)                    - - - - - ? 0 0 - - ?
classes      CGIM (effect)                   - - - - - - 0 0 - - 0
classes      CGIM (value)                    - - - - - - 0 0 ? - 0
classes      CGIM (contribution)             - - - - - - 0 0 - - 0
classes      CGIM (weight)                   - - - - - - 0 0 - - 0
location     CLM                             - 0 - ? - - - - ? ? ?
location     part specificity                - 0 - ? - - - - ? ? ?
locality     locality                        - 0 - - 0 ? 0 0 0 - -
leakage      concept-task leakage            - - - - 0 0 0 0 0 - -
leakage      inter-concept leakage           - - - - 0 0 0 0 0 - -
sparse       ANEC-5                          0 0 - - 0 - 0 0 0 - ?
corrections  gain by corrections             - - - - - ? 0 0 ? - -
task         completeness                    0 0 ? ? 0 - 0 0 - ? ?
task         accuracy                        0 0 ? ? 0 - 0 0 - ? ?
leakage      KSG leakage                     - - - - 0 0 0 0 0 - -
location     pointing game (Quantus)         - 0 - ? - - - - ? ? ?
location     attribution localisation (Quantus) - 0 - ? - - - - ? ? ?
location     relevance rank (Quantus)        - 0 - ? - - - - ? ? ?
task         completeness (PyC)              0 0 ? ? 0 - 0 0 - ? ?
size         CaCE (PyC)                      ? ? ? ? ? ? 0 0 ? ? ?
"""
#: Why, by family and damage.
_WHY: dict[str, dict[str, str]] = {
    "knowledge": {
        "names permuted": "A value with another concept's name does not separate the images that show its concept.",
        "names permuted in parts": "A value with the name of a concept of the same part is still another concept's.",
        "directions rotated": "A random direction does not separate the images that show a concept.",
        "concepts mixed": "A value that is half another concept's separates its own concept less well.",
        "polarity reversed": "A reversed value is high where the concept is absent.",
        "images exchanged": "The value of another image says nothing about this one.",
        "head rows permuted": "The head does not enter.",
        "private code": "A code of the class does not tell the images of one class apart.",
        "class recited": "A recital is wrong wherever an image differs from its class.",
    },
    "existence": {
        "names permuted": "The concepts that are named are not those that the image shows.",
        "names permuted in parts": "The concepts that are named are others of the same part.",
        "directions rotated": "The concepts that are named are random ones.",
        "concepts mixed": "A concept is named where another one is present.",
        "polarity reversed": "A concept is named where it is absent.",
        "images exchanged": "The concepts that are named are those of another image.",
        "head rows permuted": "The concepts that are named are the reasons for another class.",
        "private code": "The code of a class names concepts at random.",
        "class recited": "The usual concepts of the class are named also in images that do not show them.",
    },
    "classes": {
        "names permuted": "Classes rest on concepts with other names than those that people give them.",
        "names permuted in parts": "Classes rest on other concepts of the same part.",
        "directions rotated": "Classes rest on random directions.",
        "concepts mixed": "The importance of a concept is partly that of another one.",
        "polarity reversed": "A class rests on the absence of the concepts that people give it.",
        "images exchanged": "The importance of a class comes from images of other classes.",
        "head rows permuted": "A class rests on the concepts of another class.",
        "private code": "Classes rest on a code that has no relation to what people say.",
        "class recited": "A recital gives every class the concepts that people give it.",
    },
    "location": {
        "names permuted": "The map of a concept with another name points at another part.",
        "names permuted in parts": "Another name of the same part has the same place.",
        "directions rotated": "The map of a random direction points nowhere.",
        "polarity reversed": "The map of a reversed value is lowest at its part.",
        "images exchanged": "The map is that of another image.",
        "maps shifted": "The map points beside the part.",
        "maps mixed": "The map points at another part.",
    },
    "locality": {
        "names permuted": "The value does not depend on the part that its name is about.",
        "names permuted in parts": "Another name of the same part has the same place.",
        "directions rotated": "A random direction depends on all parts alike.",
        "concepts mixed": "The value depends on another part as well.",
        "polarity reversed": "A reversed value depends on the same pixels.",
        "head rows permuted": "The head does not enter.",
        "private code": "A code of the class depends on no part.",
        "class recited": "A recital depends on no part.",
    },
    "reading": {
        "names permuted": "Read by their names, the values point to other classes.",
        "names permuted in parts": "Read by their names, the values point to other classes.",
        "directions rotated": "Read by people's table, random directions point to no class.",
        "concepts mixed": "Read by people's table, mixed concepts point to other classes.",
        "polarity reversed": "Read by people's table, reversed values point to other classes.",
        "images exchanged": "The values are those of another image.",
        "head rows permuted": "The head does not enter.",
        "private code": "Read by people's table, a code points to no class.",
        "class recited": "A recital is what people's table says.",
    },
    "leakage": {
        "names permuted": "A value says more of the classes than the concept whose name it has.",
        "names permuted in parts": "A value says more of the classes than the concept whose name it has.",
        "directions rotated": "A random direction says more of the classes than the concept whose name it has.",
        "concepts mixed": "A value says something of another concept.",
        "polarity reversed": "The sign of a value is no information.",
        "images exchanged": "Values of other images say nothing of this one.",
        "head rows permuted": "The head does not enter.",
        "private code": "A code of the class in the values is what leakage is.",
        "class recited": "A recital says the class where the image's concepts do not.",
    },
    "sparse": {
        "names permuted": "No name enters.",
        "names permuted in parts": "No name enters.",
        "directions rotated": "Few random directions are no reasons for a class.",
        "concepts mixed": "Few mixed concepts separate the classes less well.",
        "polarity reversed": "A head that is fitted anew turns the sign back.",
        "images exchanged": "Values of other images say nothing of the class.",
        "head rows permuted": "The head is fitted anew.",
        "private code": "A code of the class is no set of few reasons.",
    },
    "corrections": {
        "names permuted": "An answer about a concept changes the value of another one.",
        "names permuted in parts": "An answer about a concept changes the value of another one.",
        "directions rotated": "An answer about a concept has no direction that it could set.",
        "concepts mixed": "An answer about a concept changes another one as well.",
        "polarity reversed": "An answer should move the value away from its class.",
        "private code": "An answer about a concept does not change the code.",
        "class recited": "The model holds to its class whatever people answer.",
    },
    "task": {
        "names permuted": "No name enters.",
        "names permuted in parts": "No name enters.",
        "polarity reversed": "The predictions are the same.",
        "images exchanged": "Values of other images give other classes.",
        "head rows permuted": "The head gives other classes.",
    },
    "size": {},
}
_NO_MAPS = "No map enters."


def _claims() -> dict[tuple[str, str], Claim]:
    found = {}
    for line in _MARKS.strip().splitlines():
        words = line.split()
        family, name, marks = words[0], " ".join(words[1:-11]), words[-11:]
        for damage, mark in zip(_DAMAGES, marks, strict=True):
            expected = {"-": WORSE, "0": SAME, "?": NOTHING}[mark]
            why = _WHY[family].get(damage, _NO_MAPS if damage.startswith("maps ") else "")
            found[name, damage] = Claim(expected, why if expected else "")
    return found


#: What each score must do under each damage, by their names.
EXPECTED: dict[tuple[str, str], Claim] = _claims()
