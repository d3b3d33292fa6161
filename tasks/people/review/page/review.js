// The review page: the list of cases, one response, its rubric. The server decides what may be seen.

import { $, el, fill, say } from "./dom.js";
import { Outbox, ask, uuid } from "./outbox.js";
import { Queue } from "./queue.js";
import { drawResponse, panel } from "./response.js";
import { readPoints, stepped } from "./points.js";
import { drawRubric, touchRubric, touchTyped } from "./rubric.js";
import { drawFilters, order } from "./filters.js";
import { answered, follow, onOffer } from "./score.js";
import {
  CANNOT, called, canSettle, choices, drafts, idOf, isApart, isClosed, isDone, isScored, isSilent, isTyped, isUnstored, lastAct,
  mine, nameOf, noteDraft, opened, page, placeOf, remember, typed, valuesOf, wasShown, worded,
} from "./state.js";

const REFRESH = 30000, PAUSE = 3000;               // ms between looks at the list; before asking again after a failure
const queue = new Queue($("list"), row => open(row.number, page.adjudicating));
const on = { mark, cast, type, comment, saveComment, settle, submit, undo, onward, take, saveNote };
let visit = 0, drawn = -1;

// ---- talking to the server
async function refresh() {
  try {
    const list = await ask(`/api/cases?adjudicating=${page.adjudicating}`);
    if (list.adjudicating !== page.adjudicating) return;  // another request is on its way
    page.list = list;
    count();
    drawFrame();
  } catch (error) { if (error.status === 401) begin(); }
}

async function go(number, adjudicating = false, focus = 0) {
  const now = ++visit;
  if (number !== page.at) page.view = null;        // nothing typed now is about the case before
  page.at = number;
  const known = new Set(page.log.filter(act => !isUnstored(act)).map(act => act.act_id));
  drawFrame();
  try {
    const fresh = await ask(`/api/cases/${number}?adjudicating=${adjudicating}`);
    if (now !== visit) return;
    if (nameOf(fresh) !== nameOf(page.list.cases[number])) return location.reload();  // the server has another queue now
    page.view = { ...fresh, third: adjudicating && fresh.sees_people && fresh.submission === null };
  } catch (error) {
    if (now === visit) drawProblem(error, () => go(number, adjudicating, focus));
    return;
  }
  page.log = page.log.filter(act => nameOf(act) !== nameOf(page.view) || !known.has(act.act_id));
  if (page.view.sees_machine) remember();
  page.list.cases[number].why = page.view.why;
  page.crit = Math.max(0, Math.min(page.view.asked.length - 1, focus));
  draw();
  follow();
  if (drawn !== number) document.querySelectorAll("main, #rubric").forEach(pane => pane.scrollTop = 0);
  drawn = number;
}

async function open(number, adjudicating = false) {  // a case, at what is to be done there
  if (number !== page.at && !settled()) return;
  await go(number, adjudicating);
  const { view } = page;
  if (!view) return;
  const state = mine();
  const isToDo = one => adjudicating ? isApart(one, state) : one.needed && !state.votes.get(idOf(one));
  focusOn(Math.max(0, view.asked.findIndex(isToDo)));
  say(`${view.response_id}. ${view.why ?? "Second rating, blind"}.`);
}

async function reload() {                          // the same case as the server sees it now, at the same place
  await go(page.at, page.view.third || page.adjudicating, page.crit);
  if (page.view?.sees_people && $("outcome")) say($("outcome").textContent);
}

function send(kind, fields = {}) {
  const { response_id } = page.view, subject_kind = fields.criterion_id ? "label" : page.view.subject_kind;
  const act = { act_id: uuid(), kind, subject_kind, response_id, rater: page.me, ...fields };
  page.refusal = "";
  page.log.push(act);
  page.made.push(act);
  page.outbox.add(act);
  count();
}

function stored(act) {
  if (act.kind === "vote" || act.kind === "note" || !page.view) return;
  refresh();
  if (nameOf(act) === nameOf(page.view)) reload();
}

function refused(act, reason) {
  for (const acts of ["log", "made"]) page[acts] = page[acts].filter(one => one.act_id !== act.act_id);
  page.refusal = `Not stored: ${reason}`;
  say(page.refusal);
  refresh();
  if (page.view && nameOf(act) === nameOf(page.view)) reload();
}

// ---- frame and list
function count() {                                 // what the reviewer has done here goes into the list at once
  if (!page.view) return;
  const state = mine(), voted = page.view.asked.filter(one => one.needed && state.votes.get(idOf(one))).length;
  Object.assign(page.list.cases[page.at], { voted, submitted: state.submitted });
}

function drawFrame() {
  const { list, outbox, adjudicating } = page, lost = new Set(outbox.acts.map(nameOf));
  const waiting = list.cases.filter(row => row.conflicts);
  drawFilters(list, drawFrame);
  page.order = adjudicating ? list.cases.map((_, number) => number).filter(number => list.cases[number].conflicts) : order(list.cases, page.at);
  const several = Object.keys(list.questions).length > 1;
  queue.show(page.order.map(number => shownRow(number, lost.has(nameOf(list.cases[number])), several)), page.at);
  $("conflicts").textContent = list.adjudicating || waiting.length ? `To adjudicate ${waiting.length}` : "To adjudicate";
  $("waiting").setAttribute("aria-pressed", String(!adjudicating));
  $("conflicts").setAttribute("aria-pressed", String(adjudicating));
  const isScores = list.cases.some(row => row.subject_kind === "score");
  const sum = field => list.cases.reduce((total, row) => total + Number(row[field]), 0);
  const marked = list.cases.filter(row => row.marked && !row.submitted).length, asked = list.cases.length - marked;
  $("bar").value = isScores ? (asked ? sum("submitted") / asked : 1) : sum("voted") / (sum("asked") || 1);
  const beforehand = marked ? `, ${marked} marked beforehand` : "";
  const votes = `${sum("submitted")} of ${list.cases.length} cases, ${sum("voted")} of ${sum("asked")} votes`;
  const some = page.order.length < list.cases.length && !adjudicating ? `, ${page.order.length} in the list` : "";
  const { vouching } = list;
  const wanted = vouching ? ` · ${vouching.here} of ${vouching.needed} labels drawn by chance for a promise of ${vouching.promise}` : "";
  $("done").textContent = (isScores ? `${sum("submitted")} of ${asked} looked at${beforehand}${some}` : votes) + wanted;
  $("stored").className = outbox.acts.length || page.refusal ? "lost" : "mute";
  $("stored").textContent = page.refusal || storing();
}

function shownRow(number, lost, several) {         // several: whether there are several questions
  const row = page.list.cases[number], { adjudicating } = page, isScore = row.subject_kind === "score";
  const voted = isScore ? (row.voted ? "not submitted" : "open") : `${row.voted} of ${row.asked}`;
  const state = adjudicating ? `${row.conflicts} of ${row.asked}` : row.submitted ? "done" : row.marked && !row.voted ? "marked" : voted;
  const why = adjudicating ? "Reviewers disagree" : row.why ?? (row.second ? "Second rating, blind" : "Not opened yet");
  const about = isScore && several ? `${row.item_id}: ` : "";
  return { number, id: row.student ?? row.response_id, lost, state: lost ? "not stored" : state, why: about + why };
}

function storing() {
  const { acts, problem } = page.outbox;
  if (acts.length) return `${acts.length} not stored${problem ? `: ${problem}, trying again` : " yet"}`;
  return page.made.length || page.list.latest.length ? "Everything stored" : "";
}

function draw() {
  drawFrame();
  keepingFocus(() => { drawResponse(focusOn); drawRubric(on); });
}

function keepingFocus(draws) {
  const held = document.activeElement, box = held?.closest("main, #rubric");
  if (!box) return draws();
  const all = () => [...box.querySelectorAll("button, a, input, textarea, summary")];
  const place = all().indexOf(held), range = [held.selectionStart, held.selectionEnd];
  draws();
  const same = held.id ? $(held.id) ?? $("outcome") : all()[place];
  same?.focus({ preventScroll: true });
  if (same?.matches("textarea, [type=text]")) same.setSelectionRange(...range);
}

function drawProblem(error, again) {
  if (!error.status) setTimeout((number => () => { if (page.at === number) again(); })(page.at), PAUSE);
  if (page.view && !error.status) return;          // what is on the page stays there while the server is away
  page.view = null;
  fill($("rubric"));
  fill($("main"), el("p", { class: "lost" }, `This case cannot be shown: ${error.status ? error.message : "no answer from the server"}.`),
    el("button", { class: "plain", onclick: again }, "Try again"));
}

function mark(i) {                                 // the current criterion
  if (page.crit === i && $(`c${i}`)?.classList.contains("now")) return;
  page.crit = i;
  page.view.asked.forEach((_, k) => $(`c${k}`)?.classList.toggle("now", k === i));
  keepPlace();
}

function focusOn(i) {
  if (i < page.view.asked.length) mark(i);
  const box = $(`c${i}`), entry = !matchMedia("(pointer: coarse)").matches && $(`points${i}`);  // no keyboard over a phone's page unasked
  (entry || box?.querySelector("[tabindex='0']") || box)?.focus({ preventScroll: true });
  box?.scrollIntoView({ block: "nearest" });
}

let placing;
function keepPlace() {                             // browsers take an address that changes too often amiss
  clearTimeout(placing);
  const { subject_kind, response_id } = page.view;
  const place = () => history.replaceState(null, "", `#${subject_kind}/${encodeURIComponent(response_id)}/${page.crit}`);
  placing = setTimeout(place, 200);
}

// ---- points as they are typed
function type(i, text) {
  typed.set(placeOf(page.view.asked[i]), text);
  touchTyped(i);
}

function retype(i, text) {                         // from outside of the box, and by arrows
  if (!$(`points${i}`)) return sayClosed();
  $(`points${i}`).value = text;
  $(`points${i}`).focus();
  type(i, text);
}

function sayClosed() { say(page.view.third ? "This one is not in dispute." : "Submitted already; u takes that back."); }

function enter(i) {                                // whether what is typed is a score: it is set then, and refused otherwise
  const one = page.view.asked[i], { value, why } = readPoints(typed.get(placeOf(one)) ?? "", valuesOf(one));
  mark(i);
  if (value !== null) cast(value);
  else {
    $(`points${i}`)?.focus();
    touchTyped(i, true);
    say(why);
  }
  return value !== null;
}

// What is typed is set before the case is submitted or left; false where it is no score, and then the case stays.
function settled() {
  const i = typedNow();
  return i < 0 || enter(i);
}

const typedNow = () => page.view?.asked.findIndex(one => (typed.get(placeOf(one)) ?? "").trim()) ?? -1;

function typing(event) {                           // what a key does to the points of the current criterion
  const box = event.target.closest(".entry input"), i = page.crit, one = page.view?.asked[i];
  if (!one || !isTyped(one) || event.target.matches("[type=range]")) return null;
  const text = typed.get(placeOf(one)) ?? "", { key } = event;
  if (box && key === "Enter") return () => text.trim() && enter(i);
  if (box && /^Arrow(Up|Down)$/.test(key)) {
    const from = mine().votes.get(idOf(one))?.value ?? onOffer().value ?? null;
    return () => retype(i, stepped(text, valuesOf(one), key === "ArrowUp" ? 1 : -1, from));
  }
  if (key === "Escape" && text) return () => retype(i, "");
  if (box) return null;                            // the rest is the box's own
  if (key === "Backspace" && text) return () => retype(i, text.slice(0, -1));
  return /^[\d.,−-]$/.test(key) ? () => retype(i, text + key) : null;
}

// ---- acts
function cast(value) {
  const { view, crit } = page, one = view.asked[crit], state = mine();
  typed.delete(placeOf(one));
  if (canSettle(one, state)) {
    choices.set(placeOf(one), value);
    return comment(crit);
  }
  if (isClosed(state)) return sayClosed();
  const old = state.votes.get(idOf(one)), text = (drafts.get(placeOf(one)) ?? old?.comment ?? "").trim();
  if (old?.value !== value || (old.comment ?? "") !== text) vote(one, value, text);
  if (view.grader && value !== CANNOT) panel.vote(nameOf(view), view.grader, one.criterion_id, Number(value));
  drawFrame();
  drawRubric(on);
  if (!one.needed) {                               // the score that follows is what comes next
    follow();
    focusOn(crit);
    return say(`${called(one)}: ${worded(one, value)}.`);
  }
  const votes = mine().votes, isToDo = i => view.asked[i].needed && !votes.get(idOf(view.asked[i]));
  const open = view.asked.map((_, i) => i).filter(isToDo), next = open.find(i => i > crit) ?? open[0] ?? -1;
  say(`${called(one)}: ${worded(one, value)}. ${next < 0 ? "All voted; s submits." : `Next: ${called(view.asked[next])}.`}`);
  if (value === CANNOT && !text) comment(crit);
  else if (next < 0) $("submit").focus();
  else focusOn(next);
}

async function take() {                            // the score that follows from the levels or, where none moved, the machine's
  const name = nameOf(page.view);
  await answered();
  if (!page.view || nameOf(page.view) !== name) return;
  const offer = onOffer();
  if (isClosed(mine())) return say("Submitted already; u takes that back.");
  if (offer.value === null) return say("There is no score to take over.");
  mark(0);
  cast(offer.value);
}

function saveNote() {                              // words that are wiped out are taken back, one note after the other
  const text = (drafts.get(noteDraft()) ?? "").trim(), { notes } = mine(), wasOpen = drafts.has(noteDraft());
  drafts.delete(noteDraft());
  if (!wasOpen || text === (notes.at(-1)?.text ?? "")) return touchRubric();
  if (text) send("note", { comment: text, digest: page.view.asked[0].digest, shown: wasShown() });
  else for (const note of notes.reverse()) send("undo", { undoes: note.act_id });
}

function vote(one, value, comment) {
  drafts.delete(placeOf(one));
  send("vote", { criterion_id: one.criterion_id, value, comment: comment || null, digest: one.digest, shown: wasShown() });
}

function comment(i) {
  opened.add(placeOf(page.view.asked[i]));
  mark(i);
  drawRubric(on);
  $(`note${i}`)?.focus();
}

function saveComment(one) {                        // a comment is part of the vote, so the vote is given again with it
  const old = mine().votes.get(idOf(one)), text = (drafts.get(placeOf(one)) ?? "").trim();
  if (old && (old.comment ?? "") !== text) vote(one, old.value, text);
  if (old) drafts.delete(placeOf(one));
}

function submit() {
  if (!settled()) return;
  const { view, crit } = page, state = mine(), votes = view.asked.map(one => state.votes.get(idOf(one)));
  if (isClosed(state)) return canSettle(view.asked[crit], state) ? settle(crit) : say("Submitted already.");
  const missing = votes.findIndex((one, i) => !one && view.asked[i].needed), silent = votes.findIndex(isSilent);
  if (missing >= 0) {
    focusOn(missing);
    const hint = onOffer().value === null ? "" : ` t takes ${onOffer().value}.`;
    return say(`${called(view.asked[missing])} has no vote yet.${isScored() ? hint : ""}`);
  }
  if (silent >= 0) {
    comment(silent);
    return say("Say in the comment why it cannot be judged.");
  }
  send("submit");
  for (const row of page.list.cases) row.submitted ||= view.alike.includes(row.response_id);
  if (!view.second) return onward();
  draw();                                          // a second rating stays, so that both can be compared
  $("outcome").focus({ preventScroll: true });
  $("outcome").parentNode.scrollIntoView({ block: "nearest" });
}

function settle(i) {
  const one = page.view.asked[i], value = choices.get(placeOf(one)), text = (drafts.get(placeOf(one)) ?? "").trim();
  if (!value) {
    focusOn(i);
    return say("Choose what it is settled at.");
  }
  if (!text) {
    comment(i);
    return say("Say what the discussion came to.");
  }
  drafts.delete(placeOf(one));
  send("adjudicate", { criterion_id: one.criterion_id, value, comment: text, digest: one.digest, shown: true });
  draw();
  const state = mine(), next = page.view.asked.findIndex(other => isApart(other, state));
  if (next >= 0) focusOn(next);
  else $("outcome")?.focus();
  say(`${called(one)} settled: ${worded(one, value)}.`);
}

async function undo() {
  const unset = typedNow();
  if (unset >= 0) {
    retype(unset, "");
    return say("Taken back: what you had typed.");
  }
  const last = lastAct(), number = last && (last.case ?? page.list.cases.findIndex(row => nameOf(row) === nameOf(last)));
  if (!last || number < 0) return say("There is nothing to take back.");
  if (number !== page.at || !page.view) await go(number, last.kind === "adjudicate");
  const { view } = page;
  if (!view) return;
  send("undo", { undoes: last.act_id });
  const isOfCase = last.kind === "submit" || last.kind === "note";
  const i = isOfCase ? -1 : view.asked.findIndex(one => idOf(one) === idOf(last)), one = view.asked[i];
  if (last.kind === "note") drafts.delete(noteDraft());
  if (one) for (const held of [opened, drafts]) held.delete(placeOf(one));
  if (last.kind === "vote" && view.grader) {
    const before = mine().votes.get(idOf(one));
    panel.vote(nameOf(view), view.grader, one.criterion_id, before && before.value !== CANNOT ? Number(before.value) : null);
  }
  draw();
  follow();
  focusOn(Math.max(0, i));
  const taken = last.kind === "note" ? "the note" : "the submission";
  say(`Taken back: ${one ? `${called(one)}, ${worded(one, last.value)}` : taken}, ${view.response_id}.`);
}

// ---- from case to case
function onward() {                                // to the next one with something to do
  const { list, at, adjudicating } = page, todo = row => adjudicating ? row.conflicts : !isDone(row);
  const place = page.order.indexOf(at), later = [...page.order.slice(place + 1), ...page.order.slice(0, Math.max(0, place))];
  const next = later.find(number => number !== at && todo(list.cases[number]));
  if (next !== undefined) return open(next, adjudicating);
  draw();
  $("outcome")?.focus();
  say("There is no other open case.");
}

function step(by) {                                // through the list that is shown
  const { at, adjudicating } = page, count = page.order.length, place = page.order.indexOf(at);
  const start = place < 0 && by < 0 ? 0 : place;   // from outside the list: to its first or its last case
  if (count) return open(page.order[(start + by + count) % count], adjudicating);
  say(adjudicating ? "Nothing waits for an adjudicator." : "The list is empty.");
}

async function toggleList() {                      // the server tells who is to adjudicate what others differ on
  if (!settled()) return;
  page.adjudicating = !page.adjudicating;
  await refresh();
  drawFrame();
  const cases = page.list.cases, first = cases.findIndex(row => page.adjudicating ? row.conflicts : !isDone(row));
  if (first >= 0) open(first, page.adjudicating);
  else say(page.adjudicating ? "Nothing waits for an adjudicator." : "You have submitted every case.");
}

// ---- keys
function find() {
  $("filters").open = true;
  $("by-text")?.focus();
}

const ANYTIME = { n: () => step(1), p: () => step(-1), a: toggleList, "?": () => $("help").showModal(), "/": find };
const KEYS = {
  j: () => focusOn(Math.min(page.crit + 1, page.view.asked.length - 1)),
  k: () => focusOn(Math.max(page.crit - 1, 0)),
  u: undo, s: submit, x: () => page.view.asked[page.crit].needed ? cast(CANNOT) : say("Only the score can be left unjudged."),
  t: () => isScored() ? take() : say("There is no score to take over."),
  w: () => $("studentNote") ? $("studentNote").focus() : say("Notes go with scores alone."),
  c: () => !isClosed(mine()) || canSettle(page.view.asked[page.crit], mine()) ? comment(page.crit) : sayClosed(),
  g: () => {
    if (!$("panel")) return say("This study has no grader.");
    $("panel").open = true;
    ($("slider-0") ?? $("panel").firstChild).focus();
  },
  e: () => {
    page.evidence = !page.evidence;
    $("response").classList.toggle("plainly", !page.evidence);
    say(page.evidence ? "Evidence shown" : "Evidence hidden");
  },
};

function meant(event) {                            // what a key does here
  if (ANYTIME[event.key] || !page.view) return ANYTIME[event.key];
  const option = page.view.asked[page.crit].options.find(one => one.key === event.key);
  const votes = option && !event.target.matches("[type=range]") && (() => cast(option.value));
  const isText = event.target.matches(".entry input") && /^[\d.,−-]$/.test(event.key);  // the box's own
  const isUnknown = event.key.length === 1 && event.key !== " " && !isText;
  return KEYS[event.key] ?? (votes || isUnknown && (() => say(noKey(event.key))));
}

function noKey(key) {
  const one = page.view.asked[page.crit], scale = one.options.map(option => option.value);
  return /\d/.test(key) ? `${called(one)} has no level ${key}, only ${scale.join(", ")}.` : `${key} is no key here; ? lists all.`;
}

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || !page.list || document.querySelector("dialog[open]")) return;
  const inEntry = event.target.matches(".entry input");
  const isText = !inEntry && event.target.matches("textarea, select, input:not([type=range], [type=radio])");
  if (event.key === "Escape" && isText) {
    event.target.blur();
    if (page.view) focusOn(page.crit);
    return;
  }
  if (event.repeat && ["Enter", " "].includes(event.key) && !isText) return event.preventDefault();  // held too long is no second act
  if (isText || !inEntry && !$("shortcuts").checked || event.repeat && !"jknp".includes(event.key)) return;
  const does = typing(event) ?? ($("shortcuts").checked ? meant(event) : null);
  if (does || inEntry && $("shortcuts").checked && /^[^\d.,−-]$/.test(event.key)) event.preventDefault();  // letters are keys here, no text
  if (does) does();
});

// ---- beginning
async function begin() {
  try {
    const who = await ask("/api/me");
    if (!who.reviewer) return who.tokens ? location.reload() : askName();
    if (page.me && page.me !== who.reviewer) return location.reload();
    page.me = who.reviewer;
    page.list = await ask("/api/cases");
    $("me").disabled = who.tokens;
  } catch { return setTimeout(begin, PAUSE); }
  $("me").hidden = false;
  fill($("me"), el("bdi", {}, page.me));
  const changed = () => { drawFrame(); if (page.view) touchRubric(); };
  page.outbox ??= new Outbox(`rubricflow ${page.list.study} ${page.me}`, { changed, stored, refused });
  page.log = [...page.outbox.acts];
  page.made = [...page.outbox.acts];
  page.outbox.send();
  drawFrame();
  if (!page.list.cases.length) return fill($("main"), el("p", { class: "mute" }, "No case waits."));
  const [kind, id, crit] = location.hash.slice(1).split("/");
  const place = page.list.cases.findIndex(row => row.subject_kind === kind && row.response_id === decoded(id));
  if (place < 0) return open(Math.max(0, page.list.cases.findIndex(row => !isDone(row))));
  await go(place, false, Number(crit) || 0);
  if (page.view) focusOn(page.crit);
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return ""; }
}

function askName() {
  $("who").oncancel = event => { if (!page.me) event.preventDefault(); };
  if (!$("who").open) $("who").showModal();
}

$("enter").onsubmit = async event => {
  event.preventDefault();
  try {
    await ask("/api/me", { name: $("name").value });
    if (page.me) return location.reload();
    $("who").close();
    begin();
  } catch (error) { $("wrong").textContent = error.status ? error.message : "No answer from the server."; }
};
$("me").onclick = askName;
$("keys").onclick = () => $("help").showModal();
$("closeHelp").onclick = () => $("help").close();
$("shortcuts").checked = localStorage.getItem("rubricflow shortcuts") !== "off";
$("shortcuts").onchange = event => localStorage.setItem("rubricflow shortcuts", event.target.checked ? "on" : "off");
$("waiting").onclick = () => { if (page.adjudicating) toggleList(); };
$("conflicts").onclick = () => { if (!page.adjudicating) toggleList(); };
$("fold").onclick = () => $("fold").setAttribute("aria-expanded", String(document.querySelector(".queue").classList.toggle("open")));
$("stored").onclick = () => page.outbox?.now();
addEventListener("beforeunload", event => { if ([...drafts.values(), ...typed.values()].some(text => text.trim())) event.preventDefault(); });
addEventListener("focus", () => { if (page.list) refresh(); });
setInterval(() => { if (page.list && !document.hidden) refresh(); }, REFRESH);
begin();
