"""Nouns that decide what a place phrase means when they are its object."""

from __future__ import annotations

__all__ = [
    "ABSTRACT",
    "ANIMALS",
    "BACKDROP",
    "BODY",
    "CLOTHING",
    "COLOURS",
    "CONTAINERS",
    "COVERINGS",
    "COVERS",
    "FRAMES",
    "GROUNDS",
    "GROUPS",
    "LEVELS",
    "LIGHTED",
    "LIGHTS",
    "MAYBE_IT",
    "PEOPLE",
    "REGIONS",
    "REMNANTS",
    "RIDEABLE",
    "RIGHTS",
    "SCENERY",
    "SKY",
    "STUNTS",
    "TIMES",
    "UNITS",
]


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


FRAMES = _set(
    "image images picture pictures photo photos photograph photographs frame pic pics shot scene view "
    "snapshot composition"
)
"""The picture itself: "on the left of the photo" is a position."""

SKY = _set(
    "sky skies sun sunlight sunshine moon moonlight candlelight lamplight firelight torchlight twilight "
    "starlight stars lighting rain snow snowfall weather heat sunset sunrise daylight darkness dark "
    "conditions streetlights spotlight spotlights shade shadow shadows stars"
)
"""What everything outdoors is under."""

COVERS = _set("blanket blankets cover covers quilt comforter sheet sheets duvet bedspread sunblanket wraps")
"""What hides the thing under it."""

LIGHTS = _set("light lights")
LIGHTED = _set("northern neon city stage natural low dim")
"""A light that a whole scene is under, unless another noun says which lamp it is: "under a traffic light"."""

COVERINGS = _set(
    "cloth tablecloth tarp towel snow paint sauce cheese gravy veil net rug carpet mask bandage curtain "
    "shawl scarf frosting syrup"
)
"""What lies over a thing and is in the same place."""

GROUNDS = _set(
    "ground floor field grass lawn court beach sand snow slope slopes street road sidewalk pavement ice "
    "dirt path runway highway yard grassland terrain mud asphalt concrete land plain meadow pasture track "
    "tracks rink carpet earth driveway hillside water"
)
"""Surfaces a scene stands on."""

REGIONS = GROUNDS | _set(
    "lane room kitchen bathroom bedroom wall hallway aisle river canal lake way screen city town country "
    "park tracks stage stairs platform intersection"
)
"""Things with sides of their own: "on the left side of the road" is on it."""

BODY = _set(
    "face head neck chest arm arms leg legs hand hands foot feet shoulder shoulders eye eyes ear ears "
    "mouth nose chin cheek body lap knee knees hip hips stomach belly waist finger fingers hair lips paw "
    "paws tail armpit back wrist forehead heads mouths faces torso throat thigh ankle"
)

ABSTRACT = _set(
    "all other another accord else everything things world game average zero freezing par time times "
    "years year hour hours expectations law suspicion influence control pressure circumstances "
    "construction attack arrest age budget standard level history life lives situation competition others "
    "issue past future matters money power freedom fun love death side it's dessert"
)

LEVELS = _set("knee knees waist ankle ankles belt")
"""How far up clothes or water reach."""

UNITS = _set(
    "dollars dollar euros pounds degrees percent years days hours minutes seconds months weeks miles "
    "meters metres feet inches kilometers km kg lbs points times votes users items pages cents"
)

COLOURS = _set("red blue green yellow white black brown grey gray pink purple orange silver gold beige tan")
CLOTHING = COLOURS | _set(
    "shirt shirts t-shirt tshirt dress suit suits jacket coat hat cap helmet uniform uniforms sweater "
    "hoodie jeans shorts skirt pants trousers tie vest scarf gown costume costumes robe apron glasses "
    "sunglasses swimsuit bikini wetsuit wetsuits raincoat shoes boots gloves top clothes clothing outfit "
    "outfits gear attire sweatshirt blazer kimono overalls tuxedo tank jersey sandals socks hair beard "
    "mustache moustache ponytail backpack headphones bow collar harness mask goggles tail ears horns wig "
    "veil saddle wheels handle stripes spots"
)
CONTAINERS = _set(
    "box basket bowl cage crate bag cup glass vase pot jar wheelchair bucket stroller cart suitcase tub "
    "sink bathtub pan tray bottle backpack drawer purse carrier"
)
RIDEABLE = _set(
    "bicycle bike motorcycle motorbike scooter skateboard snowboard surfboard board horse elephant skis "
    "camel donkey bicycles bikes motorcycles horses skateboards wheelchair moped phone skates leash"
)
GROUPS = _set("group couple pair bunch herd flock family crowd team number set row stack pile lot")
"""Singular words for several things."""

MAYBE_IT = _set("person child baby kid toddler infant")
"""People that may be called "it"."""

PEOPLE = _set(
    "person people man men woman women boy boys girl girls child children kid kids lady ladies guy guys "
    "player players baby toddler surfer skier skateboarder rider riders couple group bride groom someone "
    "somebody adult adults crowd family batter catcher pitcher umpire snowboarder biker cyclist officer "
    "policeman cook chef worker workers male female spectators fans tourists spectator teens teenager "
    "teenagers"
)
SCENERY = (
    SKY
    | GROUNDS
    | _set(
        "background foreground distance air sky middle front back trees mountains clouds crowd view sunset "
        "night day morning evening afternoon winter summer autumn fall spring people buildings city town park "
        "forest woods room kitchen bathroom bedroom office house home ocean sea lake river water waves "
        "scenery background colors style street"
    )
)
ANIMALS = _set(
    "dog cat horse cow sheep elephant bear zebra giraffe bird puppy kitten goat pig lion monkey dogs cats "
    "horses cows elephants birds bears"
)
SCENERY |= _set("scene area market background site place setting")
BACKDROP = _set("hand hands tow background foreground distance sky back front middle")
TIMES = _set(
    "day days night morning evening afternoon weekend monday tuesday wednesday thursday friday saturday "
    "sunday phone fire vacation holiday sale way sides"
)
"""What "on" does not put a thing on."""

REMNANTS = _set(
    "ruins remains crumbs scraps bits bit rest little much remnants leftovers bite bites crumb piece "
    "pieces half ashes traces"
)
"""What is left of something."""

RIGHTS = _set("human civil voting legal equal basic constitutional inherent natural divine")
"""What a right that is no side may be called."""

STUNTS = _set(
    "trick tricks jump jumps stunt stunts flip flips ollie move ride look view walk fight argument debate "
    "race battle discussion dispute"
)
"""Things that are done, not seen."""
