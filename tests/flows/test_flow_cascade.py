"""A cascade from the study to what goes out: each step is asked about what reaches it, and one rater comes of it."""

import pyarrow as pa
import pytest
from builders.command import last_run
from cascade_study import make_study

from rubricflow.flows import proposal as proposing
from rubricflow.flows.grade import grade
from rubricflow.flows.review import Following
from rubricflow.flows.validate import planned_calls, prove
from rubricflow.tasks.core.contracts.errors import InputError, UserError
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.contracts.tables.judging import Attempts
from rubricflow.tasks.core.llm.prices import price_of
from rubricflow.tasks.core.store.catalogue import ask
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.cascade import task as asking


def graded(study, warehouse):
    grade(str(study), warehouse=str(warehouse))
    return last_run(warehouse)


def rows(run, query):
    return ask(run, query).fetchall()


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cascade")
    study = make_study(folder)
    return study, graded(study, folder / "warehouse")


def test_the_dear_judge_is_asked_about_labelled_answers_and_what_the_cheap_one_is_unsure_of(steps):
    _, run = steps
    ((first, second),) = rows(
        run, "SELECT min(most_risk) FILTER (step = 1), min(most_risk) FILTER (step = 2) FROM cascade_limits"
    )
    assert 0 < first < 1
    assert 0 <= second < 1
    counted = "SELECT count(DISTINCT response_id) FROM attempts WHERE rater_id LIKE 'foreign:%s%%'"
    assert rows(run, counted % "cheap") == [(400,)]
    unsure = rows(
        run,
        f"""SELECT count(*) FROM step_predictions JOIN responses USING (response_id)
        WHERE rater_id LIKE 'foreign:cheap%' AND (risk > {first} OR responses.split = 'calibration')""",
    )
    assert rows(run, counted % "dear") == unsure
    assert unsure[0][0] < 350


def test_one_rater_has_every_answer_once_as_the_step_judged_it_at_which_it_stopped(steps):
    _, run = steps
    assert rows(run, "SELECT count(*), count(DISTINCT response_id), count(DISTINCT rater_id) FROM predictions") == [
        (400, 400, 1)
    ]
    differing = rows(
        run,
        """SELECT count(*) FROM predictions p JOIN escalations e USING (response_id)
        JOIN cascade_limits l ON l.step = e.step
        JOIN step_predictions s ON s.response_id = p.response_id AND s.rater_id = l.rater_id
        WHERE p.score <> s.score OR p.risk <> s.risk OR (p.route = 'release') <> (s.risk <= l.most_risk)""",
    )
    assert differing == [(0,)]
    kinds = rows(run, "SELECT rater_kind, count(*) FROM gradings GROUP BY ALL ORDER BY ALL")
    assert kinds[0] == ("cascade", 400)


def test_what_goes_out_keeps_the_promise_and_its_rule_says_so(steps):
    _, run = steps
    ((upper, released, wrong),) = rows(run, "SELECT upper, released, wrong FROM release_rules")
    assert upper <= 0.1
    assert released >= 150
    told = rows(run, "SELECT sum(stopped), sum(wrong) FROM cascade_limits")
    assert told == [(released, wrong)]
    shares = rows(
        run,
        """SELECT avg(CAST(p.score <> g.score AS INTEGER)) FROM predictions p JOIN gradings g USING (response_id)
        WHERE g.rater_kind = 'human' AND p.split = 'test' AND p.route = 'release'""",
    )
    assert shares[0][0] <= 0.1


def test_the_same_study_asks_nothing_again(steps, monkeypatch):
    study, run = steps
    monkeypatch.setattr("rubricflow.tasks.grading.judge.task._judge_here", lambda *_: pytest.fail("a shard was judged"))
    assert graded(study, run.warehouse.root).run_id == run.run_id


def test_without_enough_labels_only_the_first_step_is_asked_and_all_goes_to_people(tmp_path):
    run = graded(make_study(tmp_path, answers=60, labelled=12), tmp_path / "warehouse")
    assert rows(run, "SELECT DISTINCT route, route_reason FROM predictions") == [("review", "no_promise")]
    assert rows(run, "SELECT DISTINCT step, stopped FROM escalations") == [(1, False)]
    assert rows(run, "SELECT count(*) FROM attempts WHERE rater_id LIKE 'foreign:dear%'") == [(12,)]
    ((note,),) = rows(run, "SELECT DISTINCT note FROM cascade_limits")
    assert "22 needed" in note


def test_what_a_study_may_not_say(tmp_path):
    study = make_study(tmp_path)
    text = study.read_text()
    one = text.replace("dear.csv", "cheap.csv")
    study.write_text(one)
    with pytest.raises(InputError, match="one and the same"):
        load_study(study)
    judge = {"backend": "hosted", "protocol": "dhs", "engine": {"model": "m", "provider": "openai"}}
    pairs = judge | {"protocol": "pairwise"}
    assert Judge.model_validate({**pairs, "escalate": [judge]}).steps[0].judges_whole_items
    with pytest.raises(ValueError, match=r"step 2 of the cascade.*comparison"):
        Judge.model_validate({**judge, "escalate": [pairs]})
    with pytest.raises(ValueError, match="every juror do so, or none"):
        Judge.model_validate({"jury": {"a": judge, "b": pairs}})
    retention = "{weak_prerequisite: 0.6, strong_prerequisite: 0.2, activation: 0}"
    study.write_text(
        text.replace("calibration: {minimum", f"reward: {{retention: {retention}}}\ncalibration: {{minimum")
    )
    with pytest.raises(InputError, match="cascade"):
        load_study(study)


def test_calls_without_a_reply_do_not_make_the_costs_of_all_others_unknown(monkeypatch):
    step = Judge.model_validate(
        {"backend": "hosted", "protocol": "dhs", "engine": {"model": "m", "provider": "openai"}}
    )
    calls = pa.Table.from_pylist(
        [
            {"response_id": "a", "model": "m", "prompt_tokens": 900, "completion_tokens": 100, "error": None},
            {"response_id": "b", "model": "m", "error": "deadline: nothing came"},
            {"response_id": "b", "model": "m", "prompt_tokens": 900, "completion_tokens": 300, "error": None},
        ]
    )
    monkeypatch.setattr(asking, "_read", lambda run, table, columns: table.select(columns))
    tables = asking.StepTables((), calls.select(["response_id"]), calls, (), None, None)
    assert asking.step_costs(None, step, [tables], {}) == ([1100.0], "tokens")
    limited = step.model_copy(update={"cost_limit": 0.01})
    with pytest.raises(InputError, match=r"step 1 \(m\).*cost_limit"):
        asking.step_costs(None, limited, [tables], {})
    price = price_of(Engine.model_validate({"model": "m", "price": {"input": 1, "output": 10}}))
    assert asking.step_costs(None, limited, [tables], {"m": price}) == ([pytest.approx(2900e-6)], "usd")


def test_a_limit_in_dollars_without_a_price_is_refused_before_anything_is_asked(tmp_path):
    study = make_study(tmp_path)
    study.write_text(study.read_text().replace("  escalate:", "  cost_limit: 0.01\n  escalate:"))
    wrong = [what for kind, what, _ in prove(study) if kind == "wrong"]
    assert wrong == ["step 1: judge.cost_limit", "step 2: judge.cost_limit"]
    with pytest.raises(InputError, match=r"step 1.*cost_limit.*price: "):
        graded(study, tmp_path / "warehouse")
    run = Warehouse.open(tmp_path / "warehouse")
    assert not any(run.run(name).stages(Attempts) for name in run.begun())


def test_the_plan_says_the_most_that_each_step_may_be_asked(steps):
    study, _ = steps
    labels = [row[0] for row in planned_calls(study)]
    assert labels == ["a, step 1", "a, step 2", "all"]


def test_a_plan_proposes_the_cascade_that_the_marked_answers_of_finished_runs_allow(steps, tmp_path, monkeypatch):
    _, cascade = steps
    study, house = make_study(tmp_path), cascade.warehouse.root
    text = study.read_text()
    alone = text[: text.index("  escalate:")] + text[text.index("calibration: {minimum") :]
    for name in ("cheap", "dear"):
        study.write_text(alone.replace("cheap.csv", f"{name}.csv").replace("name: steps", f"name: {name}"))
        graded(study, house)

    def costs(raters, *_):
        return {rater: 30.0 if "dear" in rater else 1.0 for rater in raters}, "tokens"

    def settings_of(run, read=proposing.study_of):
        return read(run) if run.run_id == cascade.run_id else pytest.fail(f"settings of {run.run_id} were read")

    monkeypatch.setattr(proposing, "rater_costs", costs)
    monkeypatch.setattr(proposing, "study_of", settings_of)
    lines = list(proposing.proposal(load_study(study), str(house), 0.1, None))
    told = {what: (how_much, by) for what, how_much, by in lines}
    assert "cheap" in told["step 1"][0]
    assert "dear" in told["step 2"][0]
    wrong, out = map(int, told["wrong of what goes out"][0].split(" of "))
    assert out > 150
    assert wrong <= 0.1 * out
    tokens = float(told["judging"][0].removesuffix(" tokens").replace(",", ""))
    assert 400 < tokens < 400 * 31
    with pytest.raises(UserError, match="price"):
        list(proposing.proposal(load_study(study), str(house), 0.1, 20.0))
    # A cascade of the two is no further judge.
    monkeypatch.undo()
    judged, unit = proposing._judged([cascade.warehouse.run(name) for name in cascade.warehouse.runs()], cascade, 0.0)
    assert (len(judged), unit) == (2, "answers")


def test_levels_that_people_set_are_mapped_as_the_step_does_whose_score_the_answer_has(tmp_path):
    study = make_study(tmp_path, answers=200, labelled=100)
    text = study.read_text()
    told = "protocol: rulers\n{0}backend: simulated\n{0}truth: {{rater: one, noise: {1}, seed: {2}}}\n"
    judge = f"judge:\n  {told.format('  ', 0.3, 1)}  escalate:\n    - {told.format('      ', 0.02, 2)}"
    rest = text[text.index("calibration: {minimum") :].replace("tolerance: 0", "tolerance: 1")
    study.write_text(text[: text.index("judge:")] + judge + rest)
    run = graded(study, tmp_path / "warehouse")
    placed = dict(rows(run, "SELECT response_id, step FROM escalations"))
    assert set(placed.values()) == {1, 2}
    follow = Following(run, load_study(study))
    by_step = {step: [response for response, own in placed.items() if own == step][:5] for step in (1, 2)}
    for response in [*by_step[1], *by_step[2]]:
        ((score, low, high),) = rows(run, f"SELECT score, low, high FROM predictions WHERE response_id = '{response}'")
        found = follow(response, {})
        assert (found.score, found.low, found.high) == (score, low, high)
        best, worst = follow(response, {"P1": 2}), follow(response, {"P1": 0})
        assert best.score > worst.score
