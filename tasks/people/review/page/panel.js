// The grader's panel: move a concept and see the grade follow. Trying is not voting.

import { $, el, fill, say, svg } from "./dom.js";
import { contributions, graded } from "./grade.js";

const STEP = 0.1, MANY = 12;                       // of a level per arrow key; grades whose labels still fit
const signed = value => (Math.abs(value) < .005 ? "" : value < 0 ? "−" : "+") + Math.abs(value).toFixed(2);
const percent = share => `${(100 * share).toFixed(3)}%`;

export class Panel {
  constructor() {
    this.tried = new Map();                        // case → shares that were tried
    this.mode = "lead";
    this.open = !matchMedia("(max-width: 640px)").matches;
  }

  // box: the details element. head: the grader with the shares of this case. name: which case.
  show(box, head, name) {
    Object.assign(this, { head, name });
    if (!this.tried.has(name)) this.tried.set(name, head.shares.slice());
    const count = head.scores.length;
    fill(box, el("summary", {}, el("h2", { id: "grade" })),
      el("p", { class: "mute note" }, "Move a concept to see the grade follow. Trying is not voting; a vote sets its slider.",
        " The tick is the grader’s own estimate."),
      el("div", { class: count > MANY ? "odds many" : "odds", id: "odds", role: "img" }),
      el("div", { class: "modes", role: "radiogroup", "aria-label": "What the bars explain" },
        this.modeChoice("lead", "modeLead"), this.modeChoice("logit", "modeLogit"),
        el("button", { class: "plain", onclick: () => this.reset() }, "Reset")),
      el("div", { class: "row head", "aria-hidden": "true" }, el("span", {}, "concept"), el("span", {}, "level"),
        el("span", { class: "num" }, "corrected"), el("span", {}, "contribution"), el("span", { class: "num" }, "logit")),
      this.row("bias", el("span", {}, "Bias")),
      head.criteria.map((id, k) => this.row(k, this.concept(id, k), this.slider(k))),
      this.row("sum", el("span", {}, "Sum")));
    this.update();
  }

  concept(id, k) {
    const text = this.head.texts[k];
    return el("label", { for: `slider-${k}`, title: text }, el("b", {}, el("bdi", {}, id)), " ", el("span", { dir: "auto" }, text));
  }

  row(id, label, control = el("span", { class: "track" })) {
    return el("div", { class: id === "sum" ? "row sum" : "row" }, el("div", { class: "concept" }, label), control,
      el("span", { class: "num", id: `level-${id}` }), svg("svg", { id: `bar-${id}`, class: "bar", height: 14, "aria-hidden": "true" }),
      el("span", { class: "num" }, el("data", { id: `logit-${id}` })));
  }

  slider(k) {
    const top = this.head.tops[k], x = percent(this.head.shares[k]);
    const input = el("input", { type: "range", id: `slider-${k}`, min: 0, max: top, step: "any",
      oninput: event => this.set(k, Number(event.target.value)), onkeydown: event => this.key(event, k) });
    return el("div", { class: "track" }, input,
      svg("svg", { class: "tick", height: 8, "aria-hidden": "true" }, svg("line", { x1: x, x2: x, y1: 0, y2: 8 })));
  }

  key(event, k) {                                  // arrows by a tenth of a level, Page Up and Page Down to whole ones
    const top = this.head.tops[k], level = this.tried.get(this.name)[k] * top;
    const to = { ArrowRight: level + STEP, ArrowUp: level + STEP, ArrowLeft: level - STEP, ArrowDown: level - STEP,
      PageUp: Math.floor(level + 1), PageDown: Math.ceil(level - 1), Home: 0, End: top }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.set(k, to);
  }

  set(k, level) {
    const top = this.head.tops[k];
    this.tried.get(this.name)[k] = Math.min(top, Math.max(0, level)) / top;
    this.update();
    clearTimeout(this.telling);
    this.telling = setTimeout(() => say($("grade")?.textContent ?? ""), 500);
  }

  // A vote sets the slider of its criterion, and no vote sets it back; `level` is null then.
  vote(name, head, criterion, level) {
    const k = head.criteria.indexOf(criterion);
    if (k < 0) return;
    if (!this.tried.has(name)) this.tried.set(name, head.shares.slice());
    this.tried.get(name)[k] = level === null ? head.shares[k] : Math.min(1, level / head.tops[k]);
    if (this.name === name && $("odds")) this.update();
  }

  reset() {
    this.tried.set(this.name, this.head.shares.slice());
    this.update();
    say(`Sliders reset. ${$("grade").textContent}`);
  }

  modeChoice(value, id) {
    return el("label", {}, el("input", { type: "radio", name: "mode", value, checked: this.mode === value,
      onchange: () => { this.mode = value; this.update(); } }), el("span", { id }));
  }

  update() {
    const head = this.head, shares = this.tried.get(this.name), now = graded(head, shares), was = graded(head, head.shares).best;
    const score = grade => String(head.scores[grade]), chance = grade => now.probabilities[grade].toFixed(2);
    const moved = now.best === was ? "" : ` (was ${score(was)})`, next = `${score(now.next)} at ${chance(now.next)}`;
    $("grade").textContent = `Grade ${score(now.best)}${moved}: probability ${chance(now.best)}, ahead of ${next}`;
    $("modeLead").textContent = `Why ${score(now.best)} rather than ${score(now.next)}`;
    $("modeLogit").textContent = `The logit of ${score(now.best)}`;
    this.odds(now, score, chance);
    const added = contributions(head, now.corrected, now.best, this.mode === "lead" ? now.next : null);
    const steps = [added.bias, ...added.parts].reduce((sums, part) => [...sums, sums.at(-1) + part], [0]);
    const low = Math.min(...steps), span = Math.max(...steps) - low || 1, place = value => (value - low) / span;
    bar("bias", 0, added.bias, place);
    added.parts.forEach((part, k) => {
      bar(k, steps[k + 1], part, place);
      const level = shares[k] * head.tops[k];
      $(`slider-${k}`).value = level;
      $(`level-${k}`).textContent = `${level.toFixed(1)} → ${(now.corrected[k] * head.tops[k]).toFixed(2)}`;
      $(`slider-${k}`).setAttribute("aria-valuetext", `level ${level.toFixed(1)} of ${head.tops[k]}, contributes ${signed(part)}`);
    });
    bar("sum", 0, added.sum, place, "total");
  }

  odds(now, score, chance) {
    // Of all where there are few grades; of the most probable one where all would be low.
    const whole = now.probabilities.length > MANY ? now.probabilities[now.best] : 1;
    const high = share => Math.max(1, 56 * share / whole);
    const column = share => svg("rect", { x: 0, width: "100%", y: (56 - high(share)).toFixed(2), height: high(share).toFixed(2) });
    const spoken = (_, grade) => `${score(grade)}: ${chance(grade)}`;
    fill($("odds"), now.probabilities.map((share, grade) => el("div", { class: grade === now.best && "pick", title: spoken(share, grade) },
      svg("svg", { height: 56, "aria-hidden": "true" }, column(share)),
      el("span", {}, score(grade)), el("data", { value: share }, chance(grade)))));
    $("odds").setAttribute("aria-label", `Probability of each grade: ${now.probabilities.map(spoken).join(", ")}`);
  }
}

// A waterfall: each bar begins where the one before it ended. What takes away is hollow.
function bar(id, from, change, place, kind = change < 0 ? "less" : "more") {
  const ends = [place(from), place(from + change)].sort((a, b) => a - b), zero = percent(place(0));
  fill($(`bar-${id}`), svg("line", { x1: zero, x2: zero, y1: 0, y2: 14 }),
    svg("rect", { class: kind, x: percent(ends[0]), width: percent(Math.max(.004, ends[1] - ends[0])), y: 2, height: 10 }));
  $(`logit-${id}`).textContent = signed(change);
  $(`logit-${id}`).value = change;
}
