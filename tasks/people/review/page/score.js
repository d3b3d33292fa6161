// The score of a case: what the machine gave, what follows from the reviewer's levels, and their own.

import { $, el, fill } from "./dom.js";
import { ask } from "./outbox.js";
import { CANNOT, idOf, isScored, isUnstored, mine, nameOf, noteDraft, drafts, page } from "./state.js";

const following = new Map();                       // case → { key, told }: the levels asked about, and what follows from them

// Criterion → the level that the reviewer set.
function levels(state) {
  const votes = page.view.asked.filter(one => one.criterion_id !== null).map(one => [one.criterion_id, state.votes.get(idOf(one))]);
  return Object.fromEntries(votes.filter(([, vote]) => vote && vote.value !== CANNOT).map(([id, vote]) => [id, Number(vote.value)]));
}

const follows = () => isScored() && page.view.sees_machine && page.view.predicted !== null && !page.view.third;

// Asks the server what follows, where levels have changed since; several answers may come, and only the last counts.
export async function follow() {
  if (!page.view || !follows()) return;
  const name = nameOf(page.view), set = levels(mine()), key = JSON.stringify(set);
  if (key === "{}") following.delete(name);
  else if (following.get(name)?.key !== key) {
    const asked = { key, told: null };
    asked.answer = ask(`/api/cases/${page.at}/following`, { levels: set }).then(told => asked.told = told, error => {
      asked.told = { value: null, sentence: `not known: ${error.status ? error.message : "no answer from the server"}` };
      asked.key = null;                            // the next look asks again
    });
    following.set(name, asked);
    touchScore();
    await asked.answer;
  }
  if (page.view && nameOf(page.view) === name) touchScore();
}

// When what was asked about the case has been answered.
export function answered() { return following.get(nameOf(page.view))?.answer; }

// What can be taken over as the reviewer's score: { value, isFollowing }; a value of null where there is none, or none yet.
export function onOffer() {
  const { view } = page, asked = following.get(nameOf(view));
  if (!follows()) return { value: null };
  return asked ? { value: asked.told?.value ?? null, isFollowing: true } : { value: view.predicted.value };
}

export function scoreLines() {
  const { view } = page;
  if (!view.sees_machine) return el("p", { class: "mute" }, "The machine’s score stays hidden until you submit.");
  if (!view.predicted) return null;
  return [line("The machine’s score", view.predicted, "m"),
    el("div", { id: "follows", role: "status" }, followLine()),
    sure(following.get(nameOf(view))?.told ?? view.predicted)];
}

function followLine() {
  const told = following.get(nameOf(page.view));
  if (!told) return el("p", { class: "mute" }, "Move a criterion, and the score that follows stands here.");
  return line("The score that follows from your criteria", told.told ?? { sentence: "is being worked out …" }, "f");
}

function line(title, told, kind) {
  return el("p", { class: "line" }, el("span", {}, title), " ", el("b", { class: kind }, told.sentence), " ",
    told.points && el("span", {}, `${told.points}; people’s scores of other answers moved it`));
}

function sure(told) {
  const { coverage } = page.list;
  const rule = coverage && `Such intervals are made to hold ${Math.round(1000 * coverage) / 10}% of the scores that people give.`;
  const more = [told.chance && `${told.chance}.`, rule].filter(Boolean);
  return more.length > 0 && el("details", { class: "more", id: "sure" }, el("summary", {}, "How sure is this?"),
    more.map(text => el("p", {}, text)));
}

export function takeLabel() {
  const offer = onOffer();
  if (offer.value === null) return null;
  return `Take ${offer.value}${offer.isFollowing ? ", which follows from your criteria" : ", the machine’s"}`;
}

// What changes when an answer comes, without replacing what somebody may be about to click.
function touchScore() {
  if ($("follows")) fill($("follows"), followLine());
  const label = takeLabel();
  if ($("take")) $("take").hidden = label === null;
  if ($("takeLabel") && label) $("takeLabel").textContent = label;
}

// ---- the note to the student
export function noteBox(on) {
  if (!isScored() || page.list.vouching) return null;
  const state = mine(), others = page.view.notes.filter(note => note.rater !== page.me);
  const text = drafts.get(noteDraft()) ?? state.notes.at(-1)?.text ?? "";
  return el("div", { class: "note student" },
    el("label", { for: "studentNote" }, "Note to the student ", el("kbd", {}, "w")),
    el("textarea", { id: "studentNote", maxlength: 4000, dir: "auto", onchange: on.saveNote,
      oninput: event => { drafts.set(noteDraft(), event.target.value); touchNote(); } }, text),
    el("p", { class: "mute", id: "noteState" }, noteState()),
    others.map(note => el("p", { class: "said" }, el("bdi", {}, note.rater), ": ", el("span", { dir: "auto" }, note.text))));
}

function noteState() {
  const last = mine().notes.at(-1), text = last?.text ?? "";
  if ((drafts.get(noteDraft()) ?? text).trim() !== text) return "Not stored yet: it is when you leave the box.";
  if (!last) return "The student reads it on their page of feedback.";
  return isUnstored(last) ? "Not stored yet." : "Stored.";
}

export function touchNote() {
  if ($("noteState")) $("noteState").textContent = noteState();
}
