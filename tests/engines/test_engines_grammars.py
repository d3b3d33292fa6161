"""The contracts in the grammars that engines make of them: credit with words is taken, credit without any is not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

import pytest

pytest.importorskip("vllm", reason="needs vLLM in an environment of its own: make test-vllm")

import xgrammar
from llguidance import LLMatcher, LLTokenizer
from outlines_core.json_schema import build_regex_from_schema
from xgrammar.testing import _is_grammar_accept_string

from rubricflow.tasks.core.contracts.bundle import Criterion, EvidenceType, Trait
from rubricflow.tasks.core.llm.schema import compact, plain
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.schema import PLAIN

Takes = Callable[[Mapping[str, Any], str], bool]
UNITS = units("Its words. And more.")
QUOTE = {"unit": "sentence 1", "quote": "its words"}
FREE = ("weakly_groundable", "none")


def guidance(schema: Mapping[str, Any], text: str) -> bool:
    """As the engine in this process is held to it: without a blank."""
    tokenizer = LLTokenizer("byte")
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides={"whitespace_flexible": False})
    matcher = LLMatcher(tokenizer, grammar)
    assert not matcher.get_error()
    tokens = tokenizer.tokenize_str(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def xgrammars(schema: Mapping[str, Any], text: str) -> bool:
    """As a server is by itself: with blanks or without."""
    grammar = xgrammar.Grammar.from_json_schema(json.dumps(schema), any_whitespace=True)
    return bool(_is_grammar_accept_string(grammar, text))


def outlines(schema: Mapping[str, Any], text: str) -> bool:
    """As an expression without blanks."""
    return re.fullmatch(build_regex_from_schema(json.dumps(schema), ""), text) is not None


@pytest.mark.parametrize("takes", [guidance, xgrammars, outlines])
@pytest.mark.parametrize("kind", get_args(EvidenceType))
def test_a_level_above_0_has_evidence(takes: Takes, kind: EvidenceType) -> None:
    criteria = [Criterion(id=name, trait="t", text="c", evidence=kind, levels=("no", "half", "yes")) for name in "AB"]
    whole = contract.citing(contract.checklist(criteria), UNITS, PLAIN)
    for level in range(3):
        for evidence in ([], [QUOTE], [QUOTE, QUOTE]):
            members = {"diagnostic": "calm", "level": level, "evidence": evidence}
            decision = {name: members[name] for name in contract.fields(criteria[0])}
            text = compact({"decisions": {"A": decision, "B": decision}})
            assert takes(whole, text) == (kind in FREE or level == 0 or bool(evidence)), text
            assert takes(plain(whole), text), text


@pytest.mark.parametrize("takes", [guidance, xgrammars, outlines])
def test_a_score_above_the_lowest_has_evidence(takes: Takes) -> None:
    whole = contract.citing(contract.traits([Trait(id="t", name="T", min=0, max=10)]), UNITS, PLAIN)
    for score in (0, 1, 10):
        for evidence in ([], [QUOTE]):
            text = compact({"traits": {"t": {"score": score, "evidence": evidence}}})
            assert takes(whole, text) == (score == 0 or bool(evidence)), text
