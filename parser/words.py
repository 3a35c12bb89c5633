"""Word classes the grammar tells apart. A word in none of them counts as part of a noun phrase."""

from __future__ import annotations

__all__ = [
    "ADJECTIVES",
    "ADVERBS",
    "AFTER_NOUNS",
    "ARTICLES",
    "AUXILIARIES",
    "CARRYING",
    "COMPOUND_HEADS",
    "CONJUNCTIONS",
    "COUNTS",
    "DETERMINERS",
    "EXCLUDING",
    "HOVERING",
    "INDEFINITE",
    "LOOKING",
    "MODALS",
    "MOVING",
    "NEGATORS",
    "NOUNS_IN_ED",
    "NOUNS_IN_ING",
    "NOUNS_IN_LY",
    "NOUN_VERBS",
    "PLURALS",
    "POSSESSIVES",
    "PREPOSITIONS",
    "PRONOUNS",
    "QUESTIONS",
    "RELATIVES",
    "RIDING",
    "SINGULARS",
    "SUBORDINATORS",
    "VERBS",
    "VERB_FORMS",
]


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


ARTICLES = _set("a an the")
DETERMINERS = ARTICLES | _set("this that these those some any each every another both such all")
POSSESSIVES = _set("my your his her its our their whose")
COUNTS = _set(
    "two three four five six seven eight nine ten eleven twelve dozen several many few 2 3 4 5 6 7 8 9 10 "
    "11 12"
)
PRONOUNS = _set("it him her them he she they i we you us me itself himself herself themselves")
INDEFINITE = _set(
    "something anything everything nothing everyone anyone anybody everybody one ones other others all "
    "whatever things stuff"
)
QUESTIONS = _set("what who whom where why how when")
RELATIVES = _set("that which who whom whose where")
CONJUNCTIONS = _set("and or plus &")
SUBORDINATORS = _set(
    "but while as when whereas because although though if so since until unless before after then than yet"
)
NEGATORS = _set(
    "no not never without neither nor none nobody nowhere except excluding exclude avoid avoiding lacking "
    "minus cannot can't isn't aren't wasn't weren't don't doesn't didn't hasn't haven't won't wouldn't "
    "ain't non hardly barely"
)
EXCLUDING = (["rather", "than"], ["instead", "of"], ["as", "opposed", "to"])
"""What stands before the other side, or the other thing, that is not meant."""

AUXILIARIES = _set(
    "is are was were be been being am has have had do does did can could will would may might must should "
    "gets got get seems seem appears appear remains remain stays stay"
)
PREPOSITIONS = _set(
    "of in at with for from to by through during about like as up down via per upon throughout amid "
    "amidst including containing featuring despite beyond against into onto off along around across on "
    "near outside inside within"
)
ADVERBS = _set(
    "just directly immediately slightly far way also now only almost nearly partly together down up out "
    "away apart about very quite too so there here somewhere outdoors indoors outside backward backwards "
    "forwards sideways adrift afloat aloft aboard please even ever already once again somewhat exactly "
    "roughly more most less rather in-between today tonight yesterday tomorrow maybe perhaps either "
    "really extremely diagonally both instead e.g. i.e."
)
AFTER_NOUNS = _set(
    "high low close long straight upright asleep awake alone visible alive well still forward upside "
    "barefoot ready right overhead"
)
"""Adjectives that may also stand after their noun, or adverbs that may stand before one: "asleep", "high"."""

ADJECTIVES = (
    _set(
        "red blue green yellow white black brown grey gray pink purple orange silver golden gold beige tan "
        "dark light bright big small large little tiny huge giant tall short long wide narrow old young new "
        "wooden metal plastic glass stone brick paper leather plain striped colorful colourful multicolored "
        "multi-colored round square empty full open closed wet dry dirty clean beautiful pretty cute happy "
        "sad fat thin modern ancient vintage fancy busy hot cold fresh first second third other same "
        "different single double lone whole half fluffy furry spotted shiny rusty multiple various numerous "
        "assorted"
    )
    | COUNTS
)
PLURALS = _set(
    "people men women children kids persons sheep fish geese mice feet teeth deer police folks oxen cattle"
)

NOUNS_IN_ING = _set(
    "building buildings ceiling painting paintings wedding clothing railing awning string ring king wing "
    "thing things morning evening lighting swing pudding dressing icing frosting earring earrings siding "
    "duckling sibling sling spring stuffing topping drawing drawings carving landing crossing opening "
    "seating bedding sing bring viking shoestring filling flooring roofing scaffolding lightning herring "
    "starling gosling pudding plumbing parking marking markings setting living dining housing offspring "
    "something anything everything nothing wiring fencing"
)
NOUN_VERBS = _set(
    "plant plants sign signs board boards light lights bat bats line lines crowd crowds label labels shop "
    "shops store stores film films photograph photographs cycle cycles bike bikes motor motors drink "
    "drinks cook cooks cut cuts watch watches tower towers swing swings slide slides step steps row rows "
    "ride rides picnic picnics balance plate plates paint print prints mount mounts circle circles string "
    "strings box type types text texts place places park parks seat seats dress dresses cover covers tie "
    "ties brush brushes comb combs patrol wedge wedges trap traps shelter shelters lock locks chain "
    "chains rope ropes leash leashes lounge lounges camp camps perch roost pose poses dance dances race "
    "races surf snowboard snowboards skateboard skateboards skate skates ski skis sail sails shift paddle "
    "paddles land lands drop drops position file pile piles stack stacks display displays show shows use "
    "feed bow bows lift lifts strap straps golf fish rake rakes shovel shovels dish iron guard guards "
    "point points face faces wave waves aim aims arrange stick sticks record records rest rests load "
    "loads end ends start stop stops station stations reach plow tow tip tips head heads turn turns"
)
"""Verbs that are as a rule nouns before a place phrase: "traffic lights above a street"."""

MODALS = _set("can could will would may might must should do does did")

SINGULARS = _set(
    "bus glass lens gas tennis canvas christmas iris dress chess atlas bias this is sports sales news savings"
)
"""Words in -s that are one thing."""

NOUNS_IN_ED = _set(
    "bed shed sled seed weed reed moped hundred watershed breed speed need feed tweed steed deed bobsled "
    "seabed"
)
NOUNS_IN_LY = _set(
    "butterfly lily jelly belly fly family dragonfly ladybug supply assembly doily trolly holly italy "
    "firefly ally bully"
)
COMPOUND_HEADS = _set(
    "table tables meter meters pool pan board boards machine machines cart carts lot lots space room "
    "cabinet bowl rod pole boat boats bag bags stick sticks cup dress cake ring band dish spoon suit "
    "shoes shoe star net gear glove track chair chairs lamp plant plants basket baskets iron light lights "
    "door doors toy toys bike horse"
)

# Verbs by what they do to a place phrase that follows.
LOOKING = (
    "look stare gaze glance peek peer point lean bend reach face turn aim tilt search check watch wave "
    "gesture nod swipe veer steer tip smile glare grin squint bow"
)
MOVING = (
    "move head go walk run drive travel fly swim slide ride step jog race march roll sail drift crawl "
    "climb hop wander approach come pass cross lope stroll trot gallop swerve skate ski surf jump leap "
    "pull push shift paddle row stretch fall drop land"
)
HOVERING = (
    "fly hover hang float soar suspend glide rise shine glow burn circle set mount place hold open "
    "display sit perch jump leap raise lift dangle position locate install fix attach pitch string strap "
    "build construct put draw paint print"
)
CARRYING = (
    "hold fly raise lift place put hang carry set lay swing dangle suspend wave balance stack lower "
    "position mount toss throw keep"
)

RIDING = "ride wear drive paddle row steer straddle"
_OTHER = (
    "stand lie rest park hide stay remain nap sleep wait graze crouch kneel squat curl gather line pile "
    "show see find stick live grow eat drink read play write use cook cut hug kiss pet feed chase catch "
    "hit kick throw cover surround tie wrap fill lead follow carry bring take make do get have give watch "
    "sell buy work talk speak listen laugh cry pose prepare perform practice dance sing fight protest "
    "enjoy share serve lick bite sniff smell chew bark wash clean brush comb dry attach connect fix prop "
    "nestle snuggle huddle cuddle tuck roost swoop lounge relax sunbathe bask wade splash float board "
    "load unload stop start begin end wear dress sign label place leave lay station arrange scatter "
    "spread spill pour drip park lock chain tether hitch leash rope crowd assemble congregate line seat "
    "squeeze wedge trap stow store keep bury shelter emerge appear pop poke protrude extend tower loom "
    "overlook overhang reflect decorate illuminate light compete battle bask camp picnic dine drape "
    "sprawl slump slouch recline perch balance bat throw pitch type text call surf snowboard skateboard "
    "kiteboard bike cycle motor tow haul drag shop browse inspect examine touch grab grip clutch cradle "
    "blow celebrate converse chat discuss argue guard patrol direct operate repair bounce juggle shoot "
    "dunk dribble serve swing golf fish hunt dig rake shovel mow paint photograph film shave groom milk "
    "contain belong lurk loiter linger meander plant squirm wriggle slither scamper prowl doze snooze "
    "snore rummage forage peck nibble munch devour yawn shiver teeter wobble spin twirl tumble dive "
    "plunge swing cling clamber scramble huddle depict say"
)
_IRREGULAR = {
    "stand": "stood",
    "sit": "sat",
    "lie": "lay lain lying laying",
    "lay": "laid",
    "hang": "hung",
    "fly": "flew flown",
    "hide": "hid hidden",
    "sleep": "slept",
    "run": "ran running",
    "hold": "held",
    "rise": "rose risen",
    "put": "putting",
    "set": "setting",
    "see": "seen seeing",
    "find": "found",
    "grow": "grew grown",
    "eat": "ate eaten",
    "drink": "drank",
    "read": "read",
    "write": "wrote written",
    "cut": "cutting",
    "feed": "fed",
    "catch": "caught",
    "bring": "brought",
    "take": "took taken",
    "make": "made",
    "do": "done",
    "get": "getting",
    "give": "gave given",
    "sell": "sold",
    "buy": "bought",
    "speak": "spoke",
    "sing": "sang",
    "fight": "fought",
    "bite": "bit bitten",
    "stick": "stuck",
    "leave": "left",
    "keep": "kept",
    "throw": "threw thrown",
    "wear": "wore worn",
    "go": "went gone",
    "drive": "drove driven",
    "swim": "swam",
    "ride": "rode ridden",
    "come": "came",
    "fall": "fell fallen",
    "swing": "swung",
    "build": "built",
    "draw": "drew drawn",
    "hit": "hitting",
    "spread": "spreading",
    "begin": "began",
    "tie": "tying tied",
    "lead": "led",
    "dig": "dug",
    "shoot": "shot",
    "kneel": "knelt",
    "bend": "bent",
    "light": "lit",
    "blow": "blew blown",
    "stow": "stowed",
    "string": "strung",
    "shine": "shone",
    "cling": "clung",
    "spin": "spun",
    "leap": "leapt",
    "have": "having",
    "bat": "batting",
    "say": "said",
}
_DOUBLING = _set(
    "sit put set get cut run hit stop swim nap wrap pet hop step jog squat hug trot fit pin dig wag drop "
    "dip prop trap tip pop chat grab grip shop drag bat skip ship tug slip scrub plan spin nod hum rub "
    "beg begin strap slam sip mop clap tap"
)


def _forms(verb: str) -> dict[str, str]:
    """Inflected forms of ``verb``, each with its kind: base, s, ing or ed."""
    stem = verb[:-1] if verb.endswith("e") and not verb.endswith(("ee", "ie")) else verb
    if verb in _DOUBLING:
        stem = verb + verb[-1]
    y = verb.endswith("y") and verb[-2] not in "aeiou"
    third = (
        verb[:-1] + "ies" if y else verb + ("es" if verb.endswith(("s", "sh", "ch", "x", "o", "z")) else "s")
    )
    forms = {verb: "base", third: "s", stem + "ing": "ing", (verb[:-1] + "i" if y else stem) + "ed": "ed"}
    for form in _IRREGULAR.get(verb, "").split():
        forms[form] = "ing" if form.endswith("ing") else "ed"
    return forms


VERBS: dict[str, str] = {}
"""Each inflected form and the verb it belongs to."""

VERB_FORMS: dict[str, str] = {}
"""Each inflected form and its kind: base, s, ing or ed."""

for _verb in " ".join((_OTHER, LOOKING, MOVING, HOVERING, CARRYING, RIDING)).split():
    for _form, _kind in _forms(_verb).items():
        VERBS.setdefault(_form, _verb)
        VERB_FORMS.setdefault(_form, _kind)
