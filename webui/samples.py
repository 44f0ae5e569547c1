"""Prompts for the page's burst: of many lengths, so that rows differ, and of many ends, so that they leave apart."""

import itertools
from typing import Any

_SHORT = [
    ("The capital of France is", 12),
    ("Once upon a time", 48),
    ("Water boils at", 16),
    ("Two plus two is", 8),
    ("The first law of thermodynamics says that", 40),
    ("My favourite season is autumn because", 32),
    ("Roses are red, violets are blue,", 24),
    ("A haiku about rain:", 28),
    ("The opposite of cold is", 6),
    ("Here is a list of five fruits: apple,", 20),
]

_MIDDLE = [
    ("A train leaves the station at nine in the morning and travels at eighty kilometres an hour. A second train "
     "leaves two hours later and is faster. The second train", 56),
    ("Dear neighbour, thank you for looking after our cat while we were away. She was happy and calm when we came "
     "home. We would like to", 44),
    ("To make bread you need flour, water, salt and yeast. First, mix the flour with the salt. Then", 72),
    ("The lighthouse keeper had not spoken to anyone for eleven days when a small boat came out of the fog, and in "
     "it sat", 64),
    ("A computer's memory is arranged in levels. Close to the processor there is little of it, and it is fast; "
     "further away there is more of it, and it is", 36),
    ("The river starts as a spring high in the mountains. On its way to the sea it passes three towns, an old mill "
     "and", 30),
    ("In the game of chess each player begins with sixteen pieces. The piece that moves in the most directions is", 18),
    ("Bees find their way home by the sun, by landmarks and by smell. When a bee has found good flowers, it", 52),
]  # fmt: skip

_LONG = [
    ("The following is a short report from the weather station on the hill. In January it snowed on fourteen days, "
     "and the road was closed twice. In February the wind broke the old mast, so the readings of that month are "
     "missing. March was mild and wet. In April the swallows came back earlier than in any year since the station "
     "opened, and the first thunderstorm was on the twentieth. May was dry. In June the new mast was put up, and "
     "since then every hour has been recorded without a gap. Summary of the report:", 60),
    ("Anna, Ben and Clara share a flat with four rooms. Anna works at night in a hospital and sleeps until noon. Ben "
     "is a carpenter who gets up at five and likes to sing in the kitchen. Clara studies music and practises the "
     "cello for three hours every afternoon. For a long time this went well, because the walls are thick. Then a "
     "fourth person moved in, a writer called David, who needs silence to work and is at home all day. At the first "
     "meeting about the matter, Ben said that", 68),
    ("A queue at a bakery is a simple thing: whoever comes first is served first. A kitchen with many pans is less "
     "simple. Some dishes need a long time and little attention, others a short time and all of it. A good cook "
     "does not finish one dish before starting the next, but keeps every pan busy, moves the small ones aside when "
     "a large one comes, and never lets the fire burn under nothing. When a dish is done it leaves at once and its "
     "place goes to another. A computer that answers many people at the same time works like the cook because", 50),
    ("Instructions for the machine. Before you switch it on, make sure that the lid is closed and that the tray is "
     "empty. Press the green button once and wait until the light stops blinking. If the light turns red, switch "
     "the machine off, open the lid, and remove whatever is stuck between the rollers. Never put your fingers into "
     "the slot. After every hundred sheets, clean the glass with a dry cloth. When the work is finished,", 40),
    ("The museum opens at ten. The ground floor shows tools from the stone age, among them a bow that is nine "
     "thousand years old. On the first floor there are clocks: water clocks, sundials, and the first clock in the "
     "country that could be carried in a pocket. The second floor is for children, who may touch everything there "
     "and usually do. In the cellar, where it is cool, a single room holds the oldest printed book of the town. "
     "Visitors who have only an hour should", 46),
    ("It was the third night of the storm. The captain had sent everyone below except the two men at the wheel. "
     "Waves came over the bow and ran along the deck like a herd of grey animals. Somewhere below, a barrel had "
     "come loose and was rolling from one side to the other, and with every roll the cook cursed it by another "
     "name. Toward morning the youngest of the crew climbed up, looked out into the dark, and said,", 80),
]  # fmt: skip

# One of each length in turn: a burst of any size is mixed.
SAMPLES: list[dict[str, Any]] = [
    {"prompt": prompt, "max_tokens": max_tokens}
    for group in itertools.zip_longest(_SHORT, _MIDDLE, _LONG)
    for prompt, max_tokens in filter(None, group)
]
