"""Control tokens of chat models: texts that hold none, by their spelling and by a tokenizer's ids.

Templates join a request's messages to one text, in which a control token counts whoever wrote it: `<|im_start|>system`
in a response would open a turn of its own. What reads like one gets an invisible character (U+200B) after its first
one, so that it stays text, and what the model quotes of it is restored.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, chain, pairwise
from typing import Any

from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.text.digest import without_half_pairs

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
"""What a tokenizer's normaliser may take out, so that the characters around it meet."""


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
        text = "".join(pieces)
        gone = {place for match in self._signed.finditer(text) for place in range(match.start() + 1, match.end())}
        edges = pairwise(accumulate((len(piece) for piece in pieces), initial=0))
        return ["".join(text[place] for place in range(*edge) if place not in gone) for edge in edges]


BREAK = Break()


def messages(request: Request) -> list[dict[str, str]]:
    """The messages as role and content without control tokens; `as_written` restores what the model quotes."""
    return [{"role": message.role, "content": plain(message.content)} for message in request.messages]


@lru_cache(maxsize=512)  # a rubric opens many requests, and several are about one response
def plain(text: str) -> str:
    """A text in which nothing reads like a control token, see `messages`."""
    text = without_half_pairs(text)
    return BREAK.into(text, markers(text))


def as_written(reply: Reply, broken: Break = BREAK) -> Reply:
    """A reply with control tokens as the student wrote them, so that quotes match; its tokens make up its text."""
    if reply.text is None or (text := broken.undone(reply.text)) == reply.text:
        return reply
    tokens = reply.token_logprobs
    if tokens is not None:
        pieces = broken.undone_pieces([token.token for token in tokens])
        tokens = [token._replace(token=piece) for token, piece in zip(tokens, pieces, strict=True)]
    return replace(reply, text=text, token_logprobs=tokens)


Turn = Mapping[str, str]
"""Role and content of a message."""
_SIGNS = (SIGN, "\u00b7")
"""What breaks a control token: nothing to be seen, or a dot for a tokenizer that takes out what is not seen."""
_ROUNDS, _GENTLE = 12, 8
"""How often a text is broken further, since a broken token can show another; and how often behind first characters."""
_BLANK = " \t\r\n▁ĠĊ"
_PIECE = re.compile(r"<(?!0x)[^\s<>]{1,60}>|\[[^\s\[\]]{1,60}\]")
_ROLE = re.compile(r"(?:#+ )?\S+ ?[:：]$")
_UNKNOWN = "\U0010fffd 𒈙 ꙮ ⍰"
"""Characters of which a vocabulary without bytes will not know all."""
_CONTENT = "-0-"


class ControlTokensError(BackendError):
    """A text that cannot be kept from becoming control tokens."""


def control_tokens(tokenizer: Any) -> dict[int, str]:
    """Id → text of every token that text must not become: all added ones, special or not, and what the vocabulary
    holds of the spellings that `markers` knows.

    Left out are white space; words and single characters that are not special, which are vocabulary; and the token for
    unknown characters, where a character can be unknown.
    """
    special = dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    decoder = getattr(tokenizer, "added_tokens_decoder", {})
    special |= {token_id: str(token) for token_id, token in decoder.items() if token.special}
    added = {
        token_id: bare
        for text, token_id in tokenizer.get_added_vocab().items()
        if len(bare := text.strip(_BLANK)) > 1 and any(unicodedata.category(letter)[0] in "PS" for letter in bare)
    }
    pieces = {token_id: text for text, token_id in tokenizer.get_vocab().items() if _is_marker(text.strip(_BLANK))}
    texts = {token_id: text.strip(_BLANK) for token_id, text in (pieces | added | special).items()}
    unknown = set(tokenizer(_UNKNOWN, add_special_tokens=False)["input_ids"])
    return {token_id: text for token_id, text in texts.items() if text and token_id not in unknown}


class Structure:
    """The control tokens of one tokenizer and what its chat template writes around contents."""

    def __init__(self, tokenizer: Any, name: str) -> None:
        """name: of the model, for errors. BackendError for a tokenizer whose control tokens nothing breaks.

        `broken` takes out of a reply what was put into the text.
        """
        self._tokenizer, self._name = tokenizer, name
        self._tokens = control_tokens(tokenizer)
        self._skeletons: dict[tuple[tuple[str, bool], ...], list[int]] = {}
        begun = {text[0] for text in (*self._tokens.values(), *self._literals)}
        self.broken = Break(self._sign(), "".join(dict.fromkeys([*OPENERS, *sorted(begun)])))

    def plain(self, text: str) -> str:
        """A text none of whose tokens is a control token; `broken.undone` gives back what it was.

        ControlTokensError where no such text is found.
        """
        softened = self._lightly(text)
        for number in range(_ROUNDS):
            spans = self._spans(softened)
            if not spans:
                return softened
            softened = self._cut(softened, spans, everywhere=number >= _GENTLE)
        raise ControlTokensError(f"'{self._name}' reads control tokens in a text, whatever breaks them: {text[:60]!r}")

    def ids(self, text: str) -> list[int]:
        """The tokens of a text, nothing added and no control token among them."""
        return self._ids_of(self.plain(text))

    def plain_turns(
        self, turns: Sequence[Turn], render: Callable[[list[Turn]], list[int]]
    ) -> tuple[list[Turn], list[int]]:
        """The turns with contents that stay text, and their tokens.

        render: turns → tokens of the whole prompt. The control tokens are those that the template writes around
        contents that hold none: ControlTokensError where they are not.
        """
        key = tuple((turn["role"], bool(turn["content"].strip())) for turn in turns)
        if key not in self._skeletons:
            harmless = [{"role": role, "content": "x" if is_said else ""} for role, is_said in key]
            self._skeletons[key] = self._controls(render(list(harmless)))
        for soften in (self._lightly, self.plain):
            softened: list[Turn] = [{**turn, "content": soften(turn["content"])} for turn in turns]
            ids = render(softened)
            if self._controls(ids) == self._skeletons[key]:
                return softened, ids
        raise ControlTokensError(f"'{self._name}' reads control tokens where a text meets its chat template")

    def messages(self, turns: Sequence[Turn]) -> list[Turn]:
        """`plain_turns` of the tokenizer's own chat template; contents alone where it has none."""
        if getattr(self._tokenizer, "chat_template", None) is None:
            return [{**turn, "content": self.plain(turn["content"])} for turn in turns]
        return self.plain_turns(turns, lambda softened: self._ids_of(self._rendered(softened)))[0]

    def _controls(self, ids: Iterable[int]) -> list[int]:
        return [token_id for token_id in ids if token_id in self._tokens]

    def _rendered(self, turns: Sequence[Turn]) -> str:
        return str(self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))

    def _ids_of(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    @cached_property
    def _literals(self) -> list[str]:
        """What the template writes or looks for: control tokens, and plain text such as `[INST]` and `USER:`."""
        template = getattr(self._tokenizer, "chat_template", None) or ""
        source = template if isinstance(template, str) else "\n".join(map(str, template.values()))
        written = [text for text in self._tokens.values() if text in source]
        return [*written, *filter(_is_marker, _PIECE.findall(source)), *(self._around() if source else ())]

    def _around(self) -> list[str]:
        """What a rendered prompt holds around contents: `<|user|>`, and words such as `USER:` or `### Response:`."""
        from jinja2 import TemplateError

        for roles in (("system", "user"), ("user",)):
            turns = [{"role": role, "content": _CONTENT} for role in roles]
            try:
                text = self._rendered(turns)
            except TemplateError:  # some refuse a system message
                continue
            opened = (_ROLE.search(piece.rstrip()) for piece in text.split(_CONTENT))
            return [*filter(_is_marker, _PIECE.findall(text)), *(match[0] for match in opened if match)]
        return []

    def _lightly(self, text: str) -> str:
        """A text in which the template's own words are broken; control tokens that it does not write may be left."""
        text, literal = without_half_pairs(text), self._literal
        return self.broken.into(text, (match.start() for match in literal.finditer(text)) if literal else ())

    @cached_property
    def _literal(self) -> re.Pattern[str] | None:
        texts = sorted({text for text in self._literals if len(text) > 1})
        begun = (f"{re.escape(text[0])}(?={re.escape(text[1:])})" for text in texts)
        return re.compile("|".join(begun)) if texts else None

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Where in a text its control tokens stand."""
        encoded = self._tokenizer(text, add_special_tokens=False)
        ids: list[int] = encoded["input_ids"]
        if self._tokens.keys().isdisjoint(ids):
            return []
        if getattr(encoded, "encodings", None):
            offsets = encoded.encodings[0].offsets
            return [span for token_id, span in zip(ids, offsets, strict=True) if token_id in self._tokens]
        spelled = "|".join(re.escape(self._tokens[token_id]) for token_id in set(self._controls(ids)))
        return [match.span() for match in re.finditer(spelled, text)] or [(0, len(text))]

    def _cut(self, text: str, spans: Sequence[tuple[int, int]], everywhere: bool) -> str:
        """A text with the sign behind the first character of each span, or behind all of them; a character that is a
        control token by itself becomes U+FFFD."""
        letters = list(text)
        for begin, end in spans:
            free = [place for place in range(begin, end - 1) if self.broken.sign not in text[place : place + 2]]
            places = sorted(free, key=lambda at: (text[at] not in self.broken.openers, text[at].isspace()))
            if not places:
                letters[begin:end] = ["\ufffd"] * (end - begin)
            for place in places if everywhere else places[:1]:
                letters[place] = text[place] + self.broken.sign
        return "".join(letters)

    def _sign(self) -> str:
        """What keeps every control token apart."""
        spelled = {token_id: text for token_id, text in self._tokens.items() if len(text) > 1}
        for sign in _SIGNS:
            apart = (self._ids_of(sign.join(text)) for text in spelled.values())
            if spelled.keys().isdisjoint(chain.from_iterable(apart)):
                return sign
        raise BackendError(f"nothing keeps the control tokens of '{self._name}' apart from text that reads like them")


def _is_marker(piece: str) -> bool:
    return _PIECE.fullmatch(piece) is not None and MARKERS.match(piece) is not None


# How texts spell the control tokens of chat models, and how a spelling is broken so that it stays text.


def markers(text: str) -> list[int]:
    """Where control tokens begin, as the text is and as a normaliser may read it; time linear in its length."""
    if _OPENER.search(text) is None:
        return []
    if unicodedata.is_normalized("NFKC", text) and _UNSEEN.search(text) is None:
        return [match.start() for match in MARKERS.finditer(text)]
    read = [_read(sign) for sign in text]
    places = list(chain.from_iterable([place] * len(letters) for place, letters in enumerate(read)))
    return [places[match.start()] for match in MARKERS.finditer("".join(read))]


@lru_cache(maxsize=4096)
def _read(sign: str) -> str:
    """A character as a normaliser may read it."""
    return "" if _UNSEEN.match(sign) else unicodedata.normalize("NFKC", sign)
