// The middle of the page: the response with its evidence, and the grader beneath it.

import { $, el, fill } from "./dom.js";
import { mine, nameOf, page } from "./state.js";
import { Panel } from "./panel.js";

export const panel = new Panel();

// toCriterion(i): somebody follows evidence to its criterion.
export function drawResponse(toCriterion) {
  const { view, evidence } = page;
  fill($("main"),
    el("h2", {}, el("bdi", {}, view.response_id), view.student && el("span", { class: "mute" }, " ", el("bdi", {}, view.student))),
    el("p", { class: "question", dir: "auto", lang: view.lang }, view.question),
    folded("Model answer", view.reference),
    folded("Rubric, as its author wrote it", view.rubric),
    folded("Context", view.context),
    el("p", { class: "why" }, el("b", {}, `${view.why ?? "Second rating, blind"}. `), part()),
    view.history.length > 0 && el("details", { class: "more" }, el("summary", {}, "What was said of the score until now"),
      el("ol", {}, view.history.map(line => el("li", { dir: "auto" }, line)))),
    el("p", { class: evidence ? "answer" : "answer plainly", id: "response", tabindex: -1, dir: "auto", lang: view.lang, "aria-label": "The response" },
      view.pieces.map(one => piece(one, toCriterion)),
      !view.pieces.length && el("span", { class: "mute" }, "The response is empty.")),
    view.explanation.length > 0 && el("section", { class: "explained", "aria-label": "The judge’s explanation" },
      el("h3", {}, "What the judge said"), el("p", { dir: "auto" }, view.explanation.map(said))),
    page.list.grader && el("details", { class: "panel", id: "panel", open: panel.open,
      ontoggle: event => panel.open = event.target.open }));
  if (page.list.grader) drawPanel();
}

function folded(title, text) {
  return text && el("details", { class: "more" }, el("summary", {}, title), el("p", { dir: "auto" }, text));
}

function said(one) {                               // words of the judge, and those that it quotes
  if (one.holds === null) return one.text;
  return one.holds ? el("mark", { title: "stands in the answer" }, one.text)
    : el("s", { class: "lost", title: "does not stand in the answer" }, one.text);
}

function part() {                                  // the reviewer's part in this case
  if (page.view.third) return "You settle what the others disagree on.";
  if (mine().submitted) return "Submitted.";
  if (page.view.marked) return "The mark stands; a score that you submit takes its place.";
  if (page.view.hides === "verdict") return "The judge’s verdict stays hidden until you submit; its words may tell it.";
  return page.view.second || page.view.hides ? "The machine’s work and earlier votes stay hidden until you submit."
    : "You rate first, with the machine’s work in view; whoever comes second does not see it.";
}

function piece(one, toCriterion) {
  if (one.title) return el("b", { class: "turn" }, one.text);
  if (!one.of.length) return one.text;
  const of = one.of.map(id => page.view.asked.findIndex(other => other.criterion_id === id)).filter(i => i >= 0);
  const follow = event => { event.preventDefault(); toCriterion(of[0]); };
  return el("a", { class: "evidence", href: `#c${of[0]}`, tabindex: one.starts.length ? 0 : -1, "data-c": of.join(" "),
    title: `evidence for ${one.of.join(", ")}`, onclick: follow },
  one.text, one.ends.length > 0 && el("sub", {}, one.ends.map(id => el("bdi", {}, id))));
}

function drawPanel() {
  const { view } = page;
  if (view.sees_machine && view.grader) return panel.show($("panel"), view.grader, nameOf(view));
  const [title, why] = view.sees_machine
    ? ["Grader: no estimate", "The grader has no estimate for this response, so there is no number, and none is made up."]
    : ["Grader", "Hidden: this is a blind rating. It opens when you submit."];
  fill($("panel"), el("summary", {}, el("h2", { id: "grade" }, title)), el("p", { class: "mute note" }, why));
}

// A criterion and its evidence light up together.
function light(target, on) {
  const numbers = target.closest?.("[data-c]")?.dataset.c.split(" ") ?? [];
  for (const i of numbers) {
    for (const node of document.querySelectorAll(`[data-c~="${i}"]`)) node.classList.toggle("on", on);
  }
}
for (const kind of ["mouseover", "focusin"]) document.addEventListener(kind, event => light(event.target, true));
for (const kind of ["mouseout", "focusout"]) document.addEventListener(kind, event => light(event.target, false));
