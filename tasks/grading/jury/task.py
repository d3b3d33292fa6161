"""Stage entry point of the jury: what jurors said in; one rater's judgments and gradings out, shard by shard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle, unlocked
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments, Jurors, JuryRules
from rubricflow.tasks.core.display.worth import jury_sentences
from rubricflow.tasks.core.monitor.runs import log, task
from rubricflow.tasks.core.stats.arrays import Floats, defined
from rubricflow.tasks.core.stats.scores import GIVEN, MEAN, target_scores
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Run, pairs
from rubricflow.tasks.core.text.digest import text_digest
from rubricflow.tasks.grading.jury.choose import (
    LabelledShares,
    Trial,
    Unlabelled,
    agreement,
    chosen,
    errors,
    fold_rules,
    leave_out,
    of_labels,
    standard_error,
    trials,
    unlabelled,
)
from rubricflow.tasks.grading.jury.combine import Row, Rule, disagreement, grading, judgment, shares_of

RULES = "rules"
"""The shard that holds the rules; the others are those of the jurors."""
_PARTS = ("weights", "shift", "factor")
"""Of a rule, a number for each juror."""


class Juror(NamedTuple):
    """What was written of a juror."""

    bundles: TableRef
    judgments: TableRef
    gradings: TableRef
    attempts: TableRef


class JuryTables(NamedTuple):
    """What the jury writes; of calls it makes none."""

    judgments: TableRef
    gradings: TableRef
    attempts: TableRef
    rules: TableRef | None = None
    """None, as the next, where another stage's rule holds."""
    jurors: TableRef | None = None


@task(task_run_name=named("jury"))
def combine(
    run: Run,
    plan: Judge,
    items: TableRef,
    responses: TableRef,
    bundles: TableRef,
    people: TableRef,
    jurors: Mapping[str, Juror],
    target: str = MEAN,
    stage: str = "judge",
    rules_of: str | None = None,
) -> JuryTables:
    """Choose a rule for all items together, then make the jury's judgments and gradings, shard by shard; what is done
    is passed over.

    bundles: of the jury; people: human gradings, of which those of the calibration split alone are looked at; target:
    see `Evaluation.target`; stage: under which name the tables are written; rules_of: the stage whose rule holds for
    these responses, too, where it was chosen for others of this jury; None to choose it here. ContractError where
    jurors judged in different shards.
    """
    sizes = {name: run.shards(juror.gradings.stage) for name, juror in jurors.items()}
    names = [sorted(shards) for shards in sizes.values()]
    if any(other != names[0] for other in names):
        raise ContractError(f"jurors {', '.join(jurors)} judged in different shards: {run.mend()}")
    names_of = rater_ids(run, jurors)
    rater_id = rater_of(plan, names_of)
    rubric_of = dict(pairs(run.read(items, ["item_id", "rubric_id"])))
    rows = run.read(bundles).to_pylist()
    bundle_of = unlocked(rows)
    id_of = {row["rubric_id"]: row["bundle_id"] for row in rows}
    locked = {item: (bundle_of[rubric], id_of[rubric]) for item, rubric in rubric_of.items()}
    open_shards = [name for name in names[0] if not run.done(stage, name)]
    rule_of: Mapping[str, Rule] = {}
    if rules_of is not None:
        known = run.shard(JuryRules, rules_of, RULES).to_pylist(maps_as_pydicts="strict")
        row = next(row for row in known if row["chosen"])
        rule = Rule(row["rule"], *(np.array([row[part][name] for name in jurors]) for part in _PARTS))
    elif open_shards or not run.done(stage, RULES):
        verdict = _chosen_rule(run, plan, jurors, locked, responses, people, target)
        rule, rule_of = verdict.rule, verdict.rule_of
        if not run.done(stage, RULES):
            told = _told(run, plan, jurors, names_of, verdict)
            rules = [row | {"rater_id": rater_id["rater_id"]} for row in verdict.rules]
            run.commit(stage, RULES, {JuryRules: rules, Jurors: [row | {"jury": rater_id["rater_id"]} for row in told]})
            for sentence in jury_sentences(rules, told):
                log(f"{stage}: {sentence}")
    for name in open_shards:
        of_jurors = {juror: _shard(run, own, name) for juror, own in jurors.items()}
        judged, graded = _together(of_jurors, locked, rule, rule_of)
        judged, graded = ([row | rater_id for row in rows] for rows in (judged, graded))
        run.commit(stage, name, {Judgments: judged, Gradings: graded, Attempts: []})
    made = [run.ref(row, stage) for row in (Judgments, Gradings, Attempts)]
    return JuryTables(*made, *(run.ref(row, stage) for row in (JuryRules, Jurors) if rules_of is None))


def rater_ids(run: Run, jurors: Mapping[str, Juror]) -> dict[str, tuple[str, str]]:
    """Juror → id and kind of its rater."""
    first = {name: next(run.batches(of.gradings, ["rater_id", "rater_kind"], 1)) for name, of in jurors.items()}
    return {name: pairs(pa.Table.from_batches([batch]))[0] for name, batch in first.items()}


def rater_of(plan: Judge, names: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Id and kind of the jury: the jurors by name, and a digest of who they are and how they are combined. A jury with
    a simulated juror is simulated."""
    content = "\n".join([plan.combine, *(rater_id for rater_id, _ in names.values())])
    digest = text_digest(content)[:12]
    kind = "simulated" if any(kind == "simulated" for _, kind in names.values()) else "jury"
    return {"rater_id": f"jury:{'+'.join(names)}-{digest}", "rater_kind": kind}


# The rule, by labels.


class ChosenRule(NamedTuple):
    """How scores are made."""

    rule: Rule
    rule_of: Mapping[str, Rule]
    """Response with a label → the rule fitted without those of its fold, so that calibration learns from scores such as
    new responses get; others have `rule`."""
    rules: list[Row]
    """Rows of `jury_rules`."""
    labels: LabelledShares
    unscored: list[int]
    """Responses without a score, by juror."""
    known: Unlabelled


def _chosen_rule(
    run: Run,
    plan: Judge,
    jurors: Mapping[str, Juror],
    locked: Mapping[str, tuple[Bundle, str]],
    responses: TableRef,
    people: TableRef,
    target: str,
) -> ChosenRule:
    known = run.read(responses, ["response_id", "item_id", "split", "author_id"]).to_pandas().set_index("response_id")
    known = known.sort_index()
    scales = [locked[item][0].scale for item in known["item_id"]]
    low, high = (np.array([getattr(scale, end) for scale in scales], dtype=np.float64) for end in ("min", "max"))

    def share(table: pa.Table) -> Floats:
        """Of each response, the mean of its scores."""
        means = table.to_pandas().groupby("response_id")["score"].mean().reindex(known.index)
        return np.asarray((means.to_numpy(np.float64) - low) / (high - low))

    given = [run.read(juror.gradings, ["response_id", "score"]) for juror in jurors.values()]
    shares = np.column_stack(list(map(share, given)))
    labelled = known["split"].isin(CALIBRATES).to_numpy()
    human = np.where(labelled, share(target_scores(run.read(people, GIVEN), target)), np.nan)
    cluster = known["author_id"].where(known["author_id"].notna() & (known["author_id"] != ""), known.index)
    labels = of_labels(shares, human, known["item_id"].to_numpy(), cluster.to_numpy())
    told = unlabelled(shares, known["item_id"].to_numpy(), list(plan.families.values()), np.array(plan.voices))
    tried = trials(labels, told)
    rule, reason = chosen(plan.combine, tried, told)
    of_fold = {}
    if rule.name == "weighted":
        ids = known.index[~(np.isnan(shares).any(axis=1) | np.isnan(human))]
        of_fold = dict(zip(ids, fold_rules(labels, told), strict=False))  # none where labels are too few
    rows = []
    for name in dict.fromkeys([*tried, rule.name]):
        trial = tried.get(name, Trial(rule, np.full(1, np.nan)))
        own = rule if name == rule.name else trial.rule
        gap = trial.worth
        if tried:
            gap = gap - tried["best"].worth
        row: Row = {"scope": "pooled", "rule": name, "n": len(labels.human), "chosen": name == rule.name}
        row |= {"agreement": defined(trial.worth[0]), "ahead": defined(gap[0])}
        row |= {"ahead_se": defined(standard_error(gap)), "reason": reason if row["chosen"] else ""}
        for part in _PARTS:
            row[part] = dict(zip(jurors, getattr(own, part).tolist(), strict=True))
        rows.append(row)
    return ChosenRule(rule, of_fold, rows, labels, np.isnan(shares).sum(axis=0).tolist(), told)


def _told(
    run: Run, plan: Judge, jurors: Mapping[str, Juror], names: Mapping[str, tuple[str, str]], verdict: ChosenRule
) -> list[Row]:
    """Rows of `jurors`."""
    labels, rule = verdict.labels, verdict.rule
    known = labels.suffice
    tokens = [_tokens(run, juror.attempts) for juror in jurors.values()]
    total = sum(count or 0 for count in tokens)
    left = leave_out(labels, verdict.known.agreed) if known else []
    alike = errors(labels) if known else np.full((len(jurors),) * 2, np.nan)
    np.fill_diagonal(alike, np.nan)
    rows = []
    for place, name in enumerate(jurors):
        others = alike[place]
        count = tokens[place]
        nearest = int(np.nanargmax(others)) if np.isfinite(others).any() else None
        change = left[place] if left else np.full(1, np.nan)
        rows.append(
            {
                "juror": name,
                "rater_id": names[name][0],
                "family": plan.families[name],
                "unscored": verdict.unscored[place],
                "weight": None if rule.name in ("median", "majority") else float(rule.weights[place]),
                "n": len(labels.human),
                "agreement": defined(agreement(labels.shares[:, place], labels)[0]) if known else None,
                "without": defined(change[0]),
                "without_se": defined(standard_error(change)),
                "alike": None if nearest is None else list(jurors)[nearest],
                "alike_errors": None if nearest is None else defined(others[nearest]),
                "tokens": count,
                "share_of_tokens": count / total if count is not None and total and None not in tokens else None,
            }
        )
    return rows


def _tokens(run: Run, attempts: TableRef) -> int | None:
    """Of all calls with a reply; None where any of them does not say."""
    told = run.read(attempts, ["prompt_tokens", "completion_tokens"], pc.is_null(pc.field("error")))
    return None if any(column.null_count for column in told.columns) else sum(pc.sum(one).as_py() or 0 for one in told)


# The shards.


Read = list[Row]
Shard = tuple[dict[str, Read], dict[tuple[str, str], Read]]
"""A juror's gradings by response, and its judgments by response and criterion."""


def _shard(run: Run, juror: Juror, name: str) -> Shard:
    gradings, judgments = defaultdict(list), defaultdict(list)
    for row in run.shard(Gradings, juror.gradings.stage, name).to_pylist(maps_as_pydicts="strict"):
        gradings[row["response_id"]].append(row)
    for row in run.shard(Judgments, juror.judgments.stage, name).to_pylist():
        judgments[row["response_id"], row["criterion_id"]].append(row)
    return gradings, judgments


def _together(
    of_jurors: Mapping[str, Shard], locked: Mapping[str, tuple[Bundle, str]], rule: Rule, rule_of: Mapping[str, Rule]
) -> tuple[list[Row], list[Row]]:
    """The rows of judgments and gradings of a shard."""
    judged, graded = [], []
    first = next(iter(of_jurors.values()))[0]
    for response_id, rows in first.items():
        bundle, bundle_id = locked[rows[0]["item_id"]]
        own = rule_of.get(response_id, rule)
        gradings = {name: shard[0][response_id] for name, shard in of_jurors.items()}
        shares = np.array([shares_of(list(gradings.values()), bundle)])
        (share,), (apart,) = own.scores(shares), disagreement(shares, own.weights)
        graded.append(grading(gradings, bundle, bundle_id, own, float(share), float(apart)))
        for criterion in bundle.criteria:
            about = [shard[1].get((response_id, criterion.id), []) for shard in of_jurors.values()]
            if any(about):
                judged.append(judgment(criterion, bundle, bundle_id, about, rule))
    return judged, graded
