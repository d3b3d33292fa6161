"""Kinds of quotes with the verdict that each must get, cut from any text: what the fuzzer and the tests draw from.

A kind takes the words of a text and gives (text, quote), or None where this text has nothing of the kind. Kinds are
written for what a quote says, not for how it is looked for: words are runs between blanks.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import NamedTuple

Pair = tuple[str, str] | None
Kind = Callable[[random.Random, str], Pair]

_WORD = re.compile(r"[^\W\d_]{2,}")
NUMBERS = ("50 kg", "150 kg", "100", "9.5 %", "99.5 %", "1,000", "3/4", "−5 °C", "12:30", "$40", "2.75", "60%", "10^3")
NEGATIONS = ("not", "never", "doesn't", "cannot", "without", "didn’t", "no longer", "nicht", "não")
STRANGE = ("zyxq", "qwrtl", "vbnmo")


def run(rng: random.Random, text: str, low: int = 3, high: int = 9) -> str | None:
    """A run of whole words as it stands in the text, none of its numbers apart from a unit that follows."""
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    size = rng.randint(low, high)
    if len(spans) < size:
        return None
    at = rng.randrange(len(spans) - size + 1)
    quote = text[spans[at][0] : spans[at + size - 1][1]]
    before = text[: spans[at][0]].split()[-1:] or [""]
    if re.search(r"\d\W*$", quote) or re.search(r"\d\W*$", before[0]) or not re.search(r"[^\W\d_]{5}", quote):
        return None
    return None if is_elided(quote) else quote


def is_elided(quote: str) -> bool:
    """Whether a quote holds what may be read as an ellipsis."""
    return "…" in quote or re.search(r"\.\s*\.\s*\.", quote) is not None


def whole_words(rng: random.Random, text: str) -> Pair:
    quote = run(rng, text)
    return (text, quote) if quote else None


def other_case(rng: random.Random, text: str) -> Pair:
    quote = run(rng, text)
    return (text, rng.choice([str.upper, str.lower, str.title])(quote)) if quote and quote.isascii() else None


def other_blanks(rng: random.Random, text: str) -> Pair:
    quote = run(rng, text)
    return (text, re.sub(r"\s+", lambda _: rng.choice(["  ", "\n", "\u00a0", " "]), quote)) if quote else None


def other_apostrophe(rng: random.Random, text: str) -> Pair:
    quote = run(rng, text)
    inner = quote and re.search(r"(?<=[^\W_])['’](?=[^\W_])", quote)
    if not quote or not inner:
        return None
    other = "’" if inner[0] == "'" else "'"
    return text, quote[: inner.start()] + other + quote[inner.end() :]


def other_hyphen(rng: random.Random, text: str) -> Pair:
    """A hyphen between letters changed, or put for a blank between two words of the text."""
    quote = run(rng, text)
    inner = quote and re.search(r"(?<=[^\W\d_])-(?=[^\W\d_])", quote)
    if not quote or not inner:
        return None
    return text, quote[: inner.start()] + rng.choice([" ", "‐", "–", ""]) + quote[inner.end() :]


def closing_stop(rng: random.Random, text: str) -> Pair:
    quote = run(rng, text)
    return (text, quote.rstrip(".,;:!?") + rng.choice([".", ",", ";", "…"])) if quote else None


def quotation_marks(rng: random.Random, text: str) -> Pair:
    quote = run(rng, text)
    return (text, rng.choice(["“{}”", '"{}"', "«{}»", "'{}'"]).format(quote)) if quote else None


def split_word(rng: random.Random, text: str) -> Pair:
    """A word of the text written in two by the rater: pho tosynthesis."""
    quote = run(rng, text)
    return (text, _split(rng, quote)) if quote and _long(quote) else None


def split_in_text(rng: random.Random, text: str) -> Pair:
    """A word that the author wrote in two, and the rater in one."""
    quote = run(rng, text)
    if not quote or not _long(quote) or text.count(quote) != 1:
        return None
    return text.replace(quote, _split(rng, quote)), quote


def joined_words(rng: random.Random, text: str) -> Pair:
    """Two words written as one that is none: makessugar."""
    quote = run(rng, text)
    pairs = quote and list(re.finditer(r"(?<=[^\W\d_]{5})\s(?=[^\W\d_]{5})", quote))
    if not quote or not pairs or is_negated(quote):
        return None
    gap = rng.choice(pairs)
    return text, quote[: gap.start()] + quote[gap.end() :]


def short_elision(rng: random.Random, text: str) -> Pair:
    """Two parts of one sentence with a few words between them left out."""
    quote = run(rng, text, 8, 14)
    words = quote.split() if quote else []
    if not quote or any(word[-1] in ".!?:;" for word in words) or is_negated(" ".join(words[3:-3])):
        return None
    if re.search(r"\d", " ".join(words[2:4] + words[-4:-2])):
        return None
    return text, f"{' '.join(words[:3])} {rng.choice(['…', '...', '[...]'])} {' '.join(words[-3:])}"


def cut_first_word(rng: random.Random, text: str) -> Pair:
    """Begins inside a word: possible in impossible."""
    quote = run(rng, text)
    first = quote and _WORD.match(quote)
    if not quote or not first or len(first[0]) < 3 or first.end() - first.start() < 3:
        return None
    return _unless_whole(text, quote[rng.randint(1, len(first[0]) - 1) :])


def cut_last_word(rng: random.Random, text: str) -> Pair:
    quote = run(rng, text)
    last = quote and re.search(r"[^\W\d_]{3,}$", quote)
    if not quote or not last:
        return None
    return _unless_whole(text, quote[: -rng.randint(1, len(last[0]) - 1)])


def half_words(rng: random.Random, text: str) -> Pair:
    """A few characters around a blank: e t."""
    gaps = [m.start() for m in re.finditer(r"(?<=[^\W\d_]{2})\s(?=[^\W\d_]{2})", text)]
    if not gaps:
        return None
    gap = rng.choice(gaps)
    return _unless_whole(text, text[gap - 1 : gap + 2])


def cut_number(rng: random.Random, text: str) -> Pair:
    """A number less its first or last digits, its sign, its decimals or its unit."""
    number, cut = rng.choice(CUT_NUMBERS)
    put = _put_in(rng, text, number)
    return put and (put.text, " ".join([*put.before, cut] if number.startswith(cut) else [cut, *put.after]))


CUT_NUMBERS = (
    ("150 kg", "50 kg"),
    ("50 kg", "50 k"),
    ("50 kg", "50"),
    ("100", "10"),
    ("99.5 %", "9.5 %"),
    ("99.5 %", "99.5"),
    ("99.5 %", "99"),
    ("99.5%", "5%"),
    ("1,000", "1"),
    ("1,000", "000"),
    ("3/4", "4"),
    ("3/4", "3"),
    ("−5 °C", "5 °C"),
    ("-5 °C", "5 °C"),
    ("-5 °C", "-5"),
    ("12:30", "30"),
    ("12:30", "12"),
    ("$40", "40"),
    ("2.75", "2"),
    ("2.75", "75"),
    ("60%", "60"),
    ("10^3", "10"),
    ("H2O", "H2"),
    ("3-5", "5"),
    (">20", "20"),
    ("< 20", "20"),
    ("pH7.4", "4"),
    ("pH7.4", "pH7"),
    ("Rs1,500", "500"),
    ("₹500", "500"),
    ("v2.75", "75"),
    ("v2.75", "v2"),
    ("12 500 km", "500 km"),
    ("12\u00a0500", "12"),
    ("3 \u2009400", "400"),
    ("1 2/3", "2/3"),
    ("1.5e-5", "1.5e"),
    ("2×10⁻³", "10⁻³"),
    ("10⁻³", "10"),
    ("x²", "x"),
    ("x^2", "x"),
    ("v_12", "12"),
    ("5 per cent", "5"),
)


def cut_hidden(rng: random.Random, text: str) -> Pair:
    """Begins or ends where something that is not seen, or the end of a line, divides a word."""
    quote = run(rng, text, 4, 8)
    words = quote.split() if quote else []
    long = [at for at, word in enumerate(words[1:-1], 1) if re.fullmatch(r"[a-z]{6,}", word)]
    if not quote or not long or text.count(quote) != 1:
        return None
    at = rng.choice(long)
    cut = rng.randint(2, len(words[at]) - 2)
    low, high = words[at][:cut], words[at][cut:]
    stored = " ".join([*words[:at], low + rng.choice(DIVIDERS) + high, *words[at + 1 :]])
    said = [high, *words[at + 1 :]] if rng.random() < 1 / 2 else [*words[:at], low]
    if not _unless_whole(text, " ".join(said)):
        return None
    return text.replace(quote, stored), " ".join(said)


DIVIDERS = (
    "\u00ad",
    "\u200b",
    "\u200c",
    "\u200d",
    "\u2060",
    "\ufeff",
    "\u00ad\n",
    "-\n",
    "\u2010\r\n",
    "\u00ad ",
    "\u180e",
)


def whole_hidden(rng: random.Random, text: str) -> Pair:
    """A word that something not seen, or the end of a line, divides in the text; in the quote it is whole."""
    quote = run(rng, text, 4, 8)
    long = list(re.finditer(r"(?<!\S)[a-z]{6,}(?!\S)", quote)) if quote else []
    if not quote or not long or text.count(quote) != 1:
        return None
    word = rng.choice(long)
    cut = rng.randint(word.start() + 2, word.end() - 2)
    return text.replace(quote, quote[:cut] + rng.choice(DIVIDERS) + quote[cut:]), quote


def cut_mark(rng: random.Random, text: str) -> Pair:
    """A word less the negation that hangs on it by a mark: (in)correct."""
    prefix, mark = (
        rng.choice(["in", "un", "non", "dis", "im"]),
        rng.choice(["({})", "{}-", "{}_", "*{}*", "{}- ", "{}·"]),
    )
    put = _put_in(rng, text, mark.format(prefix) + "zyxable")
    return put and (put.text, " ".join(["zyxable", *put.after]))


def _exchanged(pairs: tuple[tuple[str, str], ...]) -> Kind:
    """One of a pair put into the text, and the other into the quote."""

    def kind(rng: random.Random, text: str) -> Pair:
        pair = rng.choice(pairs)
        stored, said = pair if rng.random() < 1 / 2 else pair[::-1]
        put = _put_in(rng, text, stored)
        return put and (put.text, " ".join([*put.before, said, *put.after]))

    return kind


VARIANTS = (
    ("CO₂", "CO2"),
    ("H₂O", "H2O"),
    ("Fe₂(SO₄)₃", "Fe2(SO4)3"),
    ("Vₘₐₓ", "Vmax"),
    ("Ca²⁺", "Ca2+"),
    ("10²", "10^2"),
    ("x⁻¹", "x^-1"),
    ("ﬁnal ﬂow", "final flow"),
    ("ＡＴＰ", "ATP"),
    ("１２", "12"),
    ("𝑥", "x"),
    ("5 ㎏", "5 kg"),
    ("20 ℃", "20 °C"),
)
"""Signs that are variants of letters and digits, and these."""


OTHER_SIGNS = (
    ("10²", "102"),
    ("x²", "x2"),
    ("2ⁿ", "2n"),
    ("10⁻³", "10-3"),
    ("101₂", "1012"),
    ("2½", "21/2"),
    ("５²", "52"),
    ("①0", "10"),
    ("si", "sí"),
    ("el", "él"),
    ("year", "yéar"),
    ("3 m²", "3 m2"),
)
"""Signs that look alike and say something else: 10² is no 102."""


OTHER_WORDS = (
    *(("were", "we’re"), ("well", "we'll"), ("its", "it's"), ("ill", "I’ll"), ("wed", "we'd"), ("shed", "she'd")),
    *(("resent", "re-sent"), ("reform", "re-form"), ("recover", "re-cover"), ("unionized", "un-ionized")),
    *(("infamous", "in famous"), ("apart", "a part"), ("atypical", "a typical"), ("abiotic", "a biotic")),
    *(("therapist", "the rapist"), ("together", "to get her"), ("maybe", "may be"), ("into", "in to")),
    *(("invalid", "in valid"), ("insoluble", "in soluble"), ("infamus", "in famus"), ("uncaged", "un caged")),
    *(("shell", "she'll"), ("hell", "he’ll"), ("manslaughter", "man slaughter"), ("disable", "dis able")),
    *(("notable", "not able"), ("nowhere", "now here")),
    *(("sugarfree", "sugar free"), ("helpless", "help less"), ("overlook", "over look"), ("xy", "x-y")),
)
"""Other words of the same letters."""


SLIPS = (
    *(("dont", "don't"), ("thats", "that’s"), ("theyre", "they're"), ("doesnt", "doesn't"), ("cannot", "can not")),
    *(("alot", "a lot"), ("everytime", "every time"), ("aminoacids", "amino acids"), ("chloro phyll", "chlorophyll")),
)
"""Slips, and how they are written well."""


def foreign_negation(rng: random.Random, text: str) -> Pair:
    """A negation left out in a language of which nothing is known, alone or within an answer."""
    sentence = rng.choice(FOREIGN_NEGATIONS)
    words = sentence.replace("|", " ").split()
    first, _, last = sentence.split("|")
    between = rng.choice(
        ["{}", f"{{}} {text}", f"{text} {{}}", f"{text[: len(text) // 2]}. {{}}. {text[len(text) // 2 :]}"]
    )
    return between.format(" ".join(words)), f"{first.strip()} {rng.choice(['…', '...', '[...]'])} {last.strip()}"


FOREIGN_NEGATIONS = (
    "rostlina za tmy |vůbec neroste| a přitom spotřebuje kyslík",  # Czech
    "voda v nádobě |není| teplejší než okolní vzduch",
    "kasvi kasvaa pimeässä |ei koskaan| nopeammin kuin valossa",  # Finnish
    "kasvin lehdet |eivät| tarvitse lainkaan valoa",
    "planta respiră noaptea |dar nu| produce oxigen în timpul zilei",  # Romanian
    "apa din vas |nu este| mai caldă decât aerul",
    "النبات في الظلام |لا| ينمو بسرعة كبيرة",  # Arabic
    "الماء في الإناء |ليس| أدفأ من الهواء",
    "पौधे को अंधेरे में |नहीं| प्रकाश की ज़रूरत होती है",  # Hindi
    "पानी हवा से |नहीं| ज़्यादा गरम है",
    "cây trong bóng tối |không| cần ánh sáng mặt trời",  # Vietnamese
    "nước trong bình |chưa bao giờ| nóng hơn không khí",
    "roślina w ciemności |wcale nie| rośnie szybciej",  # Polish
    "a növény a sötétben |egyáltalán nem| nő gyorsabban",  # Hungarian
    "bitki karanlıkta |hiçbir zaman| daha hızlı büyür değil",  # Turkish
    "tanaman itu |tidak| membutuhkan cahaya matahari",  # Indonesian
    "το φυτό στο σκοτάδι |δεν| μεγαλώνει γρήγορα",  # Greek
    "рослина у темряві |зовсім не| росте швидше ніж на світлі",  # Ukrainian
    "הצמח בחושך |לא| גדל מהר יותר מאשר באור",  # Hebrew
    "la planta a les fosques |mai no| creix més de pressa",  # Catalan
    "mmea gizani |haukui| haraka kuliko kwenye mwanga",  # Swahili
    "plantan í myrkri |vex aldrei| hraðar en í ljósi",  # Icelandic
)


def split_number(rng: random.Random, text: str) -> Pair:
    """Digits that stand apart in the text put together, or the other way round."""
    number, said = rng.choice([("1 0", "10"), ("10", "1 0"), ("3.5", "35"), ("3.5", "3 5"), ("2,5", "25"), ("-7", "7")])
    put = _put_in(rng, text, number)
    return put and (put.text, " ".join([*put.before, said, *put.after]))


def absent_fragment(rng: random.Random, text: str) -> Pair:
    """Fragments of the text around a short one that stands nowhere in it."""
    quote = run(rng, text, 6, 10)
    strange = rng.choice([*STRANGE, "99", "7", "zq", "%"])
    if not quote or strange in text:
        return None
    words = quote.split()
    return text, f"{' '.join(words[:3])} … {strange} … {' '.join(words[-3:])}"


def elided_negation(rng: random.Random, text: str) -> Pair:
    quote = run(rng, text, 6, 9)
    if not quote or text.count(quote) != 1 or re.search(r"\d", quote):
        return None
    words = quote.split()
    stored = text.replace(quote, " ".join([*words[:3], rng.choice(NEGATIONS), *words[3:]]))
    first, second = " ".join(words[:3]), " ".join(words[3:])
    if stored.count(first) != 1 or stored.count(second) != 1:
        return None
    return stored, f"{first} … {second}"


def far_elision(rng: random.Random, text: str) -> Pair:
    """The beginning of a text and its end, more than sixty words and two sentences apart."""
    words = text.split()
    if len(words) < 80:
        return None
    first, last, between = " ".join(words[:3]), " ".join(words[-3:]), " ".join(words[3:-3])
    if len(re.findall(r"[.!?]\s", between)) < 2:
        return None
    if any(_letters(text).count(_letters(end)) > 1 for end in (first, last)):
        return None
    return (text, f"{first} … {last}") if not is_elided(first + " | " + last) else None


def reversed_fragments(rng: random.Random, text: str) -> Pair:
    quote = run(rng, text, 8, 12)
    if not quote or text.count(quote) != 1:
        return None
    words = quote.split()
    first, last = " ".join(words[:4]), " ".join(words[-4:])
    stored = " ".join(text.split())
    if stored.find(first, stored.find(last)) >= 0 or stored.count(last) != 1:
        return None
    return text, f"{last} … {first}"


def changed_word(rng: random.Random, text: str) -> Pair:
    quote = run(rng, text, 4, 9)
    if not quote:
        return None
    words = quote.split()
    words[rng.randrange(1, len(words) - 1)] = rng.choice(STRANGE)
    return text, " ".join(words)


def dropped_word(rng: random.Random, text: str) -> Pair:
    quote = run(rng, text, 5, 9)
    if not quote:
        return None
    words = quote.split()
    del words[rng.randrange(1, len(words) - 1)]
    left = " ".join(words)
    is_there = _letters(left) in _letters(text) or not _WORD.search(left)
    return None if is_there else (text, left)


def frequent_word(rng: random.Random, text: str) -> Pair:
    """One word that the text says again and again."""
    words = re.findall(r"(?<!\w)[^\W\d_]{5,}(?!\w)", text.lower())
    common = sorted({word for word in words if words.count(word) >= 4 and words.count(word) > len(text.split()) / 100})
    return (text, rng.choice(common)) if common else None


def rare_word(rng: random.Random, text: str) -> Pair:
    words = re.findall(r"(?<![^\s(])[^\W\d_]{5,}(?![^\s.,;:)])", text)
    alone = [word for word in words if len(re.findall(re.escape(word), text, re.IGNORECASE)) == 1]
    return (text, rng.choice(alone)) if alone else None


def _by_name(*kinds: Kind) -> dict[str, Kind]:
    return {kind.__name__: kind for kind in kinds}


HONEST = _by_name(
    whole_words,
    other_case,
    other_blanks,
    other_apostrophe,
    other_hyphen,
    closing_stop,
    quotation_marks,
    split_word,
    split_in_text,
    joined_words,
    short_elision,
    rare_word,
    whole_hidden,
) | {"plain_signs": _exchanged(VARIANTS), "slip": _exchanged(SLIPS)}
"""Must be found."""

FORGED = _by_name(
    cut_first_word,
    cut_last_word,
    half_words,
    cut_number,
    split_number,
    absent_fragment,
    elided_negation,
    far_elision,
    reversed_fragments,
    changed_word,
    dropped_word,
    frequent_word,
    cut_hidden,
    cut_mark,
    foreign_negation,
) | {"other_sign": _exchanged(OTHER_SIGNS), "other_words": _exchanged(OTHER_WORDS)}
"""Must be refused."""

_NEGATED = re.compile(
    r"\b(?:not?|nor|never|none|neither|without|cannot|can|no|nothing|nobody|nowhere|unless|except|instead|hardly|barely|"
    r"rarely|seldom|scarcely|false\w*|wrong\w*|incorrect\w*|untrue|fail\w*|lack\w*|den\w+|ne|pas|sans|sin|ni|non|nie|"
    r"mai|nada|nem|sem|não|nunca|jamais|nenhum\w*|ninguém|tampouco)\b|n['’`´ ]?t\b",
    re.IGNORECASE,
)


def is_negated(text: str) -> bool:
    """Whether a text says no in some way: wider than the rule, so that no kind mistakes one verdict for another."""
    return _NEGATED.search(text) is not None


class _Put(NamedTuple):
    """A text with something put in between two of its words, and the two words before and after that."""

    text: str
    before: list[str]
    after: list[str]


def _put_in(rng: random.Random, text: str, what: str) -> _Put | None:
    words = text.split()
    if len(words) < 6:
        return None
    at = rng.randrange(2, len(words) - 2)
    before, after = words[at - 2 : at], words[at : at + 2]
    # What else says a number, or leaves something out, would change the verdict.
    if re.search(r"\d|…|\.\s*\.", " ".join([*before, *after])):
        return None
    return _Put(" ".join([*words[:at], what, *words[at:]]), before, after)


def _letters(text: str) -> str:
    return "".join(c for c in text.lower() if c.isalnum())


def _long(quote: str) -> bool:
    return any(not is_negated(word) for word in re.findall(r"(?<!\S)[^\W\d_]{4,}(?!\S)", quote))


def _split(rng: random.Random, quote: str) -> str:
    """The quote with one long word in two, of which one is no word: it has no vowel."""
    words = [m for m in re.finditer(r"(?<!\S)[^\W\d_]{4,}(?!\S)", quote) if not is_negated(m[0])]
    word = rng.choice(words)
    places = [
        at
        for at in range(word.start() + 1, word.end())
        if not _VOWEL.search(quote, word.start(), at) or not _VOWEL.search(quote, at, word.end())
    ]
    at = rng.choice(places or [word.end() - 1])
    return f"{quote[:at]} {quote[at:]}"


_VOWEL = re.compile(r"[^bcdfghjklmnpqrstvwxz]", re.IGNORECASE)


def _unless_whole(text: str, quote: str) -> Pair:
    """The pair, unless the cut quote stands in the text between blanks or marks as well."""
    stands = re.search(rf"(?<![^\W_]){re.escape(quote)}(?![^\W_])", text, re.IGNORECASE)
    return None if stands or is_elided(quote) else (text, quote)
