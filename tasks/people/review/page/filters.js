// Which cases the list shows, and in which order.

import { $, el, fill } from "./dom.js";
import { isDone } from "./state.js";

const ALL = "";
const STATES = { [ALL]: "all", open: "open", done: "looked at or marked" };
const ORDERS = { [ALL]: "highest risk first", question: "question", student: "student" };
const chosen = { text: "", question: ALL, state: ALL, order: ALL };

const student = row => row.student ?? row.response_id;
const compared = (a, b) => a.localeCompare(b, undefined, { numeric: true });
const BY = {
  question: (a, b) => compared(a.item_id, b.item_id),
  student: (a, b) => compared(student(a), student(b)),
};

// The numbers of the cases that the list shows, in its order; sorting leaves the order of waiting where rows are equal.
// The current case stays where it is when it is settled, so that the next one is the one after it.
export function order(cases, current) {
  const wanted = chosen.text.trim().toLocaleLowerCase();
  const isNamed = row => !wanted || [student(row), row.response_id].some(name => name.toLocaleLowerCase().includes(wanted));
  const isAsked = row => chosen.question === ALL || row.item_id === chosen.question;
  const isInState = row => chosen.state === ALL || (chosen.state === "done") === isDone(row);
  const fits = number => isNamed(cases[number]) && isAsked(cases[number]) && (isInState(cases[number]) || number === current);
  const numbers = cases.map((_, number) => number).filter(fits), compare = BY[chosen.order];
  return compare ? numbers.sort((a, b) => compare(cases[a], cases[b])) : numbers;
}

// Draws the controls once, for lists of scores. changed(): somebody chose otherwise.
export function drawFilters(list, changed) {
  const box = $("filters");
  box.hidden = !list.cases.some(row => row.subject_kind === "score");
  if (box.hidden || box.dataset.study === list.study) return;
  box.dataset.study = list.study;
  const set = name => event => { chosen[name] = event.target.value; changed(); };
  const choice = (name, title, options) => el("label", {}, title,
    el("select", { id: `by-${name}`, onchange: set(name) }, Object.entries(options).map(([value, text]) => el("option", { value }, text))));
  const questions = Object.fromEntries(Object.entries(list.questions).map(([id, text]) => [id, shortened(id, text)]));
  fill(box, el("summary", {}, "Filter and order"),
    el("label", {}, "Student or answer ", el("kbd", {}, "/"), el("input", { type: "text", autocomplete: "off", id: "by-text", oninput: set("text") })),
    Object.keys(questions).length > 1 && choice("question", "Question", { [ALL]: "all", ...questions }),
    choice("state", "Show", STATES), choice("order", "Order", ORDERS));
}

function shortened(id, text) {
  const line = `${id}: ${text.replace(/\s+/g, " ")}`;
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
}
