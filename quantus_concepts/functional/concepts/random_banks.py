"""Random directions in place of a concept bank."""

from captum_concepts.models.random_banks import RandomBank as RandomBank
from captum_concepts.models.random_banks import random_banks as random_banks
