// The right of the page: criteria to vote on, what the machine and, once it may be seen, others say of them.

import { $, el, fill } from "./dom.js";
import { ofScale, readPoints } from "./points.js";
import { noteBox, scoreLines, takeLabel, touchNote } from "./score.js";
import {
  CANNOT, called, canSettle, choices, drafts, idOf, isApart, isClosed, isScored, isTyped, isUnstored, mine, opened, page, placeOf,
  todo, typed, valuesOf, worded,
} from "./state.js";

const LONG = 44, FEW = 13;                         // characters of a heading that leaves no room next to it; scores in sight

// on: what somebody may do: mark(i), cast(value), type(i, text), comment(i), saveComment(one), settle(i), submit, undo, onward.
export function drawRubric(on) {
  const { view } = page, state = mine(), drawn = view.asked.map((one, i) => criterion(one, i, state, on));
  const [score, ...criteria] = isScored() ? drawn : [null, ...drawn];
  fill($("rubric"), isScored() ? scoreCard(score, state, on) : el("h2", {}, "Rubric"),
    isScored() && criteria.length > 0 && el("h2", { class: "part" }, "Criteria"), criteria,
    noteBox(on), el("div", { class: "end" }, ending(state, on)));
}

function scoreCard(score, state, on) {             // stays in sight next to long rubrics
  const label = takeLabel(), few = page.view.asked[0].options.length <= FEW;
  return el("div", { class: few ? "card" : "card large" }, el("h2", {}, "Score"), scoreLines(), score,
    !isClosed(state) && el("button", { class: "plain", id: "take", hidden: label === null, onclick: on.take },
      el("span", { id: "takeLabel" }, label), " ", el("kbd", {}, "t")));
}

// What changes while acts are on their way, without replacing what somebody may be about to click.
export function touchRubric() {
  const state = mine();
  for (const [i, one] of page.view.asked.entries()) {
    const vote = state.votes.get(idOf(one));
    $(`c${i}`)?.classList.toggle("unstored", Boolean(vote && isUnstored(vote)));
  }
  if ($("todo")) $("todo").textContent = todo(state);
  touchNote();
}

function criterion(one, i, state, on) {
  const vote = state.votes.get(idOf(one)), settles = canSettle(one, state);
  const kinds = ["crit", i === page.crit && "now", isApart(one, state) && "apart", vote && isUnstored(vote) && "unstored"];
  return el("section", { class: kinds.filter(Boolean).join(" "), id: `c${i}`, "data-c": i },
    isTyped(one) && [heading(one, { id: `h${i}` }), (settles || !isClosed(state)) && entry(one, i, on)],
    choice(one, i, state, on), one.machine.map(label => machine(label, i)), said(one, state),
    (settles || !isClosed(state)) && note(one, i, vote, settles, on));
}

function heading(one, attributes = {}) {
  return el("h3", attributes, one.criterion_id && el("bdi", { class: "id" }, one.criterion_id),
    el("span", { dir: "auto" }, one.criterion_id === null ? "Your score" : one.text,
      one.doubtful && [" ", el("small", {}, "in doubt")]), counts(one));
}

function counts(one) {                             // what a criterion counts for in the score
  if (one.needed || one.weight === null) return null;
  const part = one.part_of && [" of ", el("bdi", {}, one.part_of)];
  const weight = `${one.weight < 0 ? "costs" : "counts"} ${String(Math.abs(one.weight))}`;
  return el("small", { class: "counts" }, weight, part);
}

function choice(one, i, state, on) {
  const vote = state.votes.get(idOf(one)), settles = canSettle(one, state);
  const cannot = { value: CANNOT, key: CANNOT, text: "cannot be judged" };
  const options = one.needed ? [...one.options, cannot] : one.options;
  const chosen = settles ? choices.get(placeOf(one)) : isClosed(state) && state.settled.get(idOf(one))?.value || vote?.value;
  const start = Math.max(0, options.findIndex(option => option.value === (chosen ?? (!one.needed && one.machine[0]?.value))));
  const radio = (option, k) => el("button", { role: "radio", class: option.value === CANNOT ? "cannot" : null,
    "aria-checked": String(option.value === chosen), "aria-disabled": isClosed(state) && !settles ? "true" : null,
    tabindex: k === start ? 0 : -1, onclick: () => { on.mark(i); on.cast(option.value); }, onfocus: () => on.mark(i) },
  el("b", {}, option.value), option.text && el("span", { dir: "auto" }, option.text), voters(one, option, vote), el("span", { class: "flag" }, "not stored"));
  const isBare = one.options.every(option => !option.text);
  const isLong = isTyped(one) || `${one.criterion_id} ${one.text}`.length > LONG;
  return el("div", { role: "radiogroup", class: isBare ? "bare" : isLong ? "long" : null, "aria-labelledby": `h${i}`, onkeydown: event => arrows(event, one) },
    !isTyped(one) && heading(one, { id: `h${i}` }), options.map(radio));
}

function entry(one, i, on) {                       // where points are typed
  const text = typed.get(placeOf(one)) ?? "";
  return el("div", { class: "entry" },
    el("input", { id: `points${i}`, type: "text", inputmode: valuesOf(one)[0] < 0 ? "text" : "decimal", autocomplete: "off", maxlength: 20,
      "aria-labelledby": `h${i}`, "aria-describedby": `typed${i}`, onfocus: () => on.mark(i), value: text,
      oninput: event => on.type(i, event.target.value) }),
    el("span", { id: `typed${i}`, class: "mute", role: "status" }, typedLine(one, text).line));
}

// What is told of a text while it is typed; isRefused: it can be none of the scores, whatever follows.
function typedLine(one, text) {
  const values = valuesOf(one), { value, mayBecome, why } = readPoints(text, values);
  if (!text.trim()) return { line: `Type ${one.criterion_id === null ? "points" : "the level"}, ${ofScale(values)}, then Enter; arrows step.` };
  if (value !== null) return { line: `Enter sets ${value}; Esc clears.` };
  return mayBecome ? { line: `${text} … type on, or Esc clears.` } : { line: `${why} Esc clears.`, isRefused: true };
}

// The line under what is typed, in place, so that it is read out. isDone: nothing more is typed, and it is no score.
export function touchTyped(i, isDone = false) {
  const one = page.view.asked[i], text = typed.get(placeOf(one)) ?? "", { line, isRefused } = typedLine(one, text);
  $(`typed${i}`).textContent = isDone ? `${readPoints(text, valuesOf(one)).why} Esc clears.` : line;
  $(`typed${i}`).className = isDone || isRefused ? "lost" : "mute";
  $(`points${i}`).setAttribute("aria-invalid", String(isDone || Boolean(isRefused)));
}

function arrows(event, one) {                      // arrows move the focus; Space or Enter votes, so passing by is no vote
  const down = isTyped(one) ? -1 : 1;              // levels stand below each other, the lowest first; points go up and down
  const step = { ArrowDown: down, ArrowRight: 1, ArrowUp: -down, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const all = [...event.currentTarget.querySelectorAll("[role=radio]")], i = all.indexOf(document.activeElement);
  all[(i + step + all.length) % all.length].focus();
}

function voters(one, option, own) {
  const judges = one.needed ? [] : one.machine.filter(label => label.value === option.value);
  const machines = judges.map(label => el("bdi", { class: "by-machine" }, label.rater));
  if (!page.view.sees_people) return machines.length > 0 && el("span", { class: "voters" }, machines);
  const names = page.view.others.filter(other => other.votes[idOf(one)]?.value === option.value).map(other => other.rater);
  if (own?.value === option.value) names.push("you");
  return names.length + machines.length > 0
    && el("span", { class: "voters" }, machines, names.map(name => el("bdi", {}, name)));
}

function said(one, state) {                        // comments of all that may be seen, and how it was settled
  const own = isClosed(state) && ["You", state.votes.get(idOf(one))?.comment];
  const others = page.view.others.map(other => [other.rater, other.votes[idOf(one)]?.comment]);
  const line = (who, text) => el("p", { class: "said" }, who, ": ", el("span", { dir: "auto" }, text));
  const settled = state.settled.get(idOf(one)), by = settled?.rater === page.me ? "you" : settled?.rater;
  return [[...others, own || []].filter(([, text]) => text).map(([name, text]) => line(el("bdi", {}, name), text)),
    settled && line([el("b", {}, `Settled: ${worded(one, settled.value)}`), ", by ", el("bdi", {}, by)], settled.comment)];
}

function machine(label, i) {
  if (label.hidden) {
    const quotes = label.quotes.map((quote, k) => [k ? "; " : " ", quoted(quote, i), quote.at && ` (${quote.at})`, quote.note && ` (${quote.note})`]);
    return label.quotes.length > 0 && el("p", { class: "machine" }, el("bdi", {}, label.rater), " quotes", quotes);
  }
  const kind = page.view.asked[i].criterion_id === null ? "score" : "level", gives = label.value !== null;
  const chance = isScored() ? ` (${Math.round(100 * label.probability)}% sure)` : ` at ${label.probability?.toFixed(2)}`;
  const sure = label.probability === null ? "" : chance;
  return el("p", { class: "machine" }, el("bdi", {}, label.rater), " ",
    el("span", { class: "m" }, gives ? `${kind} ${label.value}` : `no ${kind}`),
    gives ? sure : `: ${label.reason ?? "no reason given"}`,
    label.action && label.stated !== label.value && ` (it said ${label.stated}; ${label.action})`,
    label.quotes.map((quote, k) => [k ? "; " : ": ", quoted(quote, i), quote.at && ` (${quote.at})`, quote.note && ` (${quote.note})`]),
    gives && kind === "level" && !label.quotes.length && ", no quote", label.look && ` · ${label.look}`);
}

function quoted(quote, i) {                        // leads to its highlight
  if (!quote.holds) return el("s", { class: "quote", dir: "auto" }, `“${quote.text}”`);
  const jump = event => { event.preventDefault(); document.querySelector(`.evidence[data-c~="${i}"]`)?.focus(); };
  return el("a", { class: "quote", href: "#response", dir: "auto", onclick: jump }, `“${quote.text}”`);
}

function note(one, i, vote, settles, on) {
  const place = placeOf(one), text = drafts.get(place) ?? (settles ? "" : vote?.comment ?? "");
  const isNeeded = settles || vote?.value === CANNOT;
  if (!text && !isNeeded && !opened.has(place)) {
    return el("button", { class: "quiet", onclick: () => on.comment(i) }, "Comment ", el("kbd", {}, "c"));
  }
  const title = settles ? "What the discussion came to" : isNeeded ? "Why it cannot be judged"
    : vote ? "Comment" : "Comment, stored with your vote";
  return el("div", { class: "note" }, el("label", { for: `note${i}` }, title),
    el("textarea", { id: `note${i}`, maxlength: 4000, dir: "auto", onfocus: () => on.mark(i),
      oninput: event => drafts.set(place, event.target.value), onchange: () => { if (!settles) on.saveComment(one); } }, text),
    settles && el("button", { class: "go", onclick: () => on.settle(i) }, `Settle ${called(one)}`));
}

function ending(state, on) {
  const button = (kind, name, key, act, id = null) => el("button", { class: kind, id, onclick: act }, `${name} `, el("kbd", {}, key));
  const undo = button("plain", "Undo", "u", on.undo);
  if (isClosed(state)) {
    return [el("p", { id: "outcome", tabindex: -1 }, outcome(state)),
      el("div", { class: "acts" }, button("plain", "Next case", "n", on.onward), undo)];
  }
  return el("div", { class: "acts" }, button("go", "Submit", "s", on.submit, "submit"), undo,
    el("span", { class: "mute", id: "todo" }, todo(state)), alike());
}

function alike() {
  const names = page.view.alike, shown = names.slice(0, 6), rest = names.length - shown.length;
  return names.length > 0 && el("p", { class: "mute" }, page.view.pieces.length ? "Decides the same words, too, in " : "Decides these empty answers, too: ",
    shown.map((name, i) => [i ? ", " : "", el("bdi", {}, name)]), rest > 0 && ` and ${rest} more`);
}

function outcome(state) {
  const { view } = page, count = view.asked.length;
  if (!view.sees_people && view.second) return "Submitted; the server has not answered yet.";
  if (!view.others.length) return "Submitted. A second reviewer rates it blind; you both see who voted what after that.";
  const values = one => [...view.others.map(other => other.votes[idOf(one)]?.value), state.votes.get(idOf(one))?.value];
  const apart = view.asked.filter(one => new Set(values(one).filter(Boolean)).size > 1);
  const open = view.asked.filter(one => isApart(one, state)).map(called);
  if (!apart.length) return count === 1 ? "All reviewers agree." : `All reviewers agree on all ${count}.`;
  const rest = open.length ? `To adjudicate: ${open.join(", ")}.` : "The rest is settled.";
  return `${view.third ? "They" : "You"} agree on ${count - apart.length} of ${count}. ${rest}`;
}
