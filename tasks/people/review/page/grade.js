// A bottleneck grader's arithmetic: logits = W·A·s + b, probabilities = softmax(logits / temperature).
// head: weights W (grades × concepts), correction A (concepts × concepts), bias b, temperature; s: shares in [0, 1].

const times = (matrix, vector) => matrix.map(row => row.reduce((sum, value, k) => sum + value * vector[k], 0));

export function graded(head, shares) {
  const corrected = times(head.correction, shares);
  const logits = times(head.weights, corrected).map((logit, grade) => logit + head.bias[grade]);
  const top = Math.max(...logits);
  const powers = logits.map(logit => Math.exp((logit - top) / head.temperature));
  const total = powers.reduce((sum, power) => sum + power, 0);
  const order = logits.map((_, grade) => grade).sort((a, b) => logits[b] - logits[a] || a - b);
  return { corrected, logits, probabilities: powers.map(power => power / total), best: order[0], next: order[1] };
}

// What bias and concepts add to the logit of a grade, or to its lead over another one.
export function contributions(head, corrected, grade, over = null) {
  const lead = row => row[grade] - (over === null ? 0 : row[over]);
  const parts = corrected.map((value, k) => lead(head.weights.map(row => row[k])) * value);
  const bias = lead(head.bias);
  return { bias, parts, sum: parts.reduce((sum, part) => sum + part, bias) };
}
