"""The exported grader: what is written is what grades, alone or in a batch, and nothing that is broken is read."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from builders.bundles import bundle
from safetensors import safe_open
from safetensors.torch import save_file

from rubricflow.tasks.core.contracts.backends import Answered
from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.methods import Bottleneck, Training
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.rater import rater
from rubricflow.tasks.grading.judge.rows import Case
from rubricflow.tasks.methods.bottleneck import backbone as backbones
from rubricflow.tasks.methods.bottleneck.data import MISSING, LabelledData, concepts_of, shares_of
from rubricflow.tasks.methods.bottleneck.fit import Trained, concept_levels
from rubricflow.tasks.methods.bottleneck.grader import load, save
from rubricflow.tasks.methods.bottleneck.model import ConceptEncoder, LatentHead, contribution_error
from rubricflow.tasks.methods.bottleneck.states import TunedBackbone, adapted

CRITERIA = (
    Criterion(id="fact", trait="t", text="States the cause.", levels=("no", "in part", "yes", "fully")),
    Criterion(id="flow", trait="t", text="Reads well."),
    Criterion(id="depth", trait="t", text="Goes further.", levels=("no", "some", "much")),
)
BUNDLE = bundle(*CRITERIA, ends=(0, 3), name="bottleneck", final_score="judged")
DATA = LabelledData(
    response_ids=("a", "b", "c"),
    concepts=concepts_of(BUNDLE),
    levels=np.zeros((3, 3), np.int64),
    weights=np.ones((3, 3)),
    grades=np.array([0, 3, MISSING]),
    scores=np.arange(4.0),
    split=np.array(["train", "test", "test"]),
)
TRAINING = Training(temperature=0.3)
ANSWERED = [
    Answered("which words are there", "alpha bravo and the echo."),
    Answered("which words are there", "alpha", "alpha and delta", "foxtrot"),
    Answered("", "the alpha " * 60),
    Answered("which?", ""),
]


@pytest.fixture
def folder(backbone_folder):
    """A small random BERT."""
    return backbone_folder("bert")


def adapter_of(backbone):
    """The numbers of an adapter on it, by name."""
    return {name: one for name, one in backbone.model.named_parameters() if ".lora_" in name}


def trained_of(backbone, encoder="frozen", rubric_aware=True, seed=0):
    """A grader as training gives it back, with random numbers throughout."""
    torch.manual_seed(seed)
    tops = DATA.concepts.tops
    model = ConceptEncoder(backbone.width, tops, TRAINING.temperature, rubric_aware, None, seed).eval()
    latent = LatentHead(3, 4).double()
    with torch.no_grad():
        learned = backbone.model.named_parameters() if encoder == "tuned" else adapter_of(backbone)
        for one in [*model.parameters(), *latent.parameters(), *dict(learned).values()]:
            one.add_(torch.randn_like(one) * 0.3)
    named = {"tuned": backbone.model.state_dict(), "lora": adapter_of(backbone), "frozen": None}[encoder]
    weights = None if named is None else {name: one.detach().clone() for name, one in named.items()}
    head = replace(latent.as_head(), temperature=1.7)
    return Trained(weights, (1, 1), 0.5, 10, [], None, model, head), head


@pytest.fixture
def exported(backbone_folder, tmp_path):
    """Saves a random grader: its path, its parts, and the backbone as it was trained."""

    def make(kind="bert", encoder="frozen", matches=False, arithmetic="float32", layer=None, **more):
        folder = backbone_folder(kind)
        plan = Bottleneck(backbone=folder.name, encoder=encoder, arithmetic=arithmetic, layer=layer)
        backbone = backbones.load(str(folder), 48, matches, layer, arithmetic == "bfloat16")
        if encoder == "lora":
            backbone = adapted(backbone, plan.adapter)
        trained, head = trained_of(backbone, encoder, **more)
        path = tmp_path / "grader.safetensors"
        digest = save(path, trained, head, "rec_cbm", 0, TRAINING, DATA, BUNDLE, backbone, plan)
        return path, trained, head, backbone, digest

    return make


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("bert", {}),
        *((kind, {"encoder": "tuned"}) for kind in ("bert", "roberta", "bart", "gpt2", "t5")),
        *((kind, {"encoder": "lora"}) for kind in ("bert", "gpt2")),
        ("bert", {"rubric_aware": False}),
        ("bart", {"matches": True}),
        ("roberta", {"matches": True, "encoder": "tuned"}),
        ("t5", {"layer": 1, "arithmetic": "bfloat16"}),
        ("gpt2", {"layer": 1, "arithmetic": "bfloat16", "encoder": "tuned"}),
        ("bert", {"layer": 1, "arithmetic": "bfloat16", "encoder": "lora"}),
    ],
)
def test_what_is_read_back_says_the_same(exported, backbone_folder, kind, more):
    path, trained, head, backbone, digest = exported(kind, **more)
    # A tuned encoder is in the file and nowhere else.
    grader = load(path, path.parent if more.get("encoder") == "tuned" else backbone_folder(kind).parent)
    tokens = backbone.tokenize(ANSWERED)
    levels = concept_levels(trained.concept_encoder, TunedBackbone(backbone, tokens), np.arange(len(ANSWERED)))
    shares = levels @ np.arange(4) / DATA.concepts.tops
    assert np.allclose(grader.levels(ANSWERED), levels, atol=1e-6)
    for estimate, of, likely in zip(grader(ANSWERED), levels, head.probabilities(shares), strict=True):
        assert {name: len(given) for name, given in estimate.levels.items()} == {"fact": 4, "flow": 2, "depth": 3}
        assert estimate.levels["flow"] == pytest.approx(of[1, :2], abs=1e-6)
        assert list(estimate.grades.values()) == pytest.approx(likely, abs=1e-6)
        assert estimate.score == likely.argmax()
    assert grader.name == f"rec_cbm:{backbone.name}:{digest[:12]}"
    assert grader.concepts == {"fact": 4, "flow": 2, "depth": 3}
    assert grader.bundle == BUNDLE
    assert grader.about.counts == {"test": 1, "train": 1}


def test_the_same_grader_makes_the_same_bytes(exported):
    first = exported()[0].read_bytes()
    assert exported()[0].read_bytes() == first
    assert exported(seed=1)[0].read_bytes() != first


def test_an_estimate_does_not_depend_on_the_batch(exported, folder):
    grader = load(exported()[0], folder.parent)
    rng = np.random.default_rng(0)
    words = ["alpha", "bravo", "charlie", "the", "zebra", "?"]
    answered = [Answered("Why?", " ".join(rng.choice(words, rng.integers(0, 70)))) for _ in range(40)]
    together = grader.levels(answered)
    assert np.allclose(together, np.concatenate([grader.levels([one]) for one in answered]), atol=1e-6)
    assert np.allclose(together[::-1], grader.levels(answered[::-1]), atol=1e-6)
    assert np.ptp(together, axis=0).max() > 1e-3  # it does read them


@pytest.mark.parametrize(
    "text",
    ["", "[SEP] [CLS] [PAD]", "\ud800 alpha \udfff", "x" * 100_000, "\x00\u202e\u200b 𝄞"],
    ids=["empty", "marks", "surrogates", "long", "invisible"],
)
def test_hostile_texts_are_graded_like_any_other(exported, folder, text):
    grader = load(exported()[0], folder.parent)
    alone, beside = grader([Answered("Why?", text)])[0], grader([*ANSWERED, Answered("Why?", text)])
    assert alone.score == beside[-1].score
    assert [e.score for e in beside[:-1]] == [e.score for e in grader(ANSWERED)]
    assert sum(alone.grades.values()) == pytest.approx(1)
    rows = grader.traces(["r"], [Answered("Why?", text)])
    assert contribution_error(rows) < 1e-5
    assert all(0 <= seen["start"] < seen["end"] <= len(text) for row in rows for seen in row["attention"])


def test_traces_lie_in_the_response_and_add_up_to_what_the_grader_says(exported, folder):
    grader = load(exported()[0], folder.parent)
    assert grader([]) == grader.traces([], []) == []
    responses = dict(zip("abcd", ANSWERED, strict=True))
    rows = grader.traces(list(responses), ANSWERED)
    for row in rows:
        words = row["attention"]
        assert all(0 <= word["start"] < word["end"] <= len(responses[row["response_id"]].response) for word in words)
        assert sum(word["weight"] for word in words) < 1
    assert contribution_error(rows) < 1e-5
    assert [row["score"] for row in rows[::4]] == [estimate.score for estimate in grader(ANSWERED)]
    assert {ANSWERED[1].response[s["start"] : s["end"]] for s in rows[4]["attention"]} == {"alpha"}


def test_the_head_as_json_reckons_as_the_grader_does(exported, folder):
    grader = load(exported()[0], folder.parent)
    head = json.loads(grader.head_json())
    assert (head["criteria"], head["tops"]) == (["fact", "flow", "depth"], [3, 1, 2])
    shares = shares_of(grader.levels(ANSWERED), np.array(head["tops"]))
    logits = shares @ np.array(head["correction"]).T @ np.array(head["weights"]).T + head["bias"]
    likely = np.exp(logits / head["temperature"])
    likely /= likely.sum(axis=1, keepdims=True)
    assert likely == pytest.approx(np.array([list(estimate.grades.values()) for estimate in grader(ANSWERED)]))
    assert head["scores"] == [0, 1, 2, 3]


def broken(path, change):
    """The file with its tensors or metadata changed."""
    with safe_open(path, "pt") as file:
        told, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    about = json.loads(told["rubricflow"])
    change(tensors, about)
    save_file(tensors, path, {"rubricflow": json.dumps(about)})


def put(name, value):
    return lambda tensors, about: tensors.update({name: value(tensors[name])})


def tell(**changes):
    return lambda tensors, about: about.update(changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("concepts.queries", lambda one: one * torch.nan), "not finite"),
        (put("head.bias", lambda one: one / 0), "not finite"),
        (put("concepts.queries", lambda one: one[:2]), "size mismatch"),
        (put("concepts.classifiers", lambda one: one[..., :8].contiguous()), "size mismatch"),
        (put("head.weights", lambda one: one[:, :2].contiguous()), "other shapes"),
        (put("head.noise", lambda one: one * 0), "not above 0"),
        (put("head.precision", lambda one: -one), "not positive definite"),
        (lambda tensors, about: tensors.pop("head.noise"), "other shapes"),
        (lambda tensors, about: tensors.pop("concepts.queries"), "Missing key"),
        (lambda tensors, about: tensors.update(extra=torch.zeros(1)), "no grader has a tensor 'extra'"),
        (tell(format=2), "another version of rubricflow: Input should be 1 at 'format'"),
        (tell(later=1), "another version of rubricflow"),
        (tell(temperature=-1.0), "temperature"),
        (tell(bundle_id="0" * 64), "changed after locking"),
        (tell(backbone="nowhere"), "backbone 'nowhere' is no folder"),
        (
            tell(backbone_digest="tiny-bert@000000000000"),
            "it was trained on the text encoder tiny-bert@0{12}, and here is tiny-bert@",
        ),
        (tell(max_tokens=4_000), "reads at most 64 tokens"),
        (tell(blueprint="{}"), "its text encoder cannot be rebuilt"),
    ],
)
def test_a_file_that_is_changed_is_refused(exported, folder, change, message):
    path = exported()[0]
    broken(path, change)
    with pytest.raises(InputError, match=message) as raised:
        load(path, folder.parent)
    assert "grader.safetensors" in str(raised.value)


def test_a_file_that_is_cut_off_anywhere_is_refused(exported, folder):
    path = exported()[0]
    whole = path.read_bytes()
    for length in [0, 7, 8, 100, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="no whole grader file"):
            load(path, folder.parent)


def test_foreign_files_are_refused_and_nothing_in_them_is_run(tmp_path):
    class Spy:
        def __reduce__(self):
            return (tmp_path / "ran").touch, ()

    path = tmp_path / "grader.safetensors"
    torch.save({"spy": Spy()}, path)
    with pytest.raises(InputError, match="no whole grader file"):
        load(path)
    assert not (tmp_path / "ran").exists()
    save_file({"head.weights": torch.zeros(2, 2)}, path)
    with pytest.raises(InputError, match=r"holds no grader of rubricflow's"):
        load(path)
    with pytest.raises(InputError, match="no whole grader file"):
        load(tmp_path / "none.safetensors")


def test_weights_of_a_tuned_encoder_that_do_not_fit_are_refused(exported):
    path = exported(encoder="tuned")[0]
    broken(path, lambda tensors, about: tensors.pop("encoder.embeddings.LayerNorm.bias"))
    with pytest.raises(InputError, match="Missing key"):
        load(path)


@pytest.mark.parametrize("how", ["no concepts", "fewer concepts", "other concepts"])
def test_what_is_no_sum_of_the_concepts_is_not_exported(folder, tmp_path, how):
    backbone = backbones.load(str(folder), 48)
    trained, head = trained_of(backbone)
    bundle = BUNDLE
    if how == "no concepts":
        trained = replace(trained, concept_encoder=None)
    elif how == "fewer concepts":
        head = replace(head, weights=head.weights[:, :2])
    else:
        bundle = BUNDLE.model_copy(update={"criteria": CRITERIA[::-1]})
    plan = Bottleneck(backbone="tiny")
    with pytest.raises(InputError, match="'rec_cbm' cannot be exported"):
        save(tmp_path / "g.safetensors", trained, head, "rec_cbm", 0, TRAINING, DATA, bundle, backbone, plan)
    assert not list(tmp_path.iterdir())


def test_it_grades_as_a_backend_like_any_other(exported, folder, tmp_path):
    grader = load(exported()[0], folder.parent)
    plan = Judge(backend="trained", protocol="bottleneck", grader="grader.safetensors")
    bundle = BUNDLE.model_copy(update={"protocol": plan.as_protocol()})  # other signals, the same concepts
    cases = [
        Case(str(at), "i", one.response, (), one.question, one.context, bundle, bundle.bundle_id, one.reference)
        for at, one in enumerate(ANSWERED)
    ]
    with ReplyStore(":memory:") as store:
        found = grade_batch(cases, rater(plan, tmp_path, store, grader=grader), store)
    scores = [one.scored.score for one in found.gradings]
    assert scores[:3] == [estimate.score for estimate in grader(ANSWERED[:3])]
    assert (found.gradings[3].status, scores[3]) == ("precheck", 0)
    assert found.rater.kind == "trained"
