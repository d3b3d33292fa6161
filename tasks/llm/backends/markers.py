"""How texts spell the control tokens of chat models, and how a spelling is broken so that it stays text.

For servers, whose tokenizer is not known here. Names and shapes are those of the families in use: ChatML and Qwen,
Llama, Mistral, Gemma, Phi, DeepSeek, GLM, EXAONE, Yi, Baichuan, InternLM, Command, Falcon, Granite, OLMo, SmolLM, T5,
BERT, gpt-oss, Kimi, MiniMax, Nemotron, Jamba, StarCoder, Hunyuan, ERNIE, Seed, MiniCPM, TeleChat. Tags of HTML, types
such as `List<int>` and citations such as [1] are none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, chain, pairwise

_NAMES = (
    "s|bos|eos|pad|unk|mask|sep|cls|sop|eop|eod|eot|eom|eoh|eoa|eosys|think|thinking|thought|reasoning|answer|tool|tools"
    "|user|assistant|system|human|bot|ai|role|function|observation|image|img|video|audio|speech|box|ref|quad|point|co"
    "|scratchpad|filename|filepath|reponame|imagehere|2mass|用户|fim[-_]\\w{1,20}|(?:global|commit|end|start|im)-\\w{1,20}"
    "|(?:unused|loc|seg|extra|reserved|special|img|image|audio|video|mask|pad|dummy)\\d{1,5}"
)
"""Between < and >, in any case of letters."""
_HTML = "BR|HR|LI|UL|OL|DL|DT|DD|TD|TR|TH|EM|TT|DIV|SPAN|HTML|HEAD|BODY|TABLE|FONT|CODE|STRONG|CENTER|TITLE"
_SHAPES = (
    r"<(?=\|)",
    rf"<(?=/?(?i:{_NAMES})>)",
    r"<(?=<?/?SYS>)",
    rf"<(?=/?(?!(?:{_HTML})>)[A-Z][A-Z0-9_]{{1,40}}>)",
    r"<(?=/?(?=\w{0,60}_)\w{2,60}(?<!_t)>)",  # size_t and its kin are types
    r"<(?=/?\w{1,20}: ?\w{1,40}>|/?dsml:)",
    r"<(?=[^\s<>|]{1,60}\|>)",
    r"\[(?=/?[A-Z]{3,40}(?:_[A-Z]{1,40})*(?:_?\d{1,6})?\]|[a-z]?MASK\]|@BOS@\]|multimodal\])",
    r"\[(?=(?:unused|extra_id_)\d{1,5}\]|(?:start|end)_header_id\])",
    r"\[(?=\|[^|\[\]\n]{1,40}\|\]|e~\[)",
    r"\](?=~!?b[\[\]]|!\w~\[|<\])",
    r">(?=>[A-Z]{3,20}<<)",
    r"\|(?=\|\|[A-Z_]{4,40}\|\|\||DSML\|)",
    r"/(?=no_?think)|(?<!\w)/(?=think\b)",
    r"(?m:^)#(?=## ?(?i:instruction|response|input|human|assistant|system|user) ?:)",
)
MARKERS = re.compile("|".join(_SHAPES))
"""The first character of each spelling."""
OPENERS = "<＜﹤[［﹇]］﹈>＞﹥|｜/／#＃﹟"
"""What spellings begin with, and what Unicode's compatibility forms (NFKC) make the same."""
SIGN = "\u200b"
_OPENER = re.compile(f"[{re.escape(OPENERS)}]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)
"""What a tokenizer's normaliser may take out, so that what stands around it meets."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Break:
    """Puts a sign after a spelling's first character, and takes it out again.

    A sign that stood there already gets a second one, so that `undone` gives back every text as it was.
    """

    sign: str = SIGN
    openers: str = OPENERS
    """First characters, behind which `undone` looks for the sign."""

    @cached_property
    def _signed(self) -> re.Pattern[str]:
        # A model may write the sign as JSON spells it.
        spelled = "".join(rf"\\u{ord(sign):04x}" for sign in self.sign)
        return re.compile(f"([{re.escape(self.openers)}])(?:{self.sign}|(?i:{re.escape(spelled)}))")

    def into(self, text: str, places: Iterable[int]) -> str:
        """A text with the sign behind the characters at these places."""
        signed = (match.start() for match in self._signed.finditer(text)) if self.sign in text else ()
        cuts = [0, *(place + 1 for place in sorted({*places, *signed})), len(text)]
        return self.sign.join(text[begin:end] for begin, end in pairwise(cuts))

    def undone(self, text: str) -> str:
        """A text, or a part of it that a model repeats, as it was."""
        return self._signed.sub(r"\1", text)

    def undone_pieces(self, pieces: Sequence[str]) -> list[str]:
        """The pieces that a text is cut into, which make up that text `undone`."""
        gone = set[int]()
        for match in self._signed.finditer("".join(pieces)):
            gone.update(range(match.start() + 1, match.end()))
        begins = accumulate((len(piece) for piece in pieces), initial=0)
        return [_without(piece, begin, gone) for piece, begin in zip(pieces, begins, strict=False)]


BREAK = Break()


def without_half_pairs(text: str) -> str:
    """A text without halves of surrogate pairs, which no engine reads: each becomes U+FFFD."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def markers(text: str) -> list[int]:
    """Where control tokens begin, as the text stands and as a normaliser may read it; time linear in its length."""
    if _OPENER.search(text) is None:
        return []
    if unicodedata.is_normalized("NFKC", text) and _UNSEEN.search(text) is None:
        return [match.start() for match in MARKERS.finditer(text)]
    read = [_read(sign) for sign in text]
    places = list(chain.from_iterable([place] * len(letters) for place, letters in enumerate(read)))
    return [places[match.start()] for match in MARKERS.finditer("".join(read))]


def _without(piece: str, begin: int, gone: Set[int]) -> str:
    """A piece that begins at a place of a text, without the characters at the places gone."""
    return "".join(letter for place, letter in enumerate(piece, begin) if place not in gone)


@lru_cache(maxsize=4096)
def _read(sign: str) -> str:
    """A character as a normaliser may read it."""
    return "" if _UNSEEN.match(sign) else unicodedata.normalize("NFKC", sign)
