"""A phrase for what the parties sign, short enough to compare by telephone.

The phrase has ten words of a list of 256: 80 bits. The author of two studies might look for two with the same phrase,
one for each party, and would have to compute about 2^40 phrases. So each takes a second hash that is slow and needs
much memory (scrypt: 128 MiB): what a party waits for once, half a second or less, makes that search hopeless.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

WORD_COUNT: Final = 10
_COST: Final = 1 << 17  # scrypt's n: 128 bytes * n * r of memory
_BLOCK: Final = 8  # scrypt's r
_PURPOSE: Final = b"tpmdp fingerprint 1"

# Common words that neither look nor sound alike; never change the list, or versions would disagree.
_LIST: Final = """
acrobat admiral almond alphabet amber ambulance angel animal apple apricot arctic armchair artist atlas atom august
avocado badger balcony balloon bamboo banana bandage basket bathtub beaver bedroom beetle bicycle blizzard bonfire
boulder bracelet breakfast brick broccoli bronze brother buffalo cabbage cactus calendar camera candle canyon
captain caramel carrot cathedral cement cherry chicken chimney chocolate circus citizen clarinet climate cloud
clover cobweb coconut coffee compass concert copper cowboy crocodile crystal cucumber cupboard daisy dancer december
dentist diploma doctor dolphin donkey dragon drawer dungeon echo eclipse eggshell elbow elephant elevator emerald
engine envelope evening fabric factory family farmer feather finger firewood fisherman flamingo football forest
fossil fountain fridge furniture galaxy garlic gazelle giant giraffe grape haircut hamburger harvest hazelnut
hedgehog holiday horizon hospital hurricane husband iceberg insect island ivory jaguar jasmine jelly jigsaw journey
jungle juniper justice kingdom lantern laundry lavender legend leopard lettuce library lobster luggage lunch
macaroni machine magnet marathon marble mattress meadow milk minute mirror monument mosquito museum mushroom napkin
necklace nickel north notebook november nurse oasis oatmeal october olive orange ostrich palace pancake panther
parachute passport peanut pelican pencil penguin perfume picnic pineapple pirate plastic platform plumber popcorn
prairie pretzel professor pyramid quarter queen rabbit radio railway rainbow raspberry recipe reptile sailor
sandwich satellite sausage saxophone scarecrow scissors scorpion shepherd sheriff skeleton slipper snail snowman
spaghetti spinach sponge spoon squirrel stadium submarine suitcase sweater syrup tadpole telescope tennis thunder
tornado tortoise traffic treasure triangle trumpet tulip turbine umbrella unicorn vampire velvet village vinegar
vitamin voyage waffle walnut wedding whisper window wolf zebra zigzag zodiac
"""
WORDS: Final = tuple(_LIST.split())


def phrase_of(plan_hash: bytes) -> list[str]:
    """The words for a plan hash.

    >>> phrase_of(bytes(32))[:3]
    ['husband', 'parachute', 'atlas']
    """
    return [WORDS[byte] for byte in _digest(plan_hash)]


@lru_cache(maxsize=8)  # all invitations of a study have the same phrase
def _digest(plan_hash: bytes) -> bytes:
    memory = 128 * _COST * _BLOCK
    return hashlib.scrypt(plan_hash, salt=_PURPOSE, n=_COST, r=_BLOCK, p=1, maxmem=memory + (1 << 20), dklen=WORD_COUNT)
