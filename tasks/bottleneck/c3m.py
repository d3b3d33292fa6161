"""C3M (Tan et al., 2024, "Interpreting pretrained language models via concept bottlenecks"), adapted: missing concept
labels are filled in by a machine, and pairs of responses are mixed.

Theirs: a language model proposes further concepts and labels all of them, noisily; a joint bottleneck model learns from
people's labels and from these, on the responses as they are and on mixtures of two: hidden representation, concepts and
label are combined with one λ ~ Beta(0.2, 0.2) a batch, and both count the same. Taken over as it is: the joint model,
the mixing and its Beta. Adapted: concepts are those of the rubric, none is added, so that the measures of all methods
speak of the same ones; the noisy labels come from a table that is given, or from a teacher fitted on the labels there
are; they count less than people's. Where every concept of every training response is labelled, only mixing is left.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from tasks.bottleneck.data import MISSING, LabelledData
from tasks.bottleneck.fit import Trained
from tasks.bottleneck.loop import Losses
from tasks.bottleneck.plm import Pooled, mean_state, pooled
from tasks.bottleneck.states import Say, StateEncoder, quiet
from tasks.bottleneck.vanilla import Joint, Targets, joint_loss, train_jointly
from tasks.contracts.settings.bottleneck import Training
from tasks.stats.arrays import Ints

MIXING = 0.2
"""Both parameters of the Beta distribution that λ is drawn from: mostly near 0 or 1."""
NOISY = 0.5
"""How much a machine's label counts beside a person's."""


def c3m(
    data: LabelledData,
    encoder: StateEncoder,
    plan: Training,
    seed: int,
    *,
    noisy: Ints | None = None,
    method: str = "c3m",
    setting: str = "",
    say: Say = quiet,
) -> Trained:
    """Trains a joint bottleneck model on augmented labels and mixed pairs.

    noisy: (n, K) levels by a machine, MISSING where it gives none, for concepts that no person labelled; those of a
    teacher where not given. InputError as for the vanilla model.
    """
    encoder, rng = pooled(encoder), np.random.default_rng(seed)
    data = augmented(data, pseudo_levels(data, encoder) if noisy is None else noisy)

    def loss(model: Joint, states: Tensor, mask: Tensor, targets: Targets) -> Losses:
        share, order = float(rng.beta(MIXING, MIXING)), torch.from_numpy(rng.permutation(len(states)))
        plain = joint_loss(model(states, mask), targets, plan)
        mixed = mixed_loss(model, mean_state(states, mask), targets, share, order.to(states.device), plan)
        return {name: (plain[name] + mixed[name]) / 2 for name in plain}

    return train_jointly(data, encoder, plan, seed, loss, method=method, setting=setting, say=say)


def augmented(data: LabelledData, noisy: Ints) -> LabelledData:
    """The labels with what a machine (n, K) says of training responses where no person says anything."""
    filled = (data.levels == MISSING) & (noisy != MISSING) & (data.split == "train")[:, None]
    return replace(
        data,
        levels=np.where(filled, noisy, data.levels),
        weights=np.where(filled, NOISY, data.weights),
    )


def pseudo_levels(data: LabelledData, encoder: StateEncoder) -> Ints:
    """(n, K) levels by a teacher where a training response lacks them, MISSING elsewhere.

    The teacher is a logistic regression for each concept on the mean states of the encoder as it was loaded, fitted on
    the training responses that have its label; a concept whose labels are all the same teaches nothing.
    """
    pseudo, train = np.full_like(data.levels, MISSING), data.split == "train"
    unlabelled = train[:, None] & (data.levels == MISSING)
    if not unlabelled.any():
        return pseudo
    encoder.load_state_dict(None)
    means = encoder.means if isinstance(encoder, Pooled) else Pooled(encoder).means
    scaled = StandardScaler().fit(means[train]).transform(means)
    for concept, levels in enumerate(data.levels.T):
        labelled = train & (levels != MISSING)
        if unlabelled[:, concept].any() and len(np.unique(levels[labelled])) > 1:
            teacher = LogisticRegression(C=0.1, max_iter=1_000).fit(scaled[labelled], levels[labelled])
            pseudo[unlabelled[:, concept], concept] = teacher.predict(scaled[unlabelled[:, concept]])
    return pseudo


def mixed_loss(
    model: Joint, means: Tensor, targets: Targets, share: float, order: Tensor, plan: Training
) -> dict[str, Tensor]:
    """The joint loss of λ·h + (1 − λ)·h′ against λ times the labels and 1 − λ times those of the other one.

    means: (B, d) representations h; share: λ; order: (B,) which h′ each is mixed with.
    """
    mixed = share * means + (1 - share) * means[order]
    logits = model(mixed[:, None], torch.ones(len(mixed), 1, dtype=torch.bool, device=mixed.device))
    other = Targets(targets.levels[order], targets.weights[order], targets.grades[order])
    # Cross-entropy is linear in its target: a mixture of losses is the loss of the mixture.
    losses, other_losses = joint_loss(logits, targets, plan), joint_loss(logits, other, plan)
    return {name: share * losses[name] + (1 - share) * other_losses[name] for name in losses}
