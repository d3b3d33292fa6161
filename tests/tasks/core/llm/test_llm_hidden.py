"""Hidden states of a small model that the tests make: against a plain forward pass, and what is refused."""

import numpy as np
import pytest
from builders.models import byte_model

from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.llm.encoder import LAYERS, HiddenStates

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return byte_model(tmp_path_factory.mktemp("model"))


def plain(folder, before, text):
    """The same without a cache."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    first, second = (tokenizer(part)["input_ids"] for part in (before, text))
    with torch.inference_mode():
        states = model(torch.tensor([[*first, *second]]), output_hidden_states=True).hidden_states
    taken = [states[round(depth * (len(states) - 1))][0, len(first) :].mean(dim=0) for depth in LAYERS]
    return torch.cat(taken).numpy()


def test_states_are_those_of_a_plain_pass_over_the_response_alone(folder):
    texts = ["Water moves in.", "x", "Salt 🙂 moves out of the cell, and water follows."]
    found = HiddenStates(str(folder))("Question: why?", texts)
    assert found.shape == (3, len(LAYERS) * 16)
    for row, text in zip(found, texts, strict=True):
        np.testing.assert_allclose(row, plain(folder, "Question: why?", text), atol=1e-5)


def test_a_response_does_not_depend_on_its_neighbours(folder):
    states = HiddenStates(str(folder))
    alone = states("Q", ["second"])
    np.testing.assert_array_equal(states("Q", ["a first one", "second"])[1], alone[0])
    assert np.isfinite(states("Q", ["", "   "])).all()
    assert states("Q", []).shape == (0, len(LAYERS) * 16)


def test_what_stands_before_matters(folder):
    states = HiddenStates(str(folder))
    assert np.abs(states("Question: a", ["same"]) - states("Rubric: b", ["same"])).max() > 1e-4


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(BackendError, match=f"calibration.language_model: no model can be loaded from {tmp_path}"):
        HiddenStates(str(tmp_path))
