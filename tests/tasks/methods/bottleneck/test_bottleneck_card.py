"""The model card: it says what a user must know, and nothing in the data can change how it reads."""

import html
import re

import pytest
import yaml
from builders.bundles import bundle
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.settings.methods import Training
from rubricflow.tasks.methods.bottleneck.card import About, card, plain

DIGEST = "d" * 64
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def about_of(*criteria, **changes):
    fact = Criterion(id="fact", trait="t", text="States the cause.", levels=("no", "some", "all"))
    locked = bundle(*criteria or (fact,), ends=(0, 3), name="bottleneck", final_score="judged")
    known = {
        "method": "rec_cbm",
        "seed": 1,
        "training": Training(),
        "counts": {"train": 120, "calibration": 40, "test": 41},
        "validation": 0.5,
        "bundle_id": locked.bundle_id,
        "bundle": locked.canonical(),
        "scores": (0.0, 1.5, 3.0),
        "temperature": 1.25,
        "backbone": "minilm",
        "backbone_digest": "minilm@0123456789ab",
        "max_tokens": 512,
        "match": False,
        "blueprint": None,
        "rubric_aware": True,
        "versions": {"torch": "2.13.0"},
    }
    return About(**known | changes)


def trial(metric, value, method="rec_cbm", **more):
    known = {"method": method, "seed": 1, "setting": "", "split": "test", "metric": metric, "criterion_id": ""}
    return known | {"value": value, "n": 41, "note": None} | more


def test_it_says_what_a_user_must_know():
    said = card(about_of(), DIGEST, "graders/mine.safetensors")
    for told in (
        "0, 1.5, 3",
        "0 = no; 1 = some; 2 = all",
        "in split train: 120",
        "in split test: 41",
        "minilm\\@0123456789ab (frozen, not in the file)",
        "0.500",
        "1.25",
        DIGEST,
        about_of().bundle_id,
        "torch 2.13.0",
        "must not be the only one who marks",
        "None were given.",
    ):
        assert told in said
    used = yaml.safe_load(re.search(r"```yaml\n(.*?)```", said, re.DOTALL)[1])
    assert used == {"judge": {"backend": "trained", "protocol": "bottleneck", "grader": "graders/mine.safetensors"}}


def test_figures_stand_beside_those_of_people():
    trials = [
        trial("task_qwk", 0.71234),
        trial("task_accuracy", None),
        trial("task_qwk", 0.8, "human", seed=0),
        trial("concept_qwk", 0.6, criterion_id="all"),
        trial("concept_qwk", 0.111, criterion_id="fact"),
        trial("task_qwk", 0.222, split="calibration"),
        trial("task_qwk", 0.333, seed=2),
        trial("task_qwk", 0.444, "plm"),
        trial("task_qwk", 0.555, setting="width=8"),
    ]
    said = card(about_of(), DIGEST, "g", trials)
    assert "| grade: quadratic weighted kappa | 0.712 | 0.800 | 41 |" in said
    assert "| grade: share of exact grades | unknown | unknown | 41 |" in said
    assert "| concepts: quadratic weighted kappa | 0.600 | unknown | 41 |" in said
    assert not any(other in said for other in ("0.111", "0.222", "0.333", "0.444", "0.555"))


def test_several_pairs_of_people_are_shown_by_their_mean():
    trials = [
        trial("task_qwk", 0.7),
        *(trial("task_qwk", value, "human", seed=at) for at, value in enumerate([0.6, 0.8])),
    ]
    assert "| 0.700 | 0.700 | 41 |" in card(about_of(), DIGEST, "g", trials)


NASTY = "<script>alert(1)</script> ![x](http://a.b/c) **b** `c` | d\n# e\n\n- f ~~g~~ www.h.org _i_ &amp; j@k.org"


def rendered(said):
    """The kinds of all tokens, and the text of the cells."""
    found, cells = set(), []
    for token in PARSER.parse(said):
        found.add(token.type)
        for child in token.children or ():
            found.add(child.type)
            cells.append(child.content)
    return found, cells


def test_nothing_in_the_data_is_read_as_markup():
    nasty = Criterion(id=NASTY, trait="t", text=NASTY, levels=(NASTY, "b"))
    plainly, hostile = (rendered(card(about_of(*of), DIGEST, "g"))[0] for of in ((), (nasty,)))
    assert hostile - plainly <= {"text_special"}
    said = card(about_of(nasty, counts={NASTY: 1}, versions={NASTY: NASTY}, backbone_digest=NASTY), DIGEST, NASTY)
    assert rendered(said)[0] - plainly <= {"text_special"}
    assert len(said.splitlines()) == len(card(about_of(counts={"a": 1}), DIGEST, "g").splitlines())


@settings(max_examples=15)
@given(st.text(max_size=40))
@example(NASTY)
@example("\\|\\\\|")
@example("\ud800\u202e\u200b\x00x")
@example("&lt;b&gt;")
def test_a_cell_shows_the_text_itself(text):
    said = plain(text)
    assert said.isprintable() or not said
    said.encode()
    tokens = PARSER.parse(f"| a |\n| --- |\n| x{said}x |\n")
    inline = [token for token in tokens if token.type == "inline"]
    assert {child.type for token in inline for child in token.children} <= {"text", "text_special"}
    assert len(inline) == 2
    shown = "".join(child.content for child in inline[1].children)
    visible = "".join(c for c in " ".join(text.split()) if c.isprintable())
    assert shown == f"x{visible}x"
    assert html.unescape(shown) == shown or "&" in text


@pytest.mark.parametrize("link", ["http://a.b", "HTTPS://a.b", "www.a.b", "WWW.a.b", "ftp://a.b", "a@b.c"])
def test_bare_addresses_are_no_links(link):
    assert re.search(r"(\\://|www\\\.|\\@)", plain(link), re.IGNORECASE)
