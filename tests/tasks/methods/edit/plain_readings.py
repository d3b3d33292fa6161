"""The belief probe and the grounding audit the plain way, a forward pass for every context: what the packed is held
against."""

import numpy as np
import torch
from scipy.special import softmax

from rubricflow.tasks.methods.edit.belief import Support, mark_lines, pieces


def beliefs_plain(policy, prompts, cases):
    """`beliefs` by a forward pass for every boundary, and for every mark where some marks are several tokens."""
    found = []
    for sample, text in cases:
        ids, rows, last = policy.prompt_ids(prompts.grade(sample)), [], ""
        for piece in ["", *pieces(text)]:
            ids, last = ids + policy.ids(piece), piece
            marks = mark_lines(policy, sample.top, "" if not last or last.endswith("\n") else "\n")
            rows.append(_believed(policy, ids + marks.scaffold, marks.candidates))
        found.append(np.array(rows))
    return found


def supports_plain(policy, prompts, cases):
    """`supports` by four forward passes for every step."""
    found = []
    for sample, text in cases:
        full, scheme, answer = (policy.prompt_ids(prompts.grade(sample, at)) for at in ("none", "scheme", "answer"))
        losses, before = [], []
        for step in map(policy.ids, pieces(text)):
            contexts = (full + before, scheme + before, answer + before, full)
            losses.append([_loss(policy, context, step) for context in contexts])
            before = before + step
        complete, *masked = np.array(losses, np.float64).reshape(-1, 4).T
        found.append(Support(*(loss - complete for loss in masked)))
    return found


def _believed(policy, ids, candidates):
    if all(len(one) == 1 for one in candidates):
        return softmax(_last(policy, ids, 1)[0, [one[0] for one in candidates]])
    logprobs = (_last(policy, ids + one, len(one) + 1)[:-1][np.arange(len(one)), one] for one in candidates)
    return softmax(np.array([each.sum() for each in logprobs]))


def _loss(policy, context, step):
    return -_last(policy, context + step, len(step) + 1)[:-1][np.arange(len(step)), step].sum()


def _last(policy, ids, count):
    """(count, V) log-probabilities of what follows each of the last tokens."""
    with torch.inference_mode():
        tokens = torch.tensor([ids], device=policy.model.device)
        logits = policy.model(input_ids=tokens, use_cache=False, logits_to_keep=count).logits[0]
        return logits.float().log_softmax(-1).double().cpu().numpy()
